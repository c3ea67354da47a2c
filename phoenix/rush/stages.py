"""From signal to service, stage by stage: what each new instance waited for, by the journal's own times.

    told ─▶ observed ─▶ decided ─▶ released ─▶ cleared ─▶ granted ─▶ placed ─▶ allocated ─▶ started ─▶ began ─▶ in service
    newest  the load    the rule   batch has   its VM     to web     the       VM in        VM runs    the      the balancer
    signal  is a fact              let go      is gone               instance  OpenNebula              guest    sends to it

Rules
  1. An instance's chain is found backwards from its `unit.placed`: the last grant of its host, before that the last clearing
     and release of that host, before that the last `demand.changed` that asked for more, before that the last `load.observed`.
  2. Only instances that were started because the department wanted more, on a host that had to come from batch, have a whole
     chain; others are not in the figures (`whole`).
  3. Times are those of the writers' clocks when they wrote: one machine, one clock.  A stage that seems to take less than
     nothing (two writers, one millisecond) counts as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from phoenix.load.results import percentile
from phoenix.rush.recording import Recording, Seen
from phoenix.rush.site import WEB

LOOK_S: Final = 0.05  # the load balancer may be looked at in the moment in which the guest's word is journaled
MARKS: Final = (
    "told", "observed", "decided", "released", "cleared", "granted", "placed", "allocated", "started", "began", "serving",
)  # fmt: skip
MEANINGS: Final = {
    "observed": "signal waits to be observed",
    "decided": "the rule decides",
    "released": "quota; batch gives the host",
    "cleared": "the job's VM ends",
    "granted": "granted to web",
    "placed": "instance placed",
    "allocated": "VM allocated",
    "started": "VM started",
    "began": "guest and program up",
    "serving": "healthy, in the balancer",
}


class Start(msgspec.Struct, frozen=True):
    """One instance that was started, and when it reached each mark (UTC seconds; missing: never, or not this way)."""

    unit: str
    at: dict[str, float]

    @property
    def whole(self) -> bool:
        return all(mark in self.at for mark in MARKS)


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Up to a mark from the one before it, over all whole chains."""

    mark: str
    meaning: str
    p50_s: float
    max_s: float
    mean_s: float
    share: float  # of the mean chain
    chains: int


def starts(recording: Recording) -> list[Start]:
    """Every instance that was placed while the load was played."""
    story = _Story(recording.events)
    placed = [
        one
        for one in story.of("unit.placed")
        if one["fact"]["unit"].startswith(f"{WEB}.") and recording.began_at <= one["at"] < recording.ended_at
    ]
    return [_start(story, one, recording.seen) for one in placed]


class _Story:
    """Events by kind, in the journal's order."""

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        self._kinds: dict[str, list[dict[str, Any]]] = {}
        for one in events:
            self._kinds.setdefault(one["kind"], []).append(one)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return self._kinds.get(kind, [])

    def last(self, kind: str, before: dict[str, Any], **fields: object) -> dict[str, Any] | None:
        """The last event of a kind, with these values, that is before another one."""
        limit = _place(before)
        return next((one for one in reversed(self.of(kind)) if _place(one) < limit and _has(one, fields)), None)

    def first(self, kind: str, after: dict[str, Any], **fields: object) -> dict[str, Any] | None:
        limit = _place(after)
        return next((one for one in self.of(kind) if _place(one) > limit and _has(one, fields)), None)


def _place(event: dict[str, Any]) -> tuple[int, int]:
    return event["position"], event["index"]


def _has(event: dict[str, Any], fields: dict[str, object]) -> bool:
    return all(event["fact"].get(name) == value for name, value in fields.items())


def _start(story: _Story, placed: dict[str, Any], seen: Sequence[Seen]) -> Start:
    """Rule 1."""
    fact = placed["fact"]
    unit, attempt, host = fact["unit"], fact["attempt"], fact["hosts"][0]
    at = {"placed": placed["at"]}
    own = {"allocated": "vm.allocated", "started": "vm.started", "began": "attempt.began"}
    for mark, kind in own.items():
        if found := story.first(kind, placed, unit=unit, attempt=attempt):
            at[mark] = found["at"]
            if mark == "began" and (first := _first(seen, found["at"], found["fact"]["addresses"][0])) is not None:
                at["serving"] = first
    at.update(_claim(story, placed, host))
    return Start(unit, at)


def _claim(story: _Story, placed: dict[str, Any], host: str) -> dict[str, float]:
    """How its host came; nothing if it was there already."""
    granted = story.last("host.granted", placed, host=host, dept=WEB)
    decided = story.last("demand.changed", granted, dept=WEB) if granted else None
    observed = story.last("load.observed", decided, dept=WEB) if decided else None
    cleared = story.last("host.cleared", granted, host=host) if granted else None
    released = story.last("host.released", cleared, host=host) if cleared else None
    if granted is None or decided is None or observed is None or cleared is None or released is None:
        return {}
    before = story.last("demand.changed", decided, dept=WEB)
    if _place(released) < _place(decided) or (before and before["fact"]["instances"] >= decided["fact"]["instances"]):
        return {}
    times = {"released": released["at"], "cleared": cleared["at"], "granted": granted["at"]}
    told = float(observed["fact"].get("end") or observed["at"])
    return {"told": told, "observed": observed["at"], "decided": decided["at"], **times}


def _first(seen: Sequence[Seen], since: float, address: str) -> float | None:
    """When the load balancer first sent to an address, from a moment on: addresses are used again, but not by two at once."""
    return next((max(since, one.at) for one in seen if one.at >= since - LOOK_S and address in one.addresses), None)


def mechanism(found: Sequence[Start]) -> list[Stage]:
    """Each stage over the whole chains; none if there is none."""
    chains = [one.at for one in found if one.whole]
    if not chains:
        return []
    spans = {mark: _spans(chains, before, mark) for before, mark in pairwise(MARKS)}
    total = math.fsum(math.fsum(values) for values in spans.values()) / len(chains)
    return [
        Stage(
            mark=mark,
            meaning=MEANINGS[mark],
            p50_s=percentile(values, 0.5) or 0.0,
            max_s=values[-1],
            mean_s=math.fsum(values) / len(chains),
            share=math.fsum(values) / len(chains) / total if total else 0.0,
            chains=len(chains),
        )
        for mark, values in spans.items()
    ]


def _spans(chains: Sequence[dict[str, float]], before: str, mark: str) -> list[float]:
    return sorted(max(0.0, at[mark] - at[before]) for at in chains)


def totals(found: Iterable[Start]) -> list[float]:
    """Seconds from the signal to service, of the whole chains, rising."""
    return sorted(one.at["serving"] - one.at["told"] for one in found if one.whole)
