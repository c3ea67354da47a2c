"""Properties of accounting: what the monitor says was held, used, lent and lost.

A1  It is the integral: the same sums come out when every fact's state of custody is multiplied by the time until the next fact,
    with void facts and late reports among them.  All hosts are accounted for at every moment; rows add up to departments.
    What was used is good, bad or open at every moment, and neither good nor bad ever falls.
A2  Replay = live: who goes on from a snapshot of any moment has the same sums, to the byte, and gives the same answer.
A3  Users' sums are those of the scheduler's fair share without decay: no cold cache, no double credit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.envelope import decode
from schemas.facts import Disposal
from services.domain.capabilities import ALL
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.sharing.lending import owned
from services.monitor.core.monitor import MonitorCore
from services.monitor.views.usage import EVER, usage
from services.scheduler.core.batch.core import BatchCore
from tests.properties.test_multi_factor import USERS, play, world_of
from tests.support.examples import few
from tests.support.scheduling import core
from tests.support.world import World, batch, cloud, web

KINDS = ["submit", "begin", "end", "fail", "lose", "hold", "quota", "time", "cancel", "decide"]
MORE = ["save", "measure", "move", "late", "again", "long", "cordon", "break", "back", *["life", "take"] * 3]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS + MORE), st.integers(0, 7), st.integers(0, 7)), min_size=5, max_size=50
)
TAKEN = (because.Reclaimed, because.Preempted, because.HostTaken)


def house(on_reclaim: Any = "requeue") -> World:
    """hpc with all of three hosts, a web department that nobody works for, and the monitor."""
    config = cloud(batch("hpc", on_reclaim=on_reclaim, weight=2), web("web", guarantee=1), batch("bio"))
    world = World(type(config)(name="test", departments=config.departments, capabilities=ALL))
    world.strict = False
    world.hosts(3)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.seat("monitor", MonitorCore)
    world.grant("hpc", "h1", "h2", "h3")
    return world


def step(world: World, what: str, a: int, b: int) -> None:
    if what == "move":  # whatever state the host is in: most of these are void
        name = f"h{1 + a % 3}"
        world.write("executor", f.HostCleared(host=name))
        world.write("provisioner", f.HostGranted(host=name, dept=("hpc", "web", "bio")[b % 3]))
        if b > 5:
            world.write("provisioner", f.HostSeized(host=name, dept="hpc"))
    elif what == "late":
        units = [unit for unit in world.custody.state.units.values() if unit.attempt and unit.state != "final"]
        for unit in [unit for unit in units if not unit.live][: a % 2 + 1]:
            world.report(unit.id, terminated=b > 3)
    elif what == "again" and world.journal:
        writer, data = world.journal[-1 - a % len(world.journal)]
        world.write(writer, *decode(data, writer).facts)  # type: ignore[arg-type]
    elif what == "life":
        job = world.submit(user=USERS[a % 3], cores=1 + b % 4, walltime_s=1e7, on_term="complete" if a > 3 else None)
        world.settle()
        if world.unit(job).live:
            world.begin(job)
            world.now += 10.0 * (a + 1)
    elif what == "save":
        units = [unit for unit in world.custody.state.units.values() if unit.attempt and unit.state != "final"]
        for unit in units[: a + 1]:
            world.write("admission", f.CheckpointReported(unit=unit.id, attempt=max(1, unit.attempt - (b == 7))))
    elif what == "measure":
        for unit in [unit for unit in world.custody.state.units.values() if unit.attempt][: a + 1]:
            attempt = max(1, unit.attempt - (b > 5))
            fact = f.AttemptMeasured(unit=unit.id, attempt=attempt, cpu_seconds=a * 7.0 + b, max_rss_mb=b, heard_at=a)
            world.write("admission", fact)
    elif what == "take":  # by notice or, if the scheduler has not answered, by force
        world.quota("hpc", a % 2, by_s=0.5)
        if b > 4:
            world.write("provisioner", f.HostSeized(host=f"h{1 + a % 3}", dept="hpc"))
        world.now += b
        world.settle()
    elif what == "back":
        world.quota("hpc", 3)
        for name in ("h1", "h2", "h3"):
            world.write("executor", f.HostCleared(host=name))
            world.write("provisioner", f.HostGranted(host=name, dept="hpc"))
        world.settle()
    elif what == "break":
        live = [name for name, state in world.states().items() if state == "open" and world.unit(name).live]
        for name in live[:1]:
            world.start_vms(name)
            world.end_vm(name)
            world.now += b
    elif what == "long":
        world.now += (3600.0, 90_000.0, 4e6, 777.5)[a % 4]
    elif what == "cordon":
        kind = f.HostCordoned if b % 2 else f.HostUncordoned
        world.write("admission", kind(host=f"h{1 + a % 3}", reason="r", user="root"))
    elif what in KINDS:
        play(world, what, a, b)


class Ledger:
    """The same, worked out the plain way: levels times time, attempt by attempt."""

    def __init__(self, world: World) -> None:
        self.custody = Custody()
        self.sums: dict[tuple[str, str], float] = {}
        self.cordoned = dict.fromkeys(("hpc", "web", "bio"), 0.0)  # of what each held
        self.lost = self.failed = 0.0
        self.open: dict[str, tuple[int, float | None, float | None]] = {}  # cores, began, broken
        self.risked: dict[str, float] = {}
        self.kept: dict[str, float] = {}
        self.losses: dict[str, tuple[str, float]] = {}
        self.at: float | None = None
        for number, (writer, data) in enumerate(world.journal, 1):
            envelope = decode(data, writer)
            self.wait(max(envelope.at, self.custody.state.at))
            for index, fact in enumerate(envelope.facts):
                if fold_fact(self.custody, fact, number, index, writer, envelope.at) is None:
                    self.follow(fact)
        self.wait(world.now)

    def wait(self, until: float) -> None:
        length, self.at = until - (until if self.at is None else self.at), until
        for name, level in self.levels():
            self.sums[name] = self.sums.get(name, 0.0) + level * length
        for dept in self.cordoned:
            self.cordoned[dept] += (len(self._held(dept)) - self._divided(dept)) * length

    def _held(self, dept: str) -> list[str]:
        return list(self.custody.index.held.get(dept, ()))

    def _divided(self, dept: str) -> int:
        """Held hosts that are not cordoned."""
        return sum(self.custody.state.hosts[name].cordoned is None for name in self._held(dept))

    def levels(self) -> Iterator[tuple[tuple[str, str], int]]:
        state, index = self.custody.state, self.custody.index
        usable = [h for h in state.hosts.values() if h.state in ("free", "held", "draining") and h.cordoned is None]
        own = owned(state.config, state.at, len(usable)) if state.config else {}
        for dept in ("hpc", "web", "bio"):
            held = len(index.held.get(dept, ()))
            yield (dept, "held_s"), held
            yield (dept, "occupied_s"), len(index.occupied.get(dept, ()))
            yield (dept, "draining_s"), sum(h.state == "draining" and h.dept == dept for h in state.hosts.values())
            yield (dept, "own_s"), own.get(dept, 0)
            divided = self._divided(dept)
            yield (dept, "lent_s"), max(0, own.get(dept, 0) - divided)
            yield (dept, "borrowed_s"), max(0, divided - own.get(dept, 0))
        yield ("hpc", "used_core_s"), sum(cores for cores, _, _ in self.open.values())
        for what in ("free", "lost", "absent"):
            yield ("", f"{what}_s"), len(index.by_state[what])

    def follow(self, fact: Any) -> None:
        now = self.custody.state.at
        for name in self.custody.newly_broken:
            cores, began, _ = self.open[name]
            self.open[name] = (cores, began, now)
        if isinstance(fact, f.UnitPlaced):
            self.open[fact.unit] = (len(fact.hosts) * (4 if fact.exclusive else fact.cores), None, None)
        elif isinstance(fact, f.AttemptBegan):
            cores, began, broken = self.open[fact.unit]
            self.open[fact.unit] = (cores, now if began is None else began, broken)
            self.losses.pop(fact.unit, None)
        elif isinstance(fact, f.AttemptReported):
            if fact.unit not in self.open:  # else the success is another attempt's
                self.take_back(fact.unit)
            self.over(fact.unit)
        elif isinstance(fact, f.CheckpointReported):
            self.save(fact.unit, fact.attempt)
        elif isinstance(fact, f.AttemptClosed):
            self.losses.pop(fact.unit, None)
            self.over(fact.unit)
            cancelled = self.custody.state.units[fact.unit].cancelled
            if fact.disposal in (Disposal.REQUEUE, Disposal.KILL) and not cancelled:
                work = self.risked.pop(fact.unit, 0.0)
                work += self.kept.get(fact.unit, 0.0) if fact.disposal is Disposal.KILL else 0.0
                what = "lost" if type(fact.why) in TAKEN else "failed"
                setattr(self, what, getattr(self, what) + work)
                self.losses[fact.unit] = what, work

    def over(self, name: str) -> None:
        """What the attempt did is at risk from now on."""
        cores, began, broken = self.open.pop(name, (0, None, None))
        end = self.custody.state.at if broken is None else broken
        self.risked[name] = self.risked.get(name, 0.0) + (0.0 if began is None else cores * max(0.0, end - began))

    def save(self, name: str, attempt: int) -> None:
        unit = self.custody.state.units[name]
        moved = unit.attempt - 1 == attempt and unit.state == "open" and unit.began_at is None
        if unit.state == "final" or not (moved or unit.attempt == attempt):
            return
        if name in self.open:
            cores, began, broken = self.open[name]
            self.over(name)
            self.open[name] = (cores, None if began is None else self.custody.state.at, broken)
        self.kept[name] = self.kept.get(name, 0.0) + self.risked.pop(name, 0.0) + self.take_back(name)

    def take_back(self, name: str) -> float:
        what, amount = self.losses.pop(name, ("lost", 0.0))
        setattr(self, what, getattr(self, what) - amount)
        return amount


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(["requeue", "kill", "suspend", "migrate"]))
def test_it_is_the_integral(steps: list[tuple[str, int, int]], on_reclaim: str) -> None:
    world = house(on_reclaim)
    monitor, before = world.seats["monitor"].core, (0, 0)
    for each in steps:
        step(world, *each)
        assert monitor.check() == []  # used = good + bad + open
        judged = monitor.accounting.state.goodput
        now = sum(judged.good.values()), sum(sum(causes.values()) for causes in judged.bad.values())
        assert now[0] >= before[0]
        assert now[1] >= before[1]
        before = now
    ledger = Ledger(world)
    found = usage(monitor.accounting, "user", None, 0.0, EVER, world.now)
    departments = {one["department"]: one for one in found["departments"]}
    for (dept, what), seconds in ledger.sums.items():
        assert (departments[dept] if dept else found["site"])[what] == seconds, (dept, what)
    hpc, site = departments["hpc"], found["site"]
    assert (hpc["lost_core_s"], hpc["failed_core_s"]) == (ledger.lost, ledger.failed)
    assert sum(hpc["lost_to"].values()) == hpc["lost_core_s"]
    assert site["hosts_s"] == sum(site[what] for what in ("free_s", "lost_s", "absent_s")) + sum(
        one["held_s"] + one["draining_s"] for one in departments.values()
    )
    for dept, one in departments.items():
        assert one["used_core_s"] == sum(row["used_core_s"] for row in found["rows"] if row["department"] == dept)
        assert one["borrowed_s"] - one["lent_s"] == one["held_s"] - ledger.cordoned[dept] - one["own_s"]
    ends = [unit.end for unit in world.custody.state.units.values() if unit.state == "final"]
    assert hpc["ended"] == {str(end): ends.count(end) for end in sorted(map(str, ends))}
    assert hpc["submitted"] == len(world.custody.state.units)


@settings(max_examples=few(30, searching=60), deadline=None)
@given(STEPS, st.integers(0, 60), st.integers(0, 10_000_000))
def test_replay_is_live(steps: list[tuple[str, int, int]], cut: int, later_s: int) -> None:
    world = house()
    kept = None
    for number, each in enumerate(steps):
        if number == cut:
            kept = world.seats["monitor"].twin()
        step(world, *each)
    live = world.seats["monitor"]
    replayed = world.seat("monitor", MonitorCore, "again")
    asked = "user", None, 0.0, EVER, world.now + later_s
    answer, before = usage(live.core.accounting, *asked), live.core.dump()
    assert live.core.dump() == before  # asking changes nothing
    for other in (replayed, kept):
        if other is not None:
            other.fold(world.journal)
            assert other.core.dump() == before
            assert usage(other.core.accounting, *asked) == answer


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_users_have_used_what_fair_share_says(steps: list[tuple[str, int, int]]) -> None:
    world = world_of(half_life_s=0, period_s=100)
    world.seat("monitor", MonitorCore)
    for each in steps:
        step(world, *each)
    mine = core(world)
    theirs = mine.state.usage.as_of(world.now, mine.view.jobs.priorities._open(), 0)
    found = usage(world.seats["monitor"].core.accounting, "user", "hpc", 0.0, EVER, world.now)
    ours = {row["user"]: row["used_core_s"] for row in found["rows"]}
    for user in USERS:
        assert abs(ours.get(user, 0.0) - theirs.get(user, 0.0)) <= 1e-6 * theirs.get(user, 0.0)
