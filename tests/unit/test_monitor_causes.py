"""What the queue says of jobs that wait for something other than hosts, and that its rows follow when that changes."""

from __future__ import annotations

from typing import Any

import orjson

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, Quality, UserLimits
from schemas.facts import Dependency
from services.domain import text as sentences
from services.domain.custody.rules import RULES
from services.monitor.core.monitor import MonitorCore
from services.monitor.parts import at_once
from services.monitor.views.views import Views
from tests.support.world import Seat, World, batch, cloud


class Queue:
    """A monitor beside a world that is written by hand."""

    def __init__(self, **policy: Any) -> None:
        self.world = World(cloud(batch("hpc", **policy)))
        self.world.seat("monitor", MonitorCore)
        self.world.grant("hpc", *self.world.hosts(3))
        self.views = Views(self.seat.core)

    @property
    def seat(self) -> Seat:
        return self.world.seats["monitor"]

    def place(self, unit: str, attempt: int = 1) -> None:
        self.world.write("scheduler.hpc", f.UnitPlaced(unit=unit, attempt=attempt, hosts=("h1",), cores=1, memory_mb=1))

    def reasons(self) -> dict[str, Any]:
        """Unit -> code; as the kept rows say, and as rows rendered anew say."""
        kept = orjson.loads(at_once(self.views.queue(None, None)))["jobs"]
        anew = orjson.loads(at_once(Views(self.restarted()).queue(None, None)))["jobs"]
        assert kept == anew
        return {row["unit"]: row["reason"]["code"] for row in kept}

    def restarted(self) -> MonitorCore:
        core: MonitorCore = self.seat.twin().core
        return core


def after(condition: Any, job: str) -> tuple[Dependency, ...]:
    return (Dependency(condition=condition, job=job),)


def test_a_dependency_is_named_until_it_is_met() -> None:
    queue = Queue()
    first = queue.world.submit()
    ok, no, began, ended = [
        queue.world.submit(after=after(condition, first))
        for condition in ("afterok", "afternotok", "after", "afterany")
    ]
    waits = dict.fromkeys((ok, no, began, ended), "dependency")
    assert queue.reasons() == {first: "queue", **waits}
    queue.place(first)
    assert queue.reasons() == {first: "starting", **waits}
    queue.world.begin(first)
    assert queue.reasons() == {first: "running", **waits, began: "queue"}
    queue.world.report(first)
    assert queue.reasons() == {ok: "queue", no: "dependency_failed", began: "queue", ended: "queue"}


def test_a_dependency_that_never_can_be_met_is_told_before_the_array_has_ended() -> None:
    queue = Queue()
    array = queue.world.submit(array=(1, 2))
    whole = queue.world.submit(after=after("afterok", array))
    second = queue.world.submit(after=after("afterok", f"{array}_2"))
    queue.place(f"{array}_1")
    assert queue.reasons()[whole] == "dependency"
    queue.world.report(f"{array}_1", exit=1)
    assert (queue.reasons()[whole], queue.reasons()[second]) == ("dependency_failed", "dependency")
    queue.world.cancel(f"{array}_2")
    assert queue.reasons() == {whole: "dependency_failed", second: "dependency_failed"}


def test_a_throttled_array_says_so_while_it_is_full() -> None:
    queue = Queue()
    array = queue.world.submit(array=(1, 2, 3), throttle=1)
    names = [f"{array}_{i}" for i in (1, 2, 3)]
    assert queue.reasons() == dict.fromkeys(names, "queue")
    queue.place(names[0])
    assert queue.reasons() == {names[0]: "starting", names[1]: "array_throttle", names[2]: "array_throttle"}
    queue.world.report(names[0])
    assert queue.reasons() == {names[1]: "queue", names[2]: "queue"}


def test_an_answer_that_has_not_changed_renders_no_row_again() -> None:
    queue = Queue()
    array = queue.world.submit(array=tuple(range(1, 6)), throttle=2)
    dependent = queue.world.submit(array=tuple(range(1, 6)), after=after("afterany", array))
    queue.reasons()
    queue.place(f"{array}_1")
    assert len(queue.seat.core.causes.restated()) <= 10  # the first answer
    queue.place(f"{array}_2")
    assert sorted(queue.seat.core.causes.restated()) == [f"{array}_{i}" for i in range(1, 6)]
    queue.world.report(f"{array}_1")
    queue.place(f"{array}_3")
    assert queue.seat.core.causes.restated() == []  # full again, and the other waits as before
    assert dependent in queue.seat.core.causes.waiters[array]


def test_what_is_forgotten_leaves_nothing_behind() -> None:
    queue = Queue()
    first = queue.world.submit()
    core: MonitorCore = queue.seat.core
    second = queue.world.submit(after=after("afterok", first))
    assert core.causes.waiters == {first: {second: None}}
    core.causes.forgotten(core.state.jobs[second])
    assert core.causes.waiters == {}


def test_a_limit_that_is_reached_is_told_until_it_is_not() -> None:
    limits = BatchLimits(jobs_running_max=1, users={"bob": UserLimits(jobs_running_max=5)})
    queue = Queue(limits=limits, quality={"shared": Quality(together=UserLimits(cores_max=1))})
    array = queue.world.submit(array=(1, 2))
    other, shared = queue.world.submit(user="bob"), queue.world.submit(user="bob", quality="shared")
    both = queue.world.submit(user="cyd", quality="shared")
    names = [f"{array}_1", f"{array}_2"]
    assert queue.reasons() == dict.fromkeys([*names, other, shared, both], "queue")
    queue.place(names[0])
    queue.place(shared)
    waits = {names[1]: "user_limit", other: "queue", both: "quality_limit"}
    assert queue.reasons() == {names[0]: "starting", shared: "starting", **waits}
    queue.world.report(names[0])
    queue.world.report(shared)
    assert queue.reasons() == dict.fromkeys([names[1], other, both], "queue")


def test_a_limit_on_each_user_of_a_quality_names_the_quality() -> None:
    queue = Queue(quality={"urgent": Quality(each_user=UserLimits(jobs_running_max=1))})
    first, second = queue.world.submit(quality="urgent"), queue.world.submit(quality="urgent")
    queue.place(first)
    assert queue.reasons()[second] == "user_limit"
    reason = queue.seat.core.causes.limited.of(queue.seat.core.state.jobs[second])
    assert sentences.short(reason) == "user limit in urgent"
    assert sentences.short(because.UserLimit(user="ann")) == "user limit"


def test_limits_that_come_and_go_with_the_configuration_are_told() -> None:
    queue = Queue()
    first, second = queue.world.submit(), queue.world.submit()
    queue.place(first)
    assert queue.reasons()[second] == "queue"
    for limits, told in ((BatchLimits(cores_max=1), "user_limit"), (BatchLimits(), "queue")):
        config = cloud(batch("hpc", limits=limits))
        queue.world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
        assert queue.reasons()[second] == told


def test_of_who_is_held_only_a_failed_dependency_goes_first_and_a_slot_has_no_limit() -> None:
    queue = Queue(limits=BatchLimits(jobs_running_max=1))
    first = queue.world.submit()
    ok, anyhow = [queue.world.submit(held=True, after=after(condition, first)) for condition in ("afterok", "afterany")]
    slot = queue.world.submit(lease=f.Lease(kind="advance", start_at=queue.world.now + 60.0))
    queue.place(first)
    held = {ok: "held", anyhow: "held", slot: "lease_starts_at"}
    assert {unit: code for unit, code in queue.reasons().items() if unit in held} == held
    queue.world.report(first, exit=1)
    assert {unit: code for unit, code in queue.reasons().items() if unit in held} == held | {ok: "dependency_failed"}
