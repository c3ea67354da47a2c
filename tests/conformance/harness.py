"""Comparing an embedded OpenNebula with the recorded one: load, ask, mask, compare.

1. A case passes if code, message, extra elements, types and, for XML, every element, its order and its text are the
   same.
2. What is incidental is masked by name (`MASKED`, `ZERO_OR_SET`) and nothing else is.
3. Two clients: `RawClient` posts XML-RPC and sees the answer's elements; `PyoneClient` is pyone, and sees values and
   exceptions.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import xmlrpc.client
from pathlib import Path
from typing import Any

import aiohttp
import pyone
from lxml import etree

from phoenix.local.opennebula.server import OpenNebula

RECORDINGS = Path(__file__).parent / "recordings"

# Each call must be answered within this.
CALL_S = 30.0

# Times: only whether they are set is compared.
ZERO_OR_SET = frozenset(
    {
        *("STIME", "ETIME", "PSTIME", "PETIME", "RSTIME", "RETIME", "ESTIME", "EETIME"),
        *("REGTIME", "MODTIME", "TIMESTAMP", "TIME"),
    }
)

# Incidental values, by element: random, or what a probe found at that moment, or paths and addresses of that installation.
MASKED = frozenset(
    {
        *(
            "UUID",
            "PASSWORD",
            "TOKEN_PASSWORD",
            "BASE_PATH",
            "ENDPOINT",
            "ENDPOINT_GRPC",
            "TOTAL_MB",
            "FREE_MB",
            "USED_MB",
        ),
        *(
            "FREE_CPU",
            "FREE_MEMORY",
            "USED_CPU",
            "USED_MEMORY",
            "NETRX",
            "NETTX",
            "ARGUMENTS",
            "COMMAND",
            "STDOUT",
            "STDERR",
        ),
        *("EXECUTION_ID", "DATASTORE_LOCATION", "SCRIPTS_REMOTE_DIR", "LAST_POLL"),
    }
)

_DATE = re.compile(r"^\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}")
_GARBAGE_LINE = re.compile(r"at line \d+,")


def load(name: str) -> list[dict[str, Any]]:
    """The cases of a recording."""
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _is_xml(text: Any) -> bool:
    return isinstance(text, str) and text.startswith("<") and text.endswith(">")


def _sampled(element: Any) -> bool:
    """A value within a VM's sample: what it used then."""
    return (
        element.getparent() is not None
        and element.getparent().tag == "MONITORING"
        and element.tag in ("CPU", "MEMORY", *_DISK_VALUES)
    )


_DISK_VALUES = ("DISKRDBYTES", "DISKRDIOPS", "DISKWRBYTES", "DISKWRIOPS")


def masked(element: Any) -> str:
    """An element's text as it is compared: `*` where any will do."""
    text = (element.text or "").strip()
    parent = element.getparent()
    if element.tag in ("FREE", "USED") and parent.tag == "MEMORY" and parent.getparent().tag == "NUMA_NODE":
        return "*"
    if _sampled(element):
        return "*"
    if element.tag in MASKED:
        return "*" if element.tag not in ("COMMAND", "ARGUMENTS") or element.getparent().tag != "TEMPLATE" else text
    if element.tag in ZERO_OR_SET and re.fullmatch(r"-?\d+", text):
        return "set" if int(text) > 0 else text
    if element.tag == "REQUEST_ID":
        return "-1" if text == "-1" else "*"
    if element.tag == "ERROR":
        return _DATE.sub("DATE", text)
    return text


def tree(element: Any) -> Any:
    """An element as nested tuples, masked. Samples repeat as often as the clock had it: only their shapes are kept."""
    children = [tree(child) for child in element]
    kept: list[Any] = []
    for child in children:
        if child[0] == "MONITORING" and kept and kept[-1][0] == "MONITORING":
            continue
        kept.append(child)
    return (element.tag, masked(element), kept)


def difference(expected: Any, actual: Any, path: str = "") -> str | None:
    """The first difference of two trees, in words."""
    here = f"{path}/{expected[0]}"
    if expected[0] != actual[0]:
        return f"{path}: expected <{expected[0]}>, got <{actual[0]}>"
    if expected[1] != actual[1]:
        return f"{here}: expected {expected[1]!r}, got {actual[1]!r}"
    names = [child[0] for child in expected[2]], [child[0] for child in actual[2]]
    if names[0] != names[1]:
        return f"{here}: expected elements {names[0]}, got {names[1]}"
    for one, other in zip(expected[2], actual[2], strict=True):
        found = difference(one, other, here)
        if found:
            return found
    return None


def compare_bodies(expected: Any, actual: Any) -> str | None:
    """The first difference of two answers, in words."""
    if _is_xml(expected) and _is_xml(actual):
        return difference(tree(etree.fromstring(expected)), tree(etree.fromstring(actual)))
    one, other = (_GARBAGE_LINE.sub("at line *,", str(body)) for body in (expected, actual))
    return None if one == other else f"expected {one[:300]!r}, got {other[:300]!r}"


class RawClient:
    """XML-RPC over HTTP, seen element by element."""

    def __init__(self, server: OpenNebula) -> None:
        self.server = server
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_S))

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()

    async def call(self, method: str, *arguments: Any, session: str | None = None) -> tuple[Any, ...]:
        """The elements of the answer; a fault is `(False, text, code)`."""
        body = xmlrpc.client.dumps(
            (self.server.session if session is None else session, *arguments), method, encoding="utf-8"
        ).encode()
        async with self._http.post(self.server.url, data=body, headers={"Content-Type": "text/xml"}) as response:
            assert response.status == 200, await response.text()
            content = await response.read()
        try:
            return tuple(xmlrpc.client.loads(content)[0][0])
        except xmlrpc.client.Fault as fault:
            return (False, fault.faultString, fault.faultCode)

    async def steer(self, **fields: Any) -> dict[str, Any]:
        """Steering over the wire; must succeed."""
        answer = await self.call("phoenix.dummy.steer", json.dumps(fields))
        assert answer[0], answer
        steered: dict[str, Any] = json.loads(answer[1])
        return steered


class PyoneClient:
    """pyone, in a thread."""

    def __init__(self, server: OpenNebula) -> None:
        self.server = server

    def _call(self, method: str, arguments: tuple[Any, ...], session: str) -> str:
        target: Any = pyone.OneServer(self.server.url, session=session, timeout=CALL_S)
        for part in method.removeprefix("one.").split("."):
            target = getattr(target, part)
        try:
            value = target(*arguments)
        except pyone.OneException as error:
            return f"raised {type(error).__name__}: {error}"
        if isinstance(value, str | int):
            return f"returned {type(value).__name__} {value!r}"
        return f"returned {type(value).__name__}"

    async def call(self, method: str, *arguments: Any, session: str | None = None) -> str:
        """What pyone made of the answer, in the words of the recording."""
        async with asyncio.timeout(CALL_S):
            return await asyncio.to_thread(
                self._call, method, arguments, self.server.session if session is None else session
            )
