"""OpenNebula's template language, and XML-RPC as its server speaks it."""

from __future__ import annotations

import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from phoenix.local.opennebula import xmlrpc as wire
from phoenix.local.opennebula.errors import Fault, OneError, TemplateError
from phoenix.local.opennebula.templates import Template, parse


def test_text() -> None:
    template = parse(
        'name = a\nCPU="1.5" # cores\n# a line\nCONTEXT=[ A = "x, y", b=2 ]\nDISK=[IMAGE_ID=1]\nDISK=[IMAGE_ID=2]\nE=\n'
    )
    assert template.values == {
        "NAME": ["a"],
        "CPU": ["1.5"],
        "CONTEXT": [{"A": "x, y", "B": "2"}],
        "DISK": [{"IMAGE_ID": "1"}, {"IMAGE_ID": "2"}],
        "E": [""],
    }


def test_only_the_quote_is_escaped() -> None:
    assert parse(r'A="a \"b\" \\ c"').get("A") == r'a "b" \\ c'


def test_an_open_quote_is_text() -> None:
    assert parse('RACK="unterminated').get("RACK") == '"unterminated'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("this is not a template", "unexpected VARIABLE, expecting EQUAL or EQUAL_EMPTY at line 0, columns 6:8"),
        ("A=1\nB==", "unexpected $end, expecting OBRACKET or CCDATA or STRING at line 1, columns 3:4"),
        ("A=[B=1", "unexpected $end, expecting COMMA or CBRACKET"),
        ("<T><A>1</A>", "XML Template malformed"),
        ('<!DOCTYPE T [<!ENTITY e "x">]><T><A>&e;</A></T>', "XML Template malformed"),
    ],
)
def test_errors(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words.replace("$", r"\$")):
        parse(text)


def test_update_leaves_the_old_one() -> None:
    old = parse("A=1\nB=2")
    new = old.merged(parse("B=3\nC=4"))
    assert old.strings() == {"A": "1", "B": "2"}
    assert new.strings() == {"A": "1", "B": "3", "C": "4"}


_NAMES = st.text("ABCDEFGHIJ_", min_size=1, max_size=6)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), max_size=20)


@given(st.dictionaries(_NAMES, _TEXTS | st.dictionaries(_NAMES, _TEXTS, min_size=1, max_size=3), max_size=5))
def test_xml_comes_back(values: dict[str, str | dict[str, str]]) -> None:
    template = Template({name: [value] for name, value in values.items()})
    assert parse(f"<T>{template.inner_xml()}</T>").values == template.values


@given(st.lists(_TEXTS | st.booleans() | st.integers(-(2**31), 2**31 - 1), max_size=5))
def test_calls_are_decoded_as_python_encodes_them(params: list[str | bool | int]) -> None:
    body = xmlrpc.client.dumps(tuple(params), "one.vm.info").encode()
    assert wire.decode(body) == ("one.vm.info", params)


@given(_TEXTS)
def test_answers_are_read_by_python(text: str) -> None:
    assert tuple(xmlrpc.client.loads(wire.encode(text))[0][0]) == (True, text, 0)
    refusal = wire.encode_error("one.x", OneError(2048, text, 7))
    assert tuple(xmlrpc.client.loads(refusal)[0][0]) == (False, f"[one.x] {text}", 2048, 7, -1)


@pytest.mark.parametrize("body", [b"", b"no xml", b"<methodCall/>", b"<other><methodName>a</methodName></other>"])
def test_what_is_no_call_is_a_fault(body: bytes) -> None:
    with pytest.raises(Fault):
        wire.decode(body)


def test_no_entity_is_expanded() -> None:
    body = b'<!DOCTYPE m [<!ENTITY e "x">]><methodCall><methodName>&e;</methodName></methodCall>'
    with pytest.raises(Fault, match="document type"):
        wire.decode(body)


def test_cdata_that_ends_early() -> None:
    xml = Template({"A": ["x]]>y"]}).inner_xml()
    assert etree.fromstring(f"<T>{xml}</T>").findtext("A") == "x]]>y"
