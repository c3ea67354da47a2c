"""Properties of why jobs wait, in queues of any order, with limits, arrays, holds, dependencies, best-effort and slots.

W1  Of everybody who waits a reason is told and shown: the code is that of the core's own first reason, asked for that unit
    alone; of the first ones the numbers are the same, too.  So what is counted by reason is true for the whole queue.
W2  What is told is true: who waits for hosts does not start either when nobody else waits; who waits behind others, or for a
    lease to come, does.
W3  A turn that is told is what the order's own pass gave at that moment, though it is worked out in slices while facts come.
W4  Asking changes nothing: not a byte of what the core knows.
W5  At rest the last pass explains everybody: asking for each, for all and for the queue makes no other one
    (with points, one in all).
W6  What is told agrees with what the pass started: nobody who waits is among its starts; who is told to be behind somebody is
    behind one who waits, for whom the pass keeps room if it does so for anybody.  A moment that is told is the pass's own.
W7  Numbers are true: who lacks N hosts starts once N such hosts are there and nobody else waits, and not with one less.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, Leases, Quality, UserLimits
from schemas.facts import Dependency
from schemas.queries import QueueExplained
from schemas.reasons import Reason
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain.why_waiting import WhyWaiting
from services.monitor.views.views import Views
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import registry
from services.scheduler.core.policies.order import Order, Plan, Reserved, Situation
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.lookahead import last_pass, reasons
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.reasons import Reasons
from services.scheduler.lookahead.start_estimate import Start, copied, core_of, foresee
from services.scheduler.lookahead.why import why
from tests.support.scheduling import reservations
from tests.support.world import World, batch, cloud

ORDERS = ("fcfs", "first-fit", "shortest-first", "easy", "conservative", "svmsched", "leases", "multi-factor")
CORES = 4
HOSTS = 4
LIMITS = BatchLimits(users={"bob": UserLimits(cores_max=7)})
QUALITY = {"urgent": Quality(priority=9, together=UserLimits(jobs_running_max=1))}


class Ask(NamedTuple):
    nodes: int
    cores: int
    walltime_s: float
    user: str
    kind: str  # what is special about it
    before: bool = False  # it is submitted when the first ones run


ASKS = st.lists(
    st.builds(
        Ask,
        st.sampled_from((1, 1, 1, 2, 3, HOSTS + 1)),
        st.integers(1, CORES),
        st.sampled_from((5.0, 20.0, 50.0, 400.0)),
        st.sampled_from(("ann", "ann", "bob")),
        st.sampled_from(("", "", "", "", "array", "held", "after", "best", "urgent", "slot", "whole", "one")),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)

LATER = st.sampled_from((0.0, 0.0, 35.0))  # the slots have begun then


class Site:
    """A department whose monitor looks on; `held` of its hosts are its own."""

    def __init__(self, order: str, held: int) -> None:
        policy: Any = {"order": order, "limits": LIMITS, "quality": QUALITY, "leases": Leases(margin_s=1.0)}
        self.world = World(cloud(batch("hpc", **policy)))
        self.world.strict = False
        names = self.world.hosts(HOSTS, cores=CORES)
        self.core: BatchCore = self.world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc")).core
        self.monitor: MonitorCore = self.world.seat("monitor", MonitorCore).core
        self.views = Views(self.monitor)
        if held:
            self.world.grant("hpc", *names[:held])

    def submit(self, ask: Ask) -> None:
        last = self.world.custody.state.job_last
        special: dict[str, dict[str, Any]] = {
            "array": {"array": (0, 1, 2), "throttle": 1},
            "held": {"held": True},
            "after": {"after": (Dependency(condition="afterok", job=str(last)),) if last else ()},
            "best": {"best_effort": True},
            "urgent": {"quality": "urgent"},
            "slot": {"lease": f.Lease(kind="advance", start_at=self.world.now + 30.0), "nodes": 1},
            "whole": {"exclusive": True},
            "one": {"service": "one"},
        }
        fields: dict[str, Any] = {
            "nodes": ask.nodes,
            "cores": ask.cores,
            "walltime_s": ask.walltime_s,
            "user": ask.user,
        }
        self.world.submit(**(fields | special.get(ask.kind, {})))

    def play(self, asks: list[Ask], later_s: float = 0.0) -> None:
        for ask in asks:
            if ask.before:
                self.submit(ask)
        self.world.settle()
        for name, unit in list(self.world.custody.state.units.items()):
            if unit.state == "open":
                self.world.start_vms(name)
                self.world.begin(name)
        self.world.now += 10.0
        for ask in asks:
            if not ask.before:
                self.submit(ask)
        self.world.settle()
        self.world.now += later_s
        self.world.settle()

    def waiting(self) -> list[str]:
        return [name for name, unit in self.world.custody.state.units.items() if unit.state == "pending"]

    async def ask(self, _department: str) -> bytes:
        return await Reasons().answer(self.core, self.world.now)

    def whole(self, unit: str) -> Reason:
        """The core's own first reason."""
        return why(self.core, unit, self.world.now)[0]

    def starts_alone(self, unit: str) -> bool:
        """Whether it would start if nobody else waited."""
        twin = core_of(copied(self.core))
        for name in self.waiting():
            if name != unit:
                twin.view.jobs.queue.remove(name)
        twin.view.room.grew = twin.view.jobs.queue.grew = True
        return any(isinstance(fact, f.UnitPlaced) and fact.unit == unit for fact in twin.decide(self.world.now))


def counted(patch: pytest.MonkeyPatch) -> list[str]:
    """The orders that are asked for a plan from here on, by name."""
    asked: list[str] = []

    def counting(name: str, order: Order) -> Order:
        def plan(situation: Situation) -> Plan:
            asked.append(name)
            return order.plan(situation)

        return order._replace(plan=plan)

    for name, order in registry.ORDERS.items():
        patch.setitem(registry.ORDERS, name, counting(name, order))
    return asked


def without_turn(reason: Reason) -> dict[str, Any]:
    return {
        name: value
        for name, value in because.fields(reason).items()
        if name not in ("reserved_in_s", "reservations_max", "backfill")
    }


@settings(max_examples=60, deadline=None)
@given(ASKS, st.sampled_from(ORDERS), st.integers(0, HOSTS), st.integers(0, 3), LATER)
def test_everybody_is_told_what_the_core_itself_says(
    asks: list[Ask], order: str, held: int, first: int, later_s: float
) -> None:
    site = Site(order, held)
    site.play(asks, later_s)
    known = site.core.custody.dump(), site.core.dump()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reasons, "FIRST", first)
        asyncio.run(WhyWaiting(site.monitor, site.views, site.ask).look())
        told = msgspec.json.decode(asyncio.run(site.ask("hpc")), type=QueueExplained)
    assert (site.core.custody.dump(), site.core.dump()) == known  # W4
    waiting = site.waiting()
    shown = {unit: site.views.reason(site.world.unit(unit)).code for unit in waiting}
    assert shown == {unit: site.whole(unit).code for unit in waiting}  # W1
    assert {**told.reasons}.keys() == {place.unit for place in site.core.view.jobs.queue.first(first)}
    many = site.core.view.order.reserves_for_all
    for unit, reason in told.reasons.items():
        whole = site.whole(unit)
        assert (because.fields(reason), without_turn(reason))[many] == (because.fields(whole), without_turn(whole))[
            many
        ]


@settings(max_examples=60, deadline=None)
@given(ASKS, st.sampled_from(ORDERS), st.integers(0, HOSTS), LATER)
def test_what_is_told_is_true(asks: list[Ask], order: str, held: int, later_s: float) -> None:
    site = Site(order, held)
    site.play(asks, later_s)
    for unit in site.waiting():
        code = type(site.whole(unit))
        if code in (because.WaitsForHosts, because.NoHostsHeld, because.TooLargeNow):
            assert not site.starts_alone(unit), code
        elif code in (because.WaitsBehind, because.LeaseKeepsRoom):
            assert site.starts_alone(unit), code


@settings(max_examples=40, deadline=None)
@given(ASKS, st.integers(1, HOSTS))
def test_a_turn_that_is_told_is_what_a_pass_gave(asks: list[Ask], held: int) -> None:
    site = Site("conservative", held)
    site.play(asks)
    now, core = site.world.now, site.core
    order = [place.unit for place in core.view.jobs.queue.in_order() if not core.view.jobs.job(place.unit).best_effort]
    if not order:
        return
    first, last = order[0], order[-1]
    whole = {each.unit: each for each in reservations(core.start.last_pass(now), now)}

    async def told() -> dict[str, Reserved | None]:
        asked = LastPass()
        await asked.reach(core, first, now)
        found = {first: asked.reserved(first)}
        for unit in order[:-1]:  # who goes before is gone now, and was there when the pass began
            site.world.cancel(unit)
        await asked.reach(core, last, now)
        return found | {last: asked.reserved(last)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_pass, "SLICE_S", 0.0)
        found = asyncio.run(told())
    assert found == {unit: whole.get(unit) for unit in (first, last)}


@settings(max_examples=40, deadline=None)
@given(ASKS, st.sampled_from(("easy", "conservative")), st.integers(1, HOSTS))
def test_no_room_is_kept_for_best_effort(asks: list[Ask], order: str, held: int) -> None:
    site = Site(order, held)
    site.play(asks)
    for unit in site.waiting():
        if site.core.view.jobs.job(unit).best_effort:
            found: dict[str, Start] = foresee(site.core, site.world.now, [unit])
            assert type(found[unit].because) is not because.Reserved
            assert "reserved_in_s" not in because.fields(site.whole(unit))


@settings(max_examples=40, deadline=None)
@given(ASKS, st.sampled_from(ORDERS), st.integers(0, HOSTS), LATER)
def test_at_rest_nobody_who_asks_makes_another_pass(asks: list[Ask], order: str, held: int, later_s: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        passes = counted(patch)
        site = Site(order, held)
        site.play(asks, later_s)
        assert site.core.rests_until_woken()
        passes.clear()
        edge = BatchEdge("hpc")
        edge.service = SimpleNamespace(core=site.core, now=lambda: site.world.now)  # type: ignore[assignment]
        for unit in site.waiting():
            answer = asyncio.run(edge.answered("why", json.dumps({"job": unit}).encode()))
            assert json.loads(answer)["reasons"][0]["code"] == site.whole(unit).code
        for what in ("reasons", "queue"):
            assert "type" not in json.loads(asyncio.run(edge.answered(what, b"{}")))
        # whose ranks are left as they are while nothing fits: the first one who asks needs them
        late = order == "multi-factor"
        assert len(passes) <= late


@settings(max_examples=60, deadline=None)
@given(ASKS, st.sampled_from(ORDERS), st.integers(0, HOSTS), LATER)
def test_what_is_told_agrees_with_the_last_pass(asks: list[Ask], order: str, held: int, later_s: float) -> None:
    site = Site(order, held)
    site.play(asks, later_s)
    now, waiting = site.world.now, site.waiting()
    plan = site.core.start.last_pass(now)
    assert not dict.fromkeys(start.unit for start in plan.starts).keys() & dict.fromkeys(waiting).keys()
    kept = {each.unit: each.at for each in reservations(plan, now)}
    first = next((unit for unit in kept if unit not in site.core.view.jobs.queue.bookings), None)
    for unit in waiting:
        reason = site.whole(unit)
        if isinstance(reason, because.WaitsBehind):
            assert reason.job in waiting
            assert reason.job == (first or reason.job) != unit
        if "reserved_in_s" in because.fields(reason):
            assert because.fields(reason)["reserved_in_s"] == max(0, round(kept[unit] - now))


@settings(max_examples=60, deadline=None)
@given(ASKS, st.sampled_from(ORDERS), st.integers(1, HOSTS), st.data())
def test_who_lacks_hosts_starts_when_they_are_there(
    asks: list[Ask], order: str, held: int, data: st.DataObject
) -> None:
    site = Site(order, held)
    site.play(asks)
    found = {unit: why(site.core, unit, site.world.now) for unit in site.waiting()}
    lacking = [
        unit
        for unit, told in found.items()
        if type(told[0]) is because.WaitsForHosts and because.fields(told[0])["short"]
    ]
    if not lacking:
        return
    unit = data.draw(st.sampled_from(lacking))
    short = cast("int", because.fields(found[unit][0])["short"])
    for other in site.waiting():
        if other != unit:
            site.world.cancel(other)
    for number in range(short):
        site.world.settle()
        assert site.world.states()[unit] == "pending", f"{number} more hosts"
        (name,) = site.world.hosts(1, cores=CORES, first=HOSTS + 1 + number)
        site.world.grant("hpc", name)
    site.world.settle()
    assert site.world.states()[unit] == "open"
