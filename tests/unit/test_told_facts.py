"""Every fact is one plain sentence with its reason: the page, `phoenix story` and `phoenix events --sentences` read alike."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.envelope import UnknownFact
from schemas.examples import AT, FACTS, event
from services.domain.text.facts import told


def _told(fact: f.Fact, department: str = "") -> str:
    return told(f.kind_of(fact), msgspec.to_builtins(fact), department)


def test_every_kind_has_an_example() -> None:
    assert {type(fact) for fact in FACTS} == set(f.FACTS)


@pytest.mark.parametrize("fact", FACTS, ids=f.kind_of)
def test_every_kind_has_a_sentence(fact: f.Fact) -> None:
    told_ = _told(fact, event(fact).department)
    assert "?" not in told_
    assert "_" not in told_, "a code or a field's name is no word"
    assert "{" not in told_
    assert "None" not in told_
    assert not told_.startswith(f.kind_of(fact)), "it is told by its fields alone"
    assert not told_.endswith((".", " ", ":"))


def test_a_spike_reads_as_a_story() -> None:
    web = because.WebDemand(department="web", demand=3, held=2)
    why = because.Reclaimed(hosts=2, running_s=7.0, victims="widest-last")
    for fact, expected in (
        (
            f.QuotaChanged(dept="hpc", hosts=13, by=AT, reason=web),
            "hpc may keep 13 hosts: web wants 3 hosts and held 2",
        ),
        (
            f.AttemptClosed(unit="17", attempt=2, disposal=f.Disposal.REQUEUE, why=why),
            "job 17 (attempt 2) is queued again: the department had to return 2 hosts, and its order of victims "
            "(widest-last) chose this job; it had run for 7s",
        ),
        (
            f.HostReleased(host="host003", reason=because.Notice(department="hpc", quota=13, held=15)),
            "hpc releases host003: hpc held 15 and may keep 13",
        ),
        (f.HostCleared(host="host003"), "host003 is empty: no VM of the cloud is left on it"),
        (
            f.HostGranted(host="host003", dept="web", reason=web),
            "host003 is granted to web: web wants 3 hosts and held 2",
        ),
        (
            f.UnitPlaced(unit="web.3", attempt=1, hosts=("host003",), cores=1, memory_mb=256, release=2),
            "instance web.3 is placed on host003 with release 2",
        ),
        (f.AttemptReported(unit="17", attempt=3, exit=0, seconds=75.0), "job 17 (attempt 3) has completed after 1m15s"),
    ):
        assert _told(fact, "hpc") == expected


def test_a_cancelled_job_says_so_once() -> None:
    closed = f.AttemptClosed(unit="3_4", attempt=1, disposal=f.Disposal.CANCELLED, why=because.Cancelled())
    assert _told(closed) == "job 3_4 is cancelled"
    drained = msgspec.structs.replace(closed, why=because.HostDrained(host="h1"))
    assert _told(drained).startswith("job 3_4 is cancelled: "), "for another reason"
    requeued = msgspec.structs.replace(closed, disposal=f.Disposal.REQUEUE)
    assert _told(requeued) == "job 3_4 is queued again: it was cancelled"


def test_a_cordon_says_what_becomes_of_what_runs_there() -> None:
    cordoned = f.HostCordoned(host="h1", reason="fan", user="oscar")
    assert _told(cordoned) == "oscar cordoned h1: running work stays, nothing more is placed there (fan)"
    drained = msgspec.structs.replace(cordoned, drain=True)
    assert _told(drained) == "oscar drains h1: jobs run to their end, instances are replaced elsewhere (fan)"
    by = msgspec.structs.replace(drained, until=AT)
    assert _told(by).startswith("oscar drains h1: what still runs there at ")


def test_reasons_of_a_quota_read_well_of_one_host_and_of_many() -> None:
    for reason, expected in (
        (
            because.IdleToBatch(department="hpc", held=1),
            "no department with precedence wants more, so hpc gets what is idle",
        ),
        (because.Cordoned(hosts=["h1"]), "h1 is cordoned"),
        (because.Cordoned(hosts=["h1", "h2"]), "h1, h2 are cordoned"),
        (because.Cordoned(hosts=[f"h{n}" for n in range(100)]), "100 hosts are cordoned"),
    ):
        assert _told(f.QuotaChanged(dept="hpc", hosts=14, by=AT, reason=reason)) == f"hpc may keep 14 hosts: {expected}"


def test_a_release_of_a_host_that_nobody_is_known_to_have_held() -> None:
    assert _told(f.HostReleased(host="host003")) == "host003 is released"


@pytest.mark.parametrize("fact", FACTS, ids=f.kind_of)
def test_fields_that_are_missing_or_nonsense_never_raise(fact: f.Fact) -> None:
    kind, fields = f.kind_of(fact), msgspec.to_builtins(fact)
    assert told(kind, {})
    for name in fields:
        assert told(kind, {key: value for key, value in fields.items() if key != name})
        for nonsense in ("x", 7, None, [1], {"a": 1}):
            assert told(kind, {**fields, name: nonsense})


def test_a_kind_of_a_newer_version_is_told_by_its_fields() -> None:
    fields: dict[str, Any] = {"kind": "host.painted", "host": "host003", "colours": ["red", "blue"], "coats": 2}
    assert told("host.painted", fields) == "host.painted: host host003, colours red, blue, coats 2"
    assert told(UnknownFact(kind="host.painted").kind, {}) == "host.painted"
