"""Reasons and facts as other versions wrote them (`schemas.upgrade`, `schemas.reasons.reading`)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.envelope import VERSION, Envelope, Garbage, decode, encode
from schemas.reasons import AnyReason
from schemas.reasons.reading import read
from schemas.times import TimeText, exact, nearest
from services.domain.text import sentence

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
HPC = "scheduler.hpc"


def sent(fact: dict[str, Any], v: int, writer: str = HPC) -> bytes:
    return msgspec.msgpack.encode({"v": v, "id": "i", "writer": writer, "epoch": 1, "at": 1.0, "facts": [fact]})


def closed(why: object) -> dict[str, Any]:
    return {"kind": "attempt.closed", "unit": "1", "attempt": 1, "disposal": "requeue", "why": why}


@pytest.mark.parametrize(
    ("code", "params", "reason"),
    [
        ("reclaimed", {"hosts": 2, "victims": "fewest"}, because.Reclaimed(hosts=2, victims="fewest")),
        ("first_fit", {}, because.FirstFit()),
        ("made_way", {"job": "7"}, because.Preempted(job="7")),
        ("made_way", {"for": "7"}, because.Preempted(job="7")),
        ("elected", {"service": "a", "share_pct": 50}, because.ShareTurn(service="a", share_pct=50.0)),
        ("spared", {"guarded": 1, "hour_spent": 1}, because.Protected(guarded=1, hour_spent=True)),
        ("vm_ended", {"vm": "no boot disk", "began": 0}, because.EndedVm(vm="no boot disk", began=False)),
        (
            "web_demand",
            {"department": "a, b", "held": 2},
            because.WebDemand(department="a, b", departments=["a", "b"], held=2),
        ),
        ("waits_behind", {"behind": "3"}, because.WaitsBehind(job="3")),
        ("by_policy", {"policy": "mine", "width": 3}, because.ByPolicy(policy="mine", details={"width": 3})),
        ("cancelled", {"unit": "1"}, because.Cancelled()),  # a parameter that nobody reads any more
        ("moon_phase", {"phase": 0.25}, because.Newer(named="moon_phase", details={"phase": 0.25})),
        ("reclaimed", {"hosts": ["h1"]}, because.Newer(named="reclaimed", details={"hosts": ["h1"]})),
    ],
)
def test_a_code_with_parameters_is_the_reason_with_these_fields(
    code: str, params: dict[str, Any], reason: AnyReason
) -> None:
    told = {"code": code, "params": params} if params else {"code": code}
    assert read(told) == reason
    found = decode(sent(closed(told), v=1), HPC)
    assert isinstance(found, Envelope)
    assert found.facts == (f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.REQUEUE, why=reason),)
    assert read(msgspec.to_builtins(reason)) == reason


OF_SECONDS: dict[str, tuple[dict[str, Any], AnyReason]] = {
    "lease_starts": ({"ends_at": 160.5, "late_s": 1.0}, because.LeaseStarts(ends_at=exact(160.5), late_s=1.0)),
    "lease_starts_at": (
        {"starts_at": 100.0, "ends_at": 150},
        because.LeaseStartsAt(starts_at=exact(100.0), ends_at=exact(150.0)),
    ),
    "lease_late": ({"late_s": 3.0, "ends_at": 150.0}, because.LeaseLate(late_s=3.0, ends_at=exact(150.0))),
    "lease_over": (
        {"starts_at": 1e18, "ends_at": -1.0},
        because.LeaseOver(starts_at=nearest(1e18), ends_at=exact(0.0)),
    ),
    "lease_keeps_room": (
        {"job": "7", "gap_s": 5.0, "starts_at": 100.0},
        because.LeaseKeepsRoom(job="7", gap_s=5.0, starts_at=exact(100.0)),
    ),
    "starting": (
        {"paused_since": 100.0, "paused_why": "no disk"},
        because.Starting(paused_since=exact(100.0), paused_why="no disk"),
    ),
    "finished": ({"unit": "1", "ended_at": 100.0}, because.Finished(unit="1", ended_at=exact(100.0))),
}


@pytest.mark.parametrize("code", OF_SECONDS)
@pytest.mark.parametrize("v", [1, VERSION])
def test_times_in_reasons_were_seconds(code: str, v: int) -> None:
    given, reason = OF_SECONDS[code]
    told = {"code": code, "params": given} if v < VERSION else {"code": code, **given}
    placed = {
        "kind": "unit.placed",
        "unit": "1",
        "attempt": 1,
        "hosts": ["h1"],
        "cores": 1,
        "memory_mb": 0,
        "reason": told,
    }
    (fact,) = decode(sent(placed, v), HPC).facts
    assert fact == f.UnitPlaced(unit="1", attempt=1, hosts=("h1",), cores=1, memory_mb=0, reason=reason)
    assert sentence(told) == sentence(reason)
    again = encode(Envelope(id="i", writer=HPC, epoch=1, at=1.0, facts=(fact,)))
    assert decode(again, HPC).facts == (fact,), "what is written now is read as it is"


def test_every_reason_with_a_time_is_among_them() -> None:
    def has_a_time(kind: type[AnyReason]) -> bool:
        return any(field.type == TimeText | None for field in msgspec.structs.fields(kind))

    assert {because.tag(kind) for kind in because.REASONS if has_a_time(kind)} == set(OF_SECONDS)


def test_a_newer_versions_reason_is_shown_by_its_code_and_what_it_says_and_its_fact_counts() -> None:
    newer = closed({"code": "moon_phase", "phase": 0.25})
    (fact,) = decode(sent(newer, v=VERSION), HPC).facts
    assert isinstance(fact, f.AttemptClosed)
    assert sentence(fact.why) == sentence(newer["why"]) == "moon phase (phase 0.25)"
    (again,) = decode(encode(Envelope(id="i", writer=HPC, epoch=1, at=1.0, facts=(fact,))), HPC).facts
    assert again == fact


def test_fields_that_a_newer_version_has_added_are_passed_over() -> None:
    (fact,) = decode(sent(closed({"code": "walltime", "walltime_s": 9.0, "of": "day"}), v=VERSION + 1), HPC).facts
    assert isinstance(fact, f.AttemptClosed)
    assert fact.why == because.Walltime(walltime_s=9.0)


@pytest.mark.parametrize("why", [None, "walltime", 3])
def test_what_is_no_reason_makes_no_fact(why: object) -> None:
    for v in (1, VERSION):
        with pytest.raises(Garbage):
            decode(sent(closed(why), v), HPC)


def test_recorded_journals_have_reasons_of_this_versions_types() -> None:
    seen: dict[str, None] = {}
    for path in sorted(FIXTURES.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            try:
                found = decode(base64.b64decode(message["data"]), message["writer"])
            except Garbage:
                continue
            for fact in found.facts:
                reason = getattr(fact, "why", None) or getattr(fact, "reason", None)
                if isinstance(reason, AnyReason):
                    assert not isinstance(reason, because.Newer), sentence(reason)
                    seen[reason.code] = None
    assert len(seen) > 20, "they tell of many"
