"""Whatever the door lets in, its facts have the form that the journal demands: one malformed fact would make its whole envelope
garbage for every reader (PROTOCOL S10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import requests as r
from schemas.envelope import Envelope, decode, encode
from schemas.facts import Fact
from services.admission.commands import compose
from services.admission.guests.guests import BeganBody, ReportBody
from services.domain.refusal import Refused
from tests.support.admission import ANN, ROOT, WIM, fold

WORLD = fold()


def journaled(*facts: Fact) -> tuple[Any, ...]:
    envelope = Envelope(id="x", writer="admission", epoch=1, at=1.0, facts=facts)
    return decode(encode(envelope), "admission").facts


texts = st.text(max_size=20)
numbers = st.integers(-2, 2**70) | st.floats()
submissions = st.fixed_dictionaries(
    {"script": st.just("x") | texts},
    optional={
        "request": texts,
        "name": texts,
        "argv": st.lists(texts, max_size=3),
        "environment": st.dictionaries(texts, texts, max_size=3),
        "tasks": st.integers(0, 20) | numbers,
        "nodes": st.integers(0, 4) | st.none() | numbers,
        "cpus_per_task": st.integers(0, 9) | numbers,
        "memory_mb": st.integers(0, 40_000) | numbers,
        "walltime_s": numbers | st.floats(0, 8000),
        "priority": numbers,
        "retries": numbers,
        "array": st.sampled_from(["1-5", "0", "999999999", "1,2%3"]) | texts,
        "after": st.sampled_from(["afterok:1", "after:1:1"]) | texts,
        "held": st.booleans(),
        "on_reclaim": st.sampled_from(["kill", "requeue", "suspend", "migrate", "burn"]),
        "grace_s": st.sampled_from([None, 0, 30.0, 3600.5, -1, "30s"]),
        "on_term": st.sampled_from(["stop", "complete", "burn"]),
    },
)


@settings(max_examples=400, deadline=None)
@given(asked=submissions)
def test_submissions(asked: dict[str, Any]) -> None:
    try:
        data = msgspec.msgpack.encode(asked)
    except OverflowError:  # beyond what the format can say
        return
    try:
        request = r.decode("job.submit", data, as_json=False)
        fact = compose.submit(WORLD.core, ANN, "hpc", request, "job/x", "d", ())
    except (r.Malformed, Refused):
        return
    assert journaled(fact) == (fact,)


@settings(max_examples=200, deadline=None)
@given(
    told=st.dictionaries(
        st.sampled_from(["exit", "signal", "seconds", "cpu_seconds", "max_rss_mb", "note", "stay"]), numbers | texts
    )
)
def test_reports(told: dict[str, Any]) -> None:
    try:
        body = msgspec.json.decode(msgspec.json.encode({"exit": 0, **told}), type=ReportBody)
    except (msgspec.DecodeError, OverflowError):
        return
    known = {name: value for name, value in msgspec.structs.asdict(body).items() if name != "stay"}  # no fact: a wish
    fact = f.AttemptReported(unit="1", attempt=1, **known)
    assert journaled(fact) == (fact,)


def test_a_number_that_is_none_is_no_report() -> None:
    for value in (b"1e999", b"NaN", b"-1e999"):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(b'{"exit":0,"seconds":' + value + b"}", type=ReportBody)


def test_the_other_facts() -> None:
    job = WORLD.submit(array="1-2")
    facts: list[Fact] = []
    for names in ([job, f"{job}_1"], [f"{job}_1"]):
        plan = compose.change_jobs(WORLD.core, ANN, "cancel", names)
        facts += compose.change_facts(WORLD.core, ANN, "cancel", plan)
    facts += compose.change_host(WORLD.core, ROOT, "cordon", r.HostNamed(host="h1"), 0.0)
    facts.append(compose.scale(WORLD.core, WIM, "web", r.ScaleSet(exact=1, for_s=r.WALLTIME_MAX_S), "d", 2e9))
    address = msgspec.json.decode(b'{"address":"127.0.0.1:1"}', type=BeganBody).address
    facts.append(f.AttemptBegan(unit="web.1", attempt=1, addresses=(address,)))
    facts.append(f.DepartmentClosed(dept="bio"))
    assert journaled(*facts) == tuple(facts)
