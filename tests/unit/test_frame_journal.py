"""Recorded journals stay readable for ever: each folds to what it folded to when it was recorded.

`journal_v*.jsonl` holds the messages byte for byte; `journal_v*.expected.json` what the custody fold made of them: the verdict
on every fact, and where hosts and units ended.  A change that makes this test red changes history: give it a new rules number
(PROTOCOL S8) or a new kind, never new expectations.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas import facts, subjects
from schemas.envelope import Garbage, UnknownFact, decode
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.runtime.journal.fold import Fold, Stored
from tests.fixtures import make_journal
from tests.support.memory import BESIDE, differences
from tests.unit.frame_cores import NAMES, cores
from tests.unit.frame_source import module, sources

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RECORDED = sorted(FIXTURES.glob("journal_v*.jsonl"))
CORES = cores()
OWNERS = {path.partition(".")[0] for path in BESIDE}
DIGESTS = {
    "journal_v11_boots.jsonl": "199956b92fceb8e4e8593616e7d5c7accbc65a85c64333919019fa910d255f72",
    "journal_v10_arrays.jsonl": "26fc8b7278c5049514febc25d3b0849d1d9da123d67182e7361d6a6360e372fd",
    "journal_v9_measured.jsonl": "93d4428a615b494b967f0f128441e060b4f8ba0d22397bc922c95ba193677a77",
    "journal_v8_cordoned.jsonl": "7cf9bc2354d63e78266f5b31a57f1081851c389d001bb6c8a6ce616c9cf01db5",
    "journal_v7_terminated.jsonl": "3bb9370da2bd26823ba29df2e6bc59b60c7b138709d0f79a003aeb0a53698d30",
    "journal_v7_paused.jsonl": "a12110e4186613bc63c7183c39228b96bb654768d87a35027f11e6a47e82b2f6",
    "journal_v6_draining.jsonl": "a14b0ad52e77960e65950f8779bc5566bb34649f1cd7e920bf01bad11ec71784",
    "journal_v5_refused.jsonl": "47959b7bd0e42539a07e5330283e4d7804085aed225c313f8ef2c1a28b302246",
    "journal_v4_observed.jsonl": "15f442bfdfaae39d61a04a1efe91e4129b4ed5fcfc8b84bc3e36b5c949da7093",
    "journal_v3_bound.jsonl": "06f9f159b4b81408f280b315f63f920e6b0b06db54f8c7f020cc631d6fd39f14",
    "journal_v1.jsonl": "a03047dd0eb08d543192118e21e67caaeef08644b4b8509c25405eae1f80ddaa",
    "journal_v2_leases.jsonl": "65322c70aa71d1de98ffbc1586c67f8a8e804fb7e66c9617db3e79e2c19becdb",
    "journal_v1_checkpoints.jsonl": "4cc8fa825257f38f43aa7c940ff52b0d191286e25fe30302519b69039e27820c",
}


def fold(path: Path) -> dict[str, Any]:
    """What the fold makes of a recorded journal, in words that do not depend on how the state is stored."""
    custody, verdicts = Custody(), []
    for line in path.read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        position, writer = message["position"], message["writer"]
        try:
            envelope = decode(base64.b64decode(message["data"]), writer)
        except Garbage:
            verdicts.append([position, "garbage"])
            continue
        for index, fact in enumerate(envelope.facts):
            void = fold_fact(custody, fact, position, index, writer, envelope.at)
            kind = fact.kind if isinstance(fact, UnknownFact) else facts.kind_of(fact)
            verdicts.append([position, kind, void.value if void else "", *custody.newly_broken])
            assert check(custody) == []
    return {"verdicts": verdicts, **picture(custody)}


def picture(custody: Custody) -> dict[str, Any]:
    state = custody.state
    return {
        "at": state.at,
        "hosts": {h.name: [h.state, h.dept, h.cordoned, sorted(h.units)] for h in state.hosts.values()},
        "units": {u.id: [u.state, u.final, u.attempt, u.exit, u.held] for u in state.units.values()},
        "vms": sorted(state.vms),
        "quotas": {d: q.hosts for d, q in state.quotas.items()},
        "demands": state.demands,
        "leaders": {w: [leader.epoch, leader.stopped] for w, leader in state.leaders.items()},
    }


def test_there_is_a_recorded_journal() -> None:
    assert [path.name for path in RECORDED] == sorted(DIGESTS)


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_a_recorded_journal_has_not_been_touched(path: Path) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DIGESTS[path.name]


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_a_recorded_journal_folds_to_what_it_folded_to(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(fold(path))) == expected


def test_every_kind_is_in_some_recorded_journal() -> None:
    """A new kind needs a journal that shows it: record one under a new name."""
    recorded = {verdict[1] for path in RECORDED for verdict in fold(path)["verdicts"]}
    assert set(facts.BY_KIND) - recorded == set()


def test_the_first_journal_holds_every_trouble() -> None:
    verdicts = fold(FIXTURES / "journal_v1.jsonl")["verdicts"]
    assert {"garbage", "weather.changed"} <= {v[1] for v in verdicts}
    assert {v[2] for v in verdicts if len(v) > 2} >= {"", "host_not_free", "no_room", "attempt_not_open", "job_known"}
    assert any(len(v) > 3 for v in verdicts)  # something was broken


def stored(path: Path) -> list[Stored]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Stored(m["position"], subjects.journal(m["writer"]), base64.b64decode(m["data"]), stored_at=0.0) for m in lines
    ]


def test_all_six_cores_are_replayed() -> None:
    assert sorted(CORES) == list(NAMES)


def state(folded: Fold) -> tuple[bytes, bytes]:
    return folded.custody.dump(), folded.core.dump()


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_every_core_folds_a_recorded_journal(path: Path, name: str) -> None:
    """Every invariant holds after every message, and looking (`decide`, `wake_at`) changes nothing."""
    folded = Fold(None, CORES[name])
    for message in stored(path):
        folded.feed(message)
        assert folded.core.check() == [], message.position
        before = folded.core.dump()
        folded.core.decide(folded.custody.state.at)
        folded.core.wake_at()
        assert folded.core.dump() == before


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
def test_a_snapshot_anywhere_leads_to_the_same_bytes(path: Path, name: str) -> None:
    """Recovery is a snapshot plus the facts after it (DESIGN §1): the bytes, and whatever a core remembers beside them."""
    messages = stored(path)
    through = Fold(None, CORES[name])
    snapshots = []
    for message in messages:
        snapshots.append(state(through))
        through.feed(message)
    for cut, (custody, core) in enumerate(snapshots):
        resumed = Fold(None, CORES[name])
        resumed.custody.load(custody)
        resumed.core.load(core)
        for message in messages[cut:]:
            resumed.feed(message)
        assert state(resumed) == state(through), f"snapshot before position {cut + 1}"
        assert differences(through.core, resumed.core) == [], f"lost with a snapshot before position {cut + 1}"


def test_what_may_be_lost_with_a_snapshot_still_exists() -> None:
    known = {cls.__name__: "".join(map(inspect.getsource, cls.__mro__[:-1])) for cls in owners()}
    assert [path for path in BESIDE if path.partition(".")[2] not in known.get(path.partition(".")[0], "")] == []


def owners() -> Iterator[type[Any]]:
    """The classes whose fields may be lost."""
    for path in sources("services"):
        for cls in vars(importlib.import_module(module(path))).values():
            if inspect.isclass(cls) and cls.__module__ == module(path) and cls.__name__ in OWNERS:
                yield cls


def test_a_field_that_is_lost_with_a_snapshot_is_named() -> None:
    folded = [Fold(None, CORES["ProvisionerCore"]) for _ in range(2)]
    assert differences(folded[0].core, folded[1].core) == []
    folded[0].core._state.if_idle["web"] = 1  # type: ignore[attr-defined]
    folded[0].core._quiet_until = 1.0  # type: ignore[attr-defined]
    assert differences(folded[0].core, folded[1].core) == ["ProvisionerCore._quiet_until", "State.if_idle"]


def test_a_recorded_journal_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    assert make_journal.main(path) == 0
    before = path.read_bytes()
    assert make_journal.main(path) == 1
    assert "never made anew" in capsys.readouterr().err
    assert path.read_bytes() == before
