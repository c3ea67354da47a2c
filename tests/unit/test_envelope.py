"""What of an envelope is refused: another's, one of no version, and one of no time."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.envelope import VERSION, Envelope, Garbage, Mixed, UnknownFact, decode, encode, fact_size

FACT = f.DemandChanged(dept="hpc", hosts=1)
HPC = "scheduler.hpc"


def sent(**changed: object) -> bytes:
    given = {"id": "i", "writer": HPC, "epoch": 1, "at": 5.0, "facts": (FACT,), **changed}
    return encode(Envelope(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"v": 0}, "envelope version 0 is not positive"),
        ({"v": -1}, "envelope version -1 is not positive"),
        ({"writer": "scheduler.bio"}, "envelope of 'scheduler.bio' on the subject of 'scheduler.hpc'"),
        ({"at": 1e12}, "is not a time"),
        ({"at": -1e12}, "is not a time"),
        ({"at": float("nan")}, "is not a time"),
        ({"at": float("inf")}, "is not a time"),
        ({"facts": (FACT, f.JobHeld(job="1", user="a"))}, "may not write JobHeld"),
    ],
)
def test_what_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(Garbage, match=said):
        decode(sent(**changed), HPC)


@pytest.mark.parametrize("at", [1e12 - 1, 1 - 1e12, 0.0])
def test_a_time_that_is_one(at: float) -> None:
    assert decode(sent(at=at, v=2), HPC).at == at


def test_a_kind_that_is_not_known_is_kept_with_what_else_there_is() -> None:
    raw = msgspec.msgpack.decode(sent(cause="why"))
    raw["facts"] = [{"kind": "tea.poured"}, {"kind": "tea.drunk", "custody": False}, *raw["facts"]]
    found = decode(msgspec.msgpack.encode(raw), HPC)
    assert isinstance(found, Mixed)
    assert found.facts == (UnknownFact(kind="tea.poured"), UnknownFact(kind="tea.drunk", custody=False), FACT)
    assert (found.v, found.id, found.writer, found.epoch, found.at, found.cause) == (VERSION, "i", HPC, 1, 5.0, "why")
    with pytest.raises(Garbage, match="on the subject of"):
        decode(msgspec.msgpack.encode(raw), "scheduler.bio")


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x80", b"\x91" * 5000, sent()[:-1], msgspec.msgpack.encode({"kind": 1})]
)
def test_bytes_that_are_no_envelope(data: bytes) -> None:
    with pytest.raises(Garbage, match="not an envelope"):
        decode(data, HPC)


def test_the_size_of_a_fact_is_what_it_adds() -> None:
    assert len(sent(facts=(FACT, FACT))) - len(sent(facts=(FACT,))) == fact_size(FACT)
