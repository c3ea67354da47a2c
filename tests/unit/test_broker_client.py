"""The client's reading of the wire: which versions of the library it is for, and what is cut anywhere is read the same."""

from __future__ import annotations

import ast
from importlib.metadata import version
from typing import Any

import pytest
from nats.errors import ProtocolError

from services.runtime.broker.client import VERSIONS, Client, Parser, own_inbox
from tests.unit.frame_source import sources, tree

WIRE = (
    b'INFO {"server_id": "a"}\r\nPING\r\n+OK\r\n'
    b"MSG a.b 7 3\r\nabc\r\n"
    b"MSG a.b 7 _INBOX.x 0\r\n\r\n"
    b"HMSG a.b 12 _INBOX.x 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nabc\r\n"
    b"-ERR 'Permissions Violation for Publish to \"a\xff\"'\r\nPONG\r\n"
)


class Told(Client):
    """What the parser hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    async def _process_msg(self, *parts: Any) -> None:
        self.told.append(parts)

    async def _process_ping(self) -> None:
        self.told.append(("ping",))

    async def _process_pong(self) -> None:
        self.told.append(("pong",))

    async def _process_err(self, err_msg: str) -> None:
        self.told.append(("error", err_msg))

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        self.told.append(("info", info))


async def read(*pieces: bytes) -> list[tuple[Any, ...]]:
    client = Told()
    parser = Parser(client)
    for piece in pieces:
        await parser.parse(piece)
    return client.told


def test_the_library_is_one_that_this_was_written_for() -> None:
    """Of another version compare `nats/protocol/parser.py` and the callers of `Parser` with this file's, then name it."""
    assert version("nats-py") in VERSIONS


async def test_what_the_server_says_is_read() -> None:
    assert await read(WIRE) == [
        ("info", {"server_id": "a"}),
        ("ping",),
        (7, b"a.b", b"", b"abc", b""),
        (7, b"a.b", b"_INBOX.x", b"", b""),
        (12, b"a.b", b"_INBOX.x", b"abc", b"NATS/1.0\r\nA: b\r\n\r\n"),
        ("error", "'permissions violation for publish to \"a\\xff\"'"),
        ("pong",),
    ]


async def test_it_may_be_cut_anywhere() -> None:
    whole = await read(WIRE)
    for at in range(len(WIRE)):
        assert await read(WIRE[:at], WIRE[at:]) == whole
    assert await read(*(bytes([byte]) for byte in WIRE)) == whole


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a 1",
        b"MSG a x 1",
        b"MSG a 1 r s 1",
        b"MSG  a 1 1",
        b"HMSG a 1 1",
        b"HMSG a 1 9 1",
        b"HMSG a 1 -1 1",
        b"HI",
    ],
)
async def test_what_the_protocol_does_not_have_is_an_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        await read(line + b"\r\n")


async def test_a_line_has_an_end() -> None:
    with pytest.raises(ProtocolError):
        await read(b"INFO " + b"x" * (1 << 20))


def makes_the_library_s(path_tree: ast.AST) -> bool:
    """Whether it makes a client of the library's own: `nats.connect(…)`, or `nats.aio.client.Client` imported to be called."""
    called = {ast.unparse(node.func) for node in ast.walk(path_tree) if isinstance(node, ast.Call)}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(path_tree)
        if isinstance(node, ast.ImportFrom) and node.module == "nats.aio.client"
        for alias in node.names
    }
    return bool(called & ({"nats.connect", "nats.aio.client.Client"} | imported))


def test_no_program_of_ours_uses_another_client() -> None:
    assert [str(path) for path in sources("services", "phoenix", "benchmarks") if makes_the_library_s(tree(path))] == []


def test_this_test_sees_one() -> None:
    assert makes_the_library_s(ast.parse("import nats\nnats.connect('x')"))
    assert makes_the_library_s(ast.parse("from nats.aio.client import Client as C\nC()"))


@pytest.mark.parametrize("headers", [b"\r\n", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0\r\n"])
async def test_a_message_with_headers_that_cannot_be_read_is_left_out_and_the_next_one_is_read(headers: bytes) -> None:
    said = b"HMSG a.b 1 %d %d\r\n%sx\r\nMSG a.b 1 1\r\ny\r\n" % (len(headers), len(headers) + 1, headers)
    assert await read(said) == [(1, b"a.b", b"", b"y", b"")]


async def test_what_a_connection_listens_at_is_another_each_time() -> None:
    first, second = own_inbox("_INBOX_hpc.ann"), own_inbox("_INBOX_hpc.ann")
    assert first != second
    assert len(first) == len("_INBOX_hpc.ann.") + 2 * 16
