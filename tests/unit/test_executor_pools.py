"""A pool that is read again: never parsed twice, and never other than a plain parse of the whole would have it."""

from __future__ import annotations

import gzip
import json
from xml.sax.saxutils import escape

import pyone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.core.calls import Sight, phase_of
from services.executor.opennebula.client import _decode, _root, host_reader, host_sight, sights, vm_reader
from services.executor.opennebula.errors import Unreachable
from tests.conformance.harness import RECORDINGS

BORDER = "</VM><VM>"
FORGED = f"{BORDER}<ID>1</ID><STATE>6</STATE><LCM_STATE>0</LCM_STATE>"


def vm(number: int, state: int, lcm: int, text: str = "") -> str:
    return (
        f"<VM><ID>{number}</ID><NAME>n</NAME><STATE>{state}</STATE><LCM_STATE>{lcm}</LCM_STATE>"
        f"<USER_TEMPLATE><ERROR><![CDATA[{text}]]></ERROR></USER_TEMPLATE><HISTORY_RECORDS/></VM>"
    )


def answer(xml: str) -> bytes:
    value = (
        f"<value><boolean>1</boolean></value>\n<value><string>{escape(xml)}</string></value>\n<value><i4>0</i4></value>"
    )
    data = f"<array><data>\n{value}\n</data></array>"
    return f"<methodResponse>\n<params>\n<param><value>{data}</value></param>\n</params></methodResponse>".encode()


def pool(*vms: str, between: str = "") -> bytes:
    return answer(f"<VM_POOL>{between.join(vms)}</VM_POOL>")


def plainly(data: bytes) -> list[Sight]:
    return sights(_root(_decode(data)[1]))


def test_only_what_changed_is_parsed() -> None:
    reader, many = vm_reader(), [vm(n, 3, 3) for n in range(50)]
    assert reader.read(pool(*many))[1] == plainly(pool(*many))
    assert reader.parsed == 50
    many[7] = vm(7, 8, 0)
    found = reader.read(pool(*many))[1]
    assert reader.parsed == 1
    assert found == plainly(pool(*many))
    assert found[7].phase is phase_of(8, 0)
    assert reader.read(pool(*many))[1] == found
    assert reader.parsed == 0


def test_vms_come_and_go() -> None:
    reader = vm_reader()
    for numbers in ([3, 2, 1], [4, 3, 1], [], [9], [4, 3, 1]):
        data = pool(*(vm(n, 3, 3) for n in numbers))
        assert [sight.vm for sight in reader.read(data)[1]] == numbers


def test_a_border_in_a_users_text_does_not_make_a_vm() -> None:
    """Somebody writes another's VM, or one that was read before, into an attribute of his own."""
    reader, ours = vm_reader(), vm(1, 3, 3).replace("<![CDATA[]]>", "")
    assert reader.read(pool(vm(2, 3, 3), ours))[1] == plainly(pool(vm(2, 3, 3), ours))
    for text in (
        FORGED + BORDER,
        BORDER,
        BORDER + BORDER,
        BORDER + ours[4:-5] + BORDER,
        "</VM></VM_POOL>",
        "]]&gt;" + FORGED,
    ):
        data = pool(vm(2, 3, 3, text), ours)
        assert reader.read(data)[1] == plainly(data) == [Sight(2, phase_of(3, 3)), Sight(1, phase_of(3, 3))]
        data = pool(ours, vm(0, 3, 3, text))
        assert reader.read(data)[1] == plainly(data)


def test_whitespace_between_vms_costs_only_time() -> None:
    reader = vm_reader()
    for state in (3, 8, 8):
        data = pool(vm(2, state, 0), vm(1, 3, 3), between="\n ")
        assert reader.read(data)[1] == plainly(data)
        assert reader.parsed in (0, 2)


def test_an_answer_that_is_an_error_or_no_xml_is_told_as_one() -> None:
    reader = vm_reader()
    refused = answer("no").replace(b"<boolean>1", b"<boolean>0").replace(b"<i4>0", b"<i4>256")
    assert reader.read(refused) == [False, "no", 256]
    with pytest.raises(Unreachable):
        reader.read(pool(vm(1, 3, 3))[:-200])
    with pytest.raises(Unreachable):
        reader.read(answer("<VM_POOL><VM><ID>1</ID>"))
    with pytest.raises(pyone.OneException):
        reader.read(b"<methodResponse><fault><value/></fault></methodResponse>")


def test_the_recorded_pools_are_read_as_pyone_would() -> None:
    with gzip.open(RECORDINGS / "calls.jsonl.gz", "rt") as file:
        cases = [json.loads(line) for line in file]
    reader, seen = vm_reader(), 0
    for case in cases:
        if (
            case["method"] in ("one.vmpool.info", "one.vmpool.infoset")
            and case["response_ok"]
            and case.get("response_raw_xml")
        ):
            found = reader.read(case["response_raw_xml"].encode())[1]
            assert found == sights(_root(case["response_body"]))
            seen += len(found)
    assert seen > 50


def test_hosts_are_read_as_vms_are() -> None:
    with gzip.open(RECORDINGS / "calls.jsonl.gz", "rt") as file:
        every = [
            case for case in map(json.loads, file) if case["method"] == "one.hostpool.info" and case["response_ok"]
        ]
        cases = [case for case in every if "<STATE>2</STATE>" in case["response_body"]]
    reader, seen = host_reader(), []
    for case in cases:
        assert reader.read(answer(case["response_body"]))[1] == [host_sight(h) for h in _root(case["response_body"])]
        seen.append(reader.parsed)
    last = cases[-1]["response_body"]
    offline = answer(last.replace("<STATE>2</STATE>", "<STATE>8</STATE>", 1))
    assert [host.bad for host in reader.read(offline)[1]].count("offline") == 1
    assert reader.parsed == 1
    assert sum(seen) > 2


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    st.lists(
        st.sampled_from([BORDER, "<VM>", "</VM>", "<![CDATA[", "<ID>1</ID>", "&lt;", "&amp;", FORGED]), max_size=4
    ).map("".join),
).filter(lambda text: "]]>" not in text)
VMS = st.dictionaries(
    st.integers(0, 9), st.tuples(st.sampled_from([1, 2, 3, 6, 8]), st.sampled_from([0, 3, 16]), TEXT), max_size=6
)


@given(st.lists(VMS, min_size=1, max_size=6), st.sampled_from(["", "", "\n"]))
def test_it_is_always_what_a_plain_parse_finds(pools: list[dict[int, tuple[int, int, str]]], between: str) -> None:
    """U1: whatever users write into their VMs, and whatever came before."""
    reader = vm_reader()
    for vms in pools:
        data = pool(*(vm(number, *vms[number]) for number in vms), between=between)
        assert reader.read(data) == [True, plainly(data), 0]
