"""The vocabulary hangs together: names, writers, the custody flag, and a wire format that any MessagePack library reads."""

from __future__ import annotations

import ast
import re

import msgpack
import msgspec
import pytest

from schemas import examples, subjects
from schemas.envelope import VERSION, Envelope, Garbage, decode, encode
from schemas.facts import BY_KIND, FACTS, KIND, WRITERS, Fact, kind_of, written_by
from services.domain.custody.fold import TABLE
from tests.unit.frame_source import path_of, sources, tree

SERVICES = ("admission", "provisioner", "executor", "scheduler")


def made_or_passed_on(node: ast.AST) -> set[str]:
    """Names of classes that code calls or hands on; not those that it only recognises (isinstance, comparisons,
    match, keys of tables) or
    mentions (imports, annotations)."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"):
        return set()
    if isinstance(node, ast.Name | ast.Attribute):
        return {node.id if isinstance(node, ast.Name) else node.attr}
    hidden = {"annotation", "returns", "pattern", "keys"}
    names: set[str] = set()
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in children:
            if field not in hidden and isinstance(child, ast.AST):
                names |= made_or_passed_on(child)
    return names


def writer_of(fact: Fact) -> str:
    """A writer that owns the fact's kind."""
    owner = WRITERS[type(fact)]
    return {"*": "provisioner", "scheduler": "scheduler.hpc"}.get(owner, owner)


def test_kinds_are_nouns_and_verbs_and_unique() -> None:
    assert len(set(KIND.values())) == len(FACTS) == len(BY_KIND)
    assert [k for k in BY_KIND if not re.fullmatch(r"[a-z]+\.[a-z]+", k)] == []


def test_every_kind_has_exactly_one_kind_of_writer() -> None:
    assert set(WRITERS) == set(FACTS)
    assert set(WRITERS.values()) == {*SERVICES, "*"}
    everybody = {kind_of(f) for f in examples.FACTS if WRITERS[type(f)] == "*"}
    assert everybody == {"leader.started", "leader.stopped"}


def test_every_kind_is_written_by_the_code_of_its_writer() -> None:
    """A kind that nobody writes is a promise that nobody keeps."""
    unwritten = []
    for kind, cls in BY_KIND.items():
        service = {"*": "runtime"}.get(WRITERS[cls], WRITERS[cls])
        code = [tree(path) for path in sources(f"services/{service}")]
        if service != "runtime" and path_of(f"services.{service}.__main__") is None:
            continue  # what cannot be started writes nothing, and claims nothing
        if not any(cls.__name__ in made_or_passed_on(source) for source in code):
            unwritten.append(f"{kind} by {service}")
    assert unwritten == []


@pytest.mark.parametrize("fact", examples.FACTS, ids=kind_of)
def test_only_its_writer_may_write_a_kind(fact: Fact) -> None:
    owner = WRITERS[type(fact)]
    allowed = [
        w for w in ("admission", "provisioner", "executor", "scheduler.hpc", "monitor") if type(fact) in written_by(w)
    ]
    assert writer_of(fact) in allowed
    assert len(allowed) == 1 or owner == "*"
    for stranger in SERVICES:
        if owner not in ("*", stranger):
            data = encode(Envelope(id="1", writer=stranger, epoch=1, at=0.0, facts=(fact,)))
            with pytest.raises(Garbage, match="may not write"):
                decode(data, stranger)


def test_the_custody_flag_is_set_on_what_the_fold_reads_and_nothing_else() -> None:
    """S8: a reader that does not know a kind stops if the flag is set, so a wrong flag is a hole or a needless stop."""
    flagged = {type(fact) for fact in examples.FACTS if fact.custody}
    assert {KIND[cls] for cls in flagged} == {KIND[cls] for cls in TABLE}


def test_an_envelope_is_what_the_reference_library_reads_and_writes() -> None:
    for fact in examples.FACTS:
        writer = writer_of(fact)
        envelope = Envelope(id="e-1", writer=writer, epoch=3, at=12.5, cause="7", facts=(fact,))
        plain = msgpack.unpackb(encode(envelope))
        assert plain == {
            "v": VERSION,
            "id": "e-1",
            "writer": writer,
            "epoch": 3,
            "at": 12.5,
            "cause": "7",
            "facts": [msgspec.json.decode(msgspec.json.encode(fact))],
        }
        assert plain["facts"][0]["kind"] == kind_of(fact)
        assert decode(msgpack.packb(plain), writer).facts == (fact,)


def test_equal_facts_are_equal_bytes() -> None:
    for fact in examples.FACTS:
        data = msgspec.msgpack.encode(fact)
        assert msgspec.msgpack.encode(msgspec.msgpack.decode(data, type=Fact)) == data


def test_facts_are_frozen() -> None:
    for fact in examples.FACTS:
        with pytest.raises(AttributeError):
            fact.custody = False  # type: ignore[misc]


def test_subjects_have_the_tokens_that_permissions_count_on() -> None:
    assert subjects.parse_request(subjects.request("hpc", "ann", "job", "submit")) == ("hpc", "ann", "job", "submit")
    assert subjects.parse_request("phoenix.request.hpc.ann.job") is None
    assert subjects.journal_writer(subjects.journal("scheduler.hpc")) == "scheduler.hpc"
    inbox = f"{subjects.inbox('hpc', 'ann')}.x.y"
    assert subjects.is_reply_allowed(inbox, "hpc")
    assert subjects.is_reply_allowed("_R_.aBc.dEf", "hpc")
    assert subjects.is_reply_allowed("_INBOX_asking.monitor.x.1", "hpc")
    for reply, department in [
        (inbox, "hp"),
        ("phoenix.journal.admission", "hpc"),
        ("_INBOX_hpc.>", "hpc"),
        ("_INBOX_operators.monitor.1", "hpc"),
        ("_INBOX_service.admission.1", "hpc"),
        ("_R_.>", "hpc"),
        ("_R_", "hpc"),
        ("_INBOX_hpc.*", "hpc"),
        ("_INBOX_hpcx.ann.y", "hpc"),
        ("$JS.API.STREAM.PURGE.PHOENIX", "hpc"),
        ("", "hpc"),
    ]:
        assert not subjects.is_reply_allowed(reply, department), reply
