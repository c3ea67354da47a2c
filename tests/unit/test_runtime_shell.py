"""The shell's pure parts: clocks, logs, drafts, void streaks, reply subjects, snapshots, the fold, arguments."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec
import pytest

from schemas import reasons as because
from schemas.envelope import BYTES_MAX, FACTS_MAX, Envelope, decode, encode, fact_size
from schemas.facts import AttemptClosed, Disposal, Fact, HostGranted, HostReleased, LoadObserved, QuotaChanged
from services.domain.custody.meta import Meta, Void
from services.domain.custody.rules import Incompatible
from services.domain.exits import Exit, Stop
from services.domain.refusal import Refused
from services.runtime import log, main
from services.runtime.clock import decision_time, skew_s
from services.runtime.drafts import CAUSE_MAX, MEMORY, VOIDS_MAX, Draft, VoidStreaks, identity
from services.runtime.journal.fold import Fold, Stored
from services.runtime.journal.reader import numbers
from services.runtime.journal.snapshots import pack, restore, take, unpack
from services.runtime.proposals import Outcome, Proposal
from tests.support.toy import ToyCore, job

LOAD = LoadObserved(dept="web", start=0, end=1, utilisation=0.5, samples=3)


# ----------------------------------------------------------------------------------------------------------------- clock


@pytest.mark.parametrize(("own", "fold", "now"), [(10.0, 5.0, 10.0), (5.0, 10.0, 10.0)])
def test_a_decision_is_never_older_than_the_fold(own: float, fold: float, now: float) -> None:
    assert decision_time(own, fold) == now


@pytest.mark.parametrize(
    ("sent", "known", "stored", "skew"),
    [(10.0, 11.0, 10.5, 0.0), (10.0, 10.0, 10.0, 0.0), (10.0, 11.0, 9.0, -1.0), (10.0, 11.0, 13.0, 2.0)],
)
def test_skew_is_the_distance_from_the_interval(sent: float, known: float, stored: float, skew: float) -> None:
    assert skew_s(sent, known, stored) == skew


# ------------------------------------------------------------------------------------------------------------------- log


def test_a_bound_log_carries_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="phoenix"):
        log.get_log(service="executor").bind(vm=7).info("deployed", host="n1")
    assert caplog.messages == ["deployed service=executor vm=7 host=n1"]


# ---------------------------------------------------------------------------------------------------------------- drafts


def proposal(*facts: Fact, cause: str = "") -> Proposal:
    return Proposal(lambda _now, _drafted: list(facts), cause, asyncio.get_running_loop().create_future())


async def test_decided_facts_beyond_the_limit_are_left_for_the_next_round() -> None:
    draft = Draft()
    draft.add_decided([LOAD] * (FACTS_MAX + 1))
    assert len(draft.facts) == FACTS_MAX
    assert draft.crowded


async def test_an_envelope_stays_below_its_bytes() -> None:
    draft = Draft()
    big = job(1, payload="x" * 100_000)
    draft.add_decided([big] * 20)
    parcel = draft.seal(id="i-1", writer="admission", epoch=1, at=1.0, position=0)
    assert len(draft.facts) == BYTES_MAX // fact_size(big)
    assert len(parcel.data) < 1 << 20


async def test_a_decided_fact_that_can_never_fit_is_a_defect() -> None:
    with pytest.raises(Stop, match=r"job\.submitted of 900\d\d\d bytes"):
        Draft().add_decided([job(1, payload="x" * BYTES_MAX)])


async def test_a_proposal_that_does_not_fit_waits_and_keeps_its_place() -> None:
    first, second = proposal(*[LOAD] * FACTS_MAX), proposal(LOAD)
    waiting = deque([first, second])
    draft = Draft()
    draft.add_proposals(waiting, 0.0, 0)
    assert list(waiting) == [second]
    assert not second.answer.done()


async def test_a_proposal_that_can_never_fit_is_refused_and_does_not_block() -> None:
    huge, next_ = proposal(*[LOAD] * (FACTS_MAX + 1)), proposal(LOAD)
    draft = Draft()
    draft.add_proposals(deque([huge, next_]), 0.0, 0)
    error = huge.answer.exception()
    assert isinstance(error, Refused)
    assert error.code == "limit"
    assert draft.facts == [LOAD]


async def test_a_caller_that_gave_up_is_not_composed() -> None:
    gone = proposal(LOAD)
    gone.answer.cancel()
    draft = Draft()
    draft.add_proposals(deque([gone]), 0.0, 0)
    assert draft.facts == []


async def test_each_proposal_gets_its_own_facts_back() -> None:
    first, second, empty = proposal(job(1)), proposal(job(2), job(3)), proposal()
    draft = Draft()
    draft.add_proposals(deque([first, second, empty]), 0.0, 0)
    seen = [(fact, Meta(position=9, index=i, writer="admission", at=1.0)) for i, fact in enumerate(draft.facts)]
    draft.came_back(seen, 9)
    jobs = [[fact.job for fact, _ in p.answer.result().facts] for p in (first, second, empty)]
    assert jobs == [["1"], ["2", "3"], []]


async def test_empty_proposals_alone_make_no_envelope() -> None:
    empty = proposal()
    draft = Draft()
    draft.add_proposals(deque([empty]), 0.0, 41)
    assert empty.answer.result() == Outcome([], 41)
    assert draft.facts == []


async def test_causes_are_joined_without_repetition_and_bounded() -> None:
    draft = Draft()
    many = [proposal(LOAD, cause=f"r{n // 2}") for n in range(400)]
    draft.add_proposals(deque(many), 0.0, 0)
    parcel = draft.seal(id="i", writer="scheduler.web", epoch=1, at=1.0, position=7)
    cause = decode(parcel.data, "scheduler.web").cause
    assert cause.startswith("r0 r1 r2 ")
    assert len(cause) <= CAUSE_MAX


async def test_what_no_request_led_to_names_the_position() -> None:
    draft = Draft()
    draft.add_decided([LOAD])
    parcel = draft.seal(id="i", writer="scheduler.web", epoch=1, at=1.0, position=7)
    assert decode(parcel.data, "scheduler.web").cause == "7"


# ----------------------------------------------------------------------------------------------------------------- voids


def came(fact: Fact, void: Void | None) -> list[tuple[Fact, Meta]]:
    return [(fact, Meta(position=1, index=0, writer="w", at=0.0, void=void))]


GRANT = HostGranted(host="h1", dept="web")


def test_void_again_and_again_stops() -> None:
    streaks = VoidStreaks()
    for _ in range(VOIDS_MAX - 1):
        streaks.note(came(GRANT, Void.HOST_NOT_FREE))
    with pytest.raises(Stop, match="5 times in a row") as stop:
        streaks.note(came(GRANT, Void.HOST_NOT_FREE))
    assert stop.value.code == Exit.STUCK


def test_a_valid_one_in_between_starts_the_count_anew() -> None:
    streaks = VoidStreaks()
    for _ in range(3):
        for _ in range(VOIDS_MAX - 1):
            streaks.note(came(GRANT, Void.HOST_NOT_FREE))
        streaks.note(came(GRANT, None))


def test_different_facts_are_counted_apart() -> None:
    streaks = VoidStreaks()
    for number in range(10 * VOIDS_MAX):
        streaks.note(came(HostGranted(host=f"h{number}", dept="web"), Void.HOST_NOT_FREE))


def test_old_voids_are_forgotten() -> None:
    streaks = VoidStreaks()
    for _ in range(2 * VOIDS_MAX):
        streaks.note(came(GRANT, Void.HOST_NOT_FREE))
        for _ in range(2 * MEMORY):
            streaks.note(came(LOAD, None))


def test_the_same_fact_is_the_same_whatever_its_reasons_and_times() -> None:
    why = because.Reclaimed(hosts=1)
    one = AttemptClosed(unit="7", attempt=1, disposal=Disposal.KILL, why=why)
    assert identity(one) == identity(msgspec.structs.replace(one, why=because.Walltime()))
    assert identity(one) != identity(msgspec.structs.replace(one, attempt=2))
    assert identity(QuotaChanged(dept="a", hosts=1, by=1.0)) == identity(QuotaChanged(dept="a", hosts=1, by=9.0))
    assert identity(HostReleased(host="h")) != identity(GRANT)


# ---------------------------------------------------------------------------------------------------------------- reader


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.PHOENIX.yJdllf6m.1.42.7.1795259482339173747.5",
        "$JS.ACK._.ACCHASH.PHOENIX.yJdllf6m.1.42.7.1795259482339173747.5.tOk3n",
        "$JS.ACK.hub.ACCHASH.PHOENIX.yJdllf6m.1.42.7.1795259482339173747.5",
    ],
)
def test_both_forms_of_a_delivered_messages_numbers_are_read(reply: str) -> None:
    position, delivered, stored_at, pending = numbers(reply)
    assert (position, delivered, pending) == (42, 7, 5)
    assert stored_at == pytest.approx(1795259482.339, abs=0.001)


# ------------------------------------------------------------------------------------------------------------------ fold


def stored(position: int, *facts: Fact, writer: str = "admission", data: bytes | None = None) -> Stored:
    envelope = Envelope(id=f"i-{position}", writer=writer, epoch=1, at=float(position), cause="c", facts=facts)
    return Stored(position, f"phoenix.journal.{writer}", encode(envelope) if data is None else data, float(position))


def test_the_fold_tells_custody_first_then_the_core_then_the_listener() -> None:
    fold = Fold("admission", ToyCore)
    told: list[tuple[int, str | None]] = []
    fold.listener = lambda _fact, meta: told.append((meta.index, meta.void))
    envelope, seen = fold.feed(stored(1, job(1), job(1)))
    assert envelope is not None
    assert told == [(0, None), (1, Void.JOB_KNOWN)]
    assert [meta.void for _, meta in seen] == [None, Void.JOB_KNOWN]
    assert fold.core.state.count == 2
    assert (fold.position, fold.own_last) == (1, 1)


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01\x02", encode(Envelope(id="x", writer="executor", epoch=1, at=0.0, facts=()))]
)
def test_garbage_changes_nothing_but_counts_for_its_subject(data: bytes) -> None:
    fold = Fold("admission", ToyCore)
    fold.feed(stored(1, job(1)))
    before = (fold.custody.dump(), fold.core.dump())
    assert fold.feed(stored(2, data=data)) == (None, [])
    assert (fold.custody.dump(), fold.core.dump()) == before
    assert (fold.garbage, fold.position, fold.own_last) == (1, 2, 2)


def test_another_writers_message_does_not_move_the_own_sequence() -> None:
    fold = Fold("admission", ToyCore)
    fold.feed(stored(1, job(1)))
    fold.feed(stored(2, LOAD, writer="scheduler.web"))
    assert (fold.position, fold.own_last) == (2, 1)


def test_an_unknown_custody_kind_leaves_the_fold() -> None:
    data = msgspec.msgpack.encode(
        {"v": 1, "id": "f", "writer": "executor", "epoch": 1, "at": 1.0, "facts": [{"kind": "new.thing"}]}
    )
    with pytest.raises(Incompatible):
        Fold("admission", ToyCore).feed(Stored(1, "phoenix.journal.executor", data, 1.0))


def test_a_snapshot_and_its_tail_equal_a_full_fold() -> None:
    messages = [stored(n, job(n)) for n in range(1, 40)]
    whole, first = Fold("admission", ToyCore), Fold("admission", ToyCore)
    for message in messages:
        whole.feed(message)
    for message in messages[:17]:
        first.feed(message)
    second = Fold("admission", ToyCore)
    restore(unpack(pack(take("admission", "j", first))), second)
    for message in messages[17:]:
        second.feed(message)
    assert (second.custody.dump(), second.core.dump()) == (whole.custody.dump(), whole.core.dump())
    assert second.own_last == whole.own_last


@pytest.mark.parametrize("where", [0, 31, 32, 60, -1])
def test_a_snapshot_with_one_wrong_bit_is_not_unpacked(where: int) -> None:
    data = bytearray(pack(take("admission", "j", Fold("admission", ToyCore))))
    data[where] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        unpack(bytes(data))


# ------------------------------------------------------------------------------------------------------------- arguments


def test_arguments_are_read() -> None:
    argv = ["--config", "p.toml", "--department", "hpc", "--instance", "i2", "--reaped", "i0,i1"]
    options = main.parse("scheduler", argv, department=True)
    assert (options.department, options.instance, options.reaped) == ("hpc", "i2", ("i0", "i1"))


@pytest.mark.parametrize(
    "argv",
    [[], ["--config", "p", "--instance", "a b"], ["--config", "p", "--reaped", "ok,../x"], ["--config", "p", "--no"]],
)
def test_wrong_arguments_end_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.parse("admission", argv)
    assert end.value.code == Exit.USAGE
    assert "usage:" in capsys.readouterr().err
