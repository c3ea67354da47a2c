"""The web core whatever happens to its hosts, instances, load and configuration.

W1  What its views say is what custody says, and a core that rests has nothing to say (its `check`, after each envelope).
W2  A restart from the snapshot changes neither bytes, decisions nor wake-up times (asserted by `World` after each envelope).
W3  Nothing that it writes is void when nothing is concurrent.
W4  Left alone, with hosts enough, every wanted instance serves, on hosts that it claims, and no other host is held.
W5  Nobody who serves is closed because it is not needed, without having drained (unless there is no time to drain).
W6  Because it is not needed nobody drains of those who are: as many as are wanted still serve then.
W7  Whoever drains is closed when its balancer says that it has drained, or at its time; never later.
W8  A notice is answered before it is due, whatever drains.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.scheduler.core.web.core import WebCore
from tests.support.examples import few
from tests.support.world import NullCore, World, cloud, web

NOT_NEEDED = (because.ScaleDown, because.ScaledByPerson)

HOSTS = tuple(f"h{n}" for n in range(1, 7))
KINDS = (
    *(
        "load",
        "load",
        "load",
        "asked",
        "claim",
        "scale",
        "auto",
        "grant",
        "grant",
        "quota",
        "lose",
        "clear",
        "cordon",
        "drain",
        "uncordon",
    ),
    *("rest", "smaller", "vm", "config", "executor", "guests", "foreign", "time", "decide"),
    *("drained", "drained", "unready", "ready", "ill", "well", "ended", "unreachable", "reachable", "sessions"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.floats(0, 1.2)), min_size=5, max_size=40)
CONFIGS: tuple[CloudConfig, ...] = (
    cloud(web("web", rule="threshold", window_s=3, signal_timeout_s=4, boot_timeout_s=9, instances_max=6)),
    cloud(
        web(
            "web",
            rule="threshold",
            window_s=3,
            signal_timeout_s=4,
            instances_max=9,
            instances_per_host=3,
            instances_min=2,
        )
    ),
    cloud(web("web", rule="target-tracking", down_window_s=4, instances_max=9, instances_per_host=2, drain_s=0)),
    cloud(
        web(
            "web",
            rule="target-tracking",
            up_window_s=2,
            down_window_s=3,
            instances_max=6,
            instance_cores=3,
            drain_s=1,
            unreachable_s=2,
            boot_timeout_s=6,
        )
    ),
    cloud(
        web(
            rule="target-tracking",
            down_window_s=0,
            instances_max=9,
            turns_per_hour_max=4,
            up_limits=("2 in 5s",),
            down_limits=("50% in 4s",),
            forecast_days=1,
            forecast_ahead_s=60,
            schedule=("daily 00:00-24:00 at least 1", "Mon 13:46-13:47 at least 4"),  # it is Monday, 13:46:40
        )
    ),
)


def site(config: CloudConfig, held: int = 0) -> World:
    """With `held` hosts, and as many instances, as a person wants for five seconds."""
    world = World(config)
    world.hosts(len(HOSTS))
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests(boot_s=0.5)
    world.seat("judge", Judge)
    world.settle()
    if held:
        world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=held, until=world.now + 5))
        world.grant("web", *HOSTS[:held])
        world.advance(1)
    return world


class Judge(NullCore):
    """W5 to W7, fact by fact."""

    def __init__(self, custody: Custody) -> None:
        super().__init__(custody)
        self.serving: dict[str, None] = {}
        self.wanted = 0

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if isinstance(fact, f.DemandChanged) and fact.dept == "web":
            self.wanted = fact.instances or 0
        elif isinstance(fact, f.AttemptBegan):
            self.serving[fact.unit] = None
        elif isinstance(fact, f.InstanceDraining):
            known = self.serving.pop(fact.unit, "drains already")
            needed = type(fact.reason) in NOT_NEEDED and known is None and len(self.serving) < self.wanted
            assert not needed, f"{fact.unit} drains, and {len(self.serving)} serve of {self.wanted}"  # W6
        elif isinstance(fact, f.AttemptClosed):
            self._closed(fact, meta)
        for name in meta.broken:
            self.serving.pop(name, None)

    def _closed(self, fact: f.AttemptClosed, meta: Meta) -> None:
        unit, served = self.custody.state.units[fact.unit], fact.unit in self.serving
        self.serving.pop(fact.unit, None)
        if served and self._drain_s() > 0:
            assert type(fact.why) not in NOT_NEEDED, f"{fact.unit} served"  # W5
        if type(fact.why) in (because.Drained, because.DrainTimeout):
            assert unit.drains_until is not None
            assert meta.at >= unit.drains_until or type(fact.why) is because.Drained  # W7

    def _drain_s(self) -> float:
        config = self.custody.state.config
        department = config.department("web") if config is not None else None
        return department.web.drain_s if department is not None and department.web is not None else 0.0

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.serving, self.wanted))

    def load(self, data: bytes) -> None:
        self.serving, self.wanted = msgspec.msgpack.decode(data, type=tuple[dict[str, None], int])


def overdue(world: World) -> list[str]:
    """W7: who has drained, by a balancer's word or by the clock, and is not closed."""
    drained = world.seats["scheduler.web"].core.state.drained
    drains = [unit for unit in world.custody.state.units.values() if unit.live and unit.drains_until is not None]
    return [unit.id for unit in drains if unit.id in drained or (unit.drains_until or 0.0) <= world.now]


def play(world: World, what: str, number: int, level: float) -> None:
    """One thing that may happen outside; nothing that would be void."""
    name = HOSTS[number % len(HOSTS)]
    host = world.custody.state.hosts[name]
    if what == "load":
        world.now += 1.0
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=level, samples=1)
        world.write("scheduler.web", fact)
    elif what == "asked":
        world.now += 1.0
        asked = {
            "requests_per_s": 50 * number * level,
            "requests_per_instance": 50.0,
            "claim": number if number > 4 else None,
        }
        world.write("scheduler.web", f.LoadObserved(dept="web", start=world.now - 1, end=world.now, samples=1, **asked))
    elif what == "claim":
        claim = f.LoadObserved(dept="web", start=world.now, end=world.now, claim=number, samples=1)
        world.write("scheduler.web", claim)
    elif what == "scale":
        world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=number, until=world.now + 5))
    elif what == "auto":
        world.write("admission", f.ScaleRequested(dept="web", user="wes", minimum=number % 3))
    elif what == "grant" and host.state == "free":
        world.grant("web", name)
    elif what == "quota":
        world.quota("web", number)
    elif what in ("drained", "unready", "ready", "ill", "well", "ended", "unreachable", "reachable", "sessions"):
        balancer(world, what, number)
    elif what in ("lose", "clear", "cordon", "drain", "uncordon", "rest", "smaller", "vm"):
        about_hosts(world, what, name, level)
    elif what == "config":
        adopted = f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=CONFIGS[number % len(CONFIGS)])
        world.write("provisioner", adopted)
    elif what in ("executor", "guests"):
        world.seats[what].paused = not world.seats[what].paused
    elif what == "foreign":
        world.write("scheduler.hpc", f.DemandChanged(dept="hpc", hosts=number))
    elif what == "time":
        world.advance(level * 4)
    else:
        world.settle()


def balancer(world: World, what: str, number: int) -> None:
    """A word on some instance, or on the sessions of all."""
    names = [name for name in world.custody.index.open.get("web", ()) if world.unit(name).live]
    if what == "sessions":
        quiet = tuple(names[number:] + names[:number])
        fact = f.LoadObserved(dept="web", start=world.now, end=world.now, samples=1, quiet=quiet)
        world.write("scheduler.web", fact)
        return
    drains = [name for name in names if world.unit(name).drains_until is not None]
    some = drains if drains and what == "drained" else names
    if some:
        guests: Any = {"ill": "unready", "well": "ready", "ended": "ended"}
        word: Any = guests.get(what, what)
        by: Any = {"by": "guest"} if what in guests else {"user": "balancer"}
        world.write("admission", f.InstanceReported(unit=some[number % len(some)], attempt=1, state=word, **by))


def about_hosts(world: World, what: str, name: str, level: float) -> None:
    host = world.custody.state.hosts[name]
    if what == "lose" and level > 0.8:
        world.lose(name)
    elif what == "clear" and host.state == "lost" and not host.vms:
        world.write("executor", f.HostCleared(host=name))
    elif what == "cordon":
        world.cordon(name)
    elif what == "drain":
        world.drain(name, None if level < 0.5 else 5.0)
    elif what == "uncordon":
        world.write("admission", f.HostUncordoned(host=name, reason="repaired", user="root"))
    elif what == "rest":
        world.write("executor", f.HostQuarantined(host=name, until=world.now + 4 * level, reason="failures"))
    elif what == "smaller":
        cores = 2 if level > 0.6 else 4
        world.write("executor", f.HostDescribed(host=name, one_id=host.one_id, cores=cores, memory_mb=8192))
    elif what == "vm" and world.custody.state.vms:
        vm = min(world.custody.state.vms.values(), key=lambda v: v.vm)
        world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="gone"))


@settings(max_examples=few(30, searching=50), deadline=None)
@example(
    CONFIGS[0], 0, [("scale", 7, 0.0), ("config", 4, 0.0)]
)  # no signal: it wants the 7 that it had, and there are 6
@given(st.sampled_from(CONFIGS), st.integers(0, 6), STEPS)
def test_the_web_core_keeps_its_word_whatever_happens(
    config: CloudConfig, held: int, steps: list[tuple[str, int, float]]
) -> None:
    world = site(config, held)
    for what, number, level in steps:
        play(world, what, number, level)
        world.settle()
        assert overdue(world) == []
    assert world.voids == []  # W3
    heal(world)
    wanted = world.custody.state.demands["web"]
    core = world.seats["scheduler.web"].core
    assert world.custody.held("web") == min(wanted, len(HOSTS))  # W4
    if wanted <= len(HOSTS):
        assert core.state.serving == core.state.target


def heal(world: World) -> None:
    """Whole hosts for whatever is wanted, and time."""
    for seat in world.seats.values():
        seat.paused = False
    world.settle()
    for name in HOSTS:
        host = world.custody.state.hosts[name]
        world.write("admission", f.HostUncordoned(host=name, reason="repaired", user="root"))
        world.write("executor", f.HostDescribed(host=name, one_id=host.one_id, cores=4, memory_mb=8192))
        if host.state == "lost":
            world.write("executor", f.HostCleared(host=name))
    for name in list(world.seats["scheduler.web"].core.state.unready):
        healed: Any = {"unit": name, "attempt": 1}
        world.write("admission", f.InstanceReported(state="reachable", user="balancer", **healed))
        world.write("admission", f.InstanceReported(state="ready", user="balancer", **healed))
        world.write("admission", f.InstanceReported(state="ready", by="guest", **healed))
    world.write("admission", f.ScaleRequested(dept="web", user="wes"))
    world.advance(120)
    for _ in range(3):  # the claim may change when the hosts are there
        short = world.custody.state.demands["web"] - world.custody.held("web")
        world.quota("web", len(HOSTS))
        if short > 0:
            world.grant("web", *sorted(world.custody.index.by_state["free"])[:short])
        world.advance(40)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(1, 6), STEPS, st.integers(0, 5))
def test_a_notice_is_answered_before_it_is_due(
    config: CloudConfig, held: int, steps: list[tuple[str, int, float]], quota: int
) -> None:
    """W8."""
    world = site(config, held)
    world.strict = False  # the other property verifies
    for what, number, level in steps[:12]:
        if what not in ("quota", "grant"):
            play(world, what, number, level)
    world.quota("web", quota, by_s=0.3)
    world.advance(0.3 - 0.01)
    assert world.custody.held("web") <= max(quota, len(world.custody.cordoned("web")))  # these would help nobody
