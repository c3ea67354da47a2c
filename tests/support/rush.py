"""A recording by hand, small enough that everything that follows from it can be worked out on paper.

seconds        0         10        12        14        20        26       30
load needs     0.8       2.4 ----------------------->  0.8 ---------------->
ideal          1         3   ----------------------->  1   ---------------->
in service     1                   2         3                   1
"""

from __future__ import annotations

from typing import Any

from phoenix.load.curve import Curve, plan
from phoenix.load.record import Outcome, Record
from phoenix.load.results import sum_up
from phoenix.rush.recording import Batch, Machine, Recording, Seen
from phoenix.rush.setting import Setting, Variant

BEGAN = 1000.0
CURVE = Curve((0.0, 10.0, 20.0), (8.0, 24.0, 8.0), 30.0)


def recording(name: str = "adaptive", exact: int | None = None, fail: int = 0) -> Recording:
    """`fail`: this many of the first requests were answered 502."""
    a, b, c = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
    return Recording(
        setting=Setting(cpus=2, hosts=4, instances_max=3, peak_instances=3),
        variant=Variant(name=name, exact=exact),
        curve=CURVE,
        capacity=10.0,
        began_at=BEGAN,
        ended_at=BEGAN + 30.0,
        load=sum_up(_record(fail), 1.0, 8000.0),
        seen=(
            Seen(BEGAN - 5, (a,)), Seen(BEGAN + 12, (a, b)), Seen(BEGAN + 14, (a, b, c)), Seen(BEGAN + 26, (a,)),
            Seen(BEGAN + 31, ()),
        ),
        machine=(Machine(BEGAN - 1, 1.0), Machine(BEGAN + 1, 0.2), Machine(BEGAN + 2, 0.4), Machine(BEGAN + 3, 0.99)),
        cpu_s={"admission": 3.0, "scheduler.web": 1.5, "balancer.web": 6.0, "phoenix load": 0.3},
        wait_s={"balancer.web": 0.3},
        batch=Batch(used_core_s=200.0, lost_core_s=12.0, preempted=2, completed=9, submitted=11),
        timeline=(
            (BEGAN - 9, {"hpc": 3, "web": 1}), (BEGAN + 11.5, {"hpc": 2, "web": 1, "(draining)": 1}),
            (BEGAN + 12, {"hpc": 2, "web": 2}), (BEGAN + 14, {"hpc": 1, "web": 3}), (BEGAN + 26, {"hpc": 3, "web": 1}),
        ),
        events=_events(),
    )  # fmt: skip


def _record(fail: int) -> Record:
    record = Record(plan(CURVE, seed=1, paced=True))
    for index, due in enumerate(record.plan.due):
        record.taken[index], record.ended[index] = due + 0.001, due + 0.02
        record.outcomes[index] = Outcome.STATUS if index < fail else Outcome.ANSWERED
        record.statuses[index] = 502 if index < fail else 200
    record.began_at, record.seconds, record.cpu_s = BEGAN, 30.02, 0.3
    return record


def _events() -> tuple[dict[str, Any], ...]:
    """The third instance's host came from batch; the second's was free; the first was there before."""
    high = {"code": "utilisation_high"}
    told: list[tuple[float, str, dict[str, Any]]] = [
        (-5.0, "demand.changed", {"dept": "web", "instances": 1}),
        (-4.9, "unit.placed", {"unit": "web.1", "attempt": 1, "hosts": ["h1"]}),
        (11.0, "load.observed", {"dept": "web", "end": BEGAN + 11.0}),
        (11.0, "demand.changed", {"dept": "web", "instances": 2, "reason": high}),
        (11.01, "host.granted", {"dept": "web", "host": "h2"}),
        (11.02, "unit.placed", {"unit": "web.2", "attempt": 1, "hosts": ["h2"]}),
        (11.03, "vm.allocated", {"unit": "web.2", "attempt": 1}),
        (11.04, "vm.started", {"unit": "web.2", "attempt": 1}),
        (11.9, "attempt.began", {"unit": "web.2", "attempt": 1, "addresses": ["127.0.0.1:2"]}),
        (13.502, "load.observed", {"dept": "web", "end": BEGAN + 13.5}),
        (13.504, "demand.changed", {"dept": "web", "instances": 3, "reason": high}),
        (13.514, "host.released", {"dept": "hpc", "host": "h3"}),
        (13.552, "host.cleared", {"host": "h3"}),
        (13.555, "host.granted", {"dept": "web", "host": "h3"}),
        (13.556, "unit.placed", {"unit": "web.3", "attempt": 1, "hosts": ["h3"]}),
        (13.561, "vm.allocated", {"unit": "web.3", "attempt": 1}),
        (13.571, "vm.started", {"unit": "web.3", "attempt": 1}),
        (13.8, "attempt.began", {"unit": "web.3", "attempt": 1, "addresses": ["127.0.0.1:3"]}),
        (25.9, "demand.changed", {"dept": "web", "instances": 1}),
        (26.0, "host.granted", {"dept": "hpc", "host": "h2"}),
        (26.0, "host.granted", {"dept": "hpc", "host": "h3"}),
    ]
    return tuple(
        {"position": position, "index": 0, "at": BEGAN + at, "kind": kind, "fact": fact}
        for position, (at, kind, fact) in enumerate(told, start=1)
    )
