"""What a run comes to, in numbers.  Pure.

Rules
  1. Ideal is what a rule that knew the load would have: each instance busy to the target at most.
  2. In instance-seconds: over is serving above the ideal; short below it; overload is load beyond what served could do.
  3. A rise is a moment at which the ideal becomes higher than what serves, one for each instance; it is met when as many
     serve.  One that the load takes back before that is missed; within `BLIP_S` it was noise, and is no rise.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from phoenix.load.results import Results, percentile
from phoenix.rush import levels
from phoenix.rush.recording import Batch, Recording
from phoenix.rush.setting import Variant
from phoenix.rush.site import BATCH, WEB
from phoenix.rush.stages import Stage, mechanism, starts, totals

BUSY: Final = 0.95  # of a second of the machine: the CPUs were the limit then
BUSY_PART_MAX: Final = 0.05  # of the run: a machine that is full for longer says nothing of the cloud, …
# … unless those who matter had their CPU all the same, as they were given more weight than others
WAITED_MAX: Final = 0.02
BLIP_S: Final = 3.0  # two or three signals: no rule could know before, and none should follow


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Rule 2, and the instance-seconds themselves."""

    ideal: float
    served: float
    over: float
    short: float
    overload: float


class Rises(msgspec.Struct, frozen=True, kw_only=True):
    """From a rise of the load to the capacity for it, seconds (rule 3)."""

    met: int
    missed: int
    p50: float | None
    max: float | None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One variant."""

    variant: Variant
    load: Results
    capacity: Capacity
    most: int  # instances in service
    mean: float
    rises: Rises
    hosts_to_web: int
    hosts_to_batch: int
    instances_started: int
    stages: tuple[Stage, ...]
    chain_p50_s: float | None  # from signal to service, all stages
    chain_max_s: float | None
    batch: Batch
    machine_busy: float  # mean
    machine_busy_s: int  # seconds in which it was full
    cpu_s: dict[str, float]
    waited: float  # share of the time in which the load balancer was ready to run and had no CPU
    unseen_s: float = 0.0  # of the load, from its beginning on, of which no events are kept

    @property
    def doubts(self) -> list[str]:
        """Why these figures may not be the cloud's; none if nothing speaks against them."""
        said = list(self.load.generator.bottleneck)
        if self.machine_busy_s > BUSY_PART_MAX * self.load.seconds and self.waited > WAITED_MAX:
            full = f"the machine was full for {self.machine_busy_s} of {self.load.seconds:.0f} s"
            said.append(f"{full}, and the load balancer waited for a CPU {self.waited:.1%} of the time")
        if self.unseen_s > 0.0:
            first = f"the monitor had kept no events of the first {self.unseen_s:.0f} of {self.load.seconds:.0f} s"
            said.append(f"{first}: hosts that changed hands and stages are of the rest")
        return said


def account(recording: Recording) -> Account:
    end = recording.curve.end_s
    serving = levels.serving(recording)
    capacity = _capacity(recording)
    busy = [one.busy for one in recording.machine if recording.began_at < one.at <= recording.ended_at]
    found = starts(recording)
    chains = totals(found)
    return Account(
        variant=recording.variant,
        load=recording.load,
        capacity=capacity,
        most=int(max(value for _, value in serving)),
        mean=round(capacity.served / end, 2),
        rises=_rises(recording),
        hosts_to_web=_granted(recording, WEB),
        hosts_to_batch=_granted(recording, BATCH),
        instances_started=len(found),
        stages=tuple(mechanism(found)),
        chain_p50_s=percentile(chains, 0.5),
        chain_max_s=chains[-1] if chains else None,
        batch=recording.batch,
        machine_busy=round(math.fsum(busy) / len(busy), 3) if busy else 0.0,
        machine_busy_s=sum(1 for share in busy if share > BUSY),
        cpu_s=recording.cpu_s,
        waited=recording.wait_s.get(f"balancer.{WEB}", 1.0) / recording.load.seconds,
        unseen_s=max(0.0, recording.events_since - recording.began_at),
    )


def _capacity(recording: Recording) -> Capacity:
    sums = dict.fromkeys(Capacity.__struct_fields__, 0.0)
    rows = levels.needed(recording), levels.ideal(recording), levels.serving(recording)
    for since, until, (needed, ideal, serving) in levels.merged(*rows, until=recording.curve.end_s):
        span = until - since
        sums["ideal"] += span * ideal
        sums["served"] += span * serving
        sums["over"] += span * max(0.0, serving - ideal)
        sums["short"] += span * max(0.0, ideal - serving)
        sums["overload"] += span * max(0.0, needed - serving)
    return Capacity(**{name: round(value, 1) for name, value in sums.items()})


def _rises(recording: Recording) -> Rises:
    waiting: dict[int, float] = {}  # number of instances -> since when as many were needed
    delays, missed = [], 0
    rows = levels.ideal(recording), levels.serving(recording)
    for since, _, (ideal, serving) in levels.merged(*rows, until=recording.curve.end_s):
        delays += [since - waiting.pop(number) for number in list(waiting) if number <= serving]
        for number in [one for one in waiting if one > ideal]:
            missed += since - waiting.pop(number) > BLIP_S
        for number in range(int(serving) + 1, int(ideal) + 1):
            waiting.setdefault(number, since)
    delays.sort()
    return Rises(
        met=len(delays),
        missed=missed + len(waiting),
        p50=percentile(delays, 0.5),
        max=delays[-1] if delays else None,
    )


def _granted(recording: Recording, department: str) -> int:
    return sum(
        1
        for one in recording.events
        if one["kind"] == "host.granted"
        and one["fact"]["dept"] == department
        and recording.began_at <= one["at"] < recording.ended_at
    )
