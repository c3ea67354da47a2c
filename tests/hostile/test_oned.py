"""Answers of a hostile `oned`: an error of that look alone, or what the core and the journal can carry."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import random
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.sax.saxutils import escape

import msgspec
import pytest
from lxml import etree

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department, Hosts, Policy
from schemas.envelope import Envelope, decode, encode
from schemas.facts import Fact
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.executor.core.calls import HostsSeen, PoolSeen
from services.executor.core.executor import ExecutorCore
from services.executor.opennebula.client import _decode, _root, _Transport, host_reader, host_samples, sights, vm_reader
from services.executor.opennebula.client_pool import _UNREADABLE
from services.executor.opennebula.errors import ERRORS, Unreachable
from services.executor.opennebula.pools import MOST

ROUNDS = 300 * int(os.environ.get("HOSTILE_ROUNDS", "1"))
HOST = (
    "<HOST><ID>1</ID><NAME>h1</NAME><STATE>2</STATE><CLUSTER>default</CLUSTER><HOST_SHARE><TOTAL_CPU>800</TOTAL_CPU>"
    "<MAX_CPU>800</MAX_CPU><MAX_MEM>8000000</MAX_MEM><CPU_USAGE>0</CPU_USAGE><MEM_USAGE>0</MEM_USAGE></HOST_SHARE>"
    "<VMS><ID>4</ID></VMS><TEMPLATE><ARCH>x86_64</ARCH></TEMPLATE></HOST>"
)
VM = (
    "<VM><ID>4</ID><NAME>n</NAME><STATE>3</STATE><LCM_STATE>36</LCM_STATE><USER_TEMPLATE><PHOENIX_ID>c/1/1/0</PHOENIX_ID>"
    "<ERROR>no</ERROR></USER_TEMPLATE><HISTORY_RECORDS><HISTORY><HID>1</HID></HISTORY></HISTORY_RECORDS></VM>"
)
SAMPLE = (
    "<MONITORING><ID>1</ID><TIMESTAMP>100</TIMESTAMP><CAPACITY><USED_CPU>10</USED_CPU><USED_MEMORY>5</USED_MEMORY></CAPACITY>"
    "</MONITORING>"
)
ODD = (
    *(
        "",
        " ",
        "x",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e400",
        "-1",
        "0",
        "9" * 30,
        "9" * 5000,
        "-" + "9" * 30,
        str(1 << 40),
    ),
    *(
        "\u0663",
        "\u00b2",
        "0x10",
        "1_000",
        "1.5",
        "1 2",
        "\n4\n",
        "h2",
        "a/b",
        "\u202e",
        "x" * 100_000,
        "\ufffd",
        "-0",
        "+7",
    ),
)
# States that go back, ids of other VMs and of several, tags of another attempt, unit or cloud: each of them could be.
PLAUSIBLE = (*map(str, range(70)), "c/1/1/0", "c/1/2/0", "c/1/1/1", "c/2/1/0", "d/1/1/0", "c/web.1/1/0", "h1")
NAMES = ("ID", "VM", "HOST", "STATE", "HISTORY", "x" * 5000, "TEMPLATE", "ERROR")


def mutated(dice: random.Random, xml: str, pool: str) -> str:
    """One to three of `xml` in a pool, with up to three things done to it."""
    root = etree.fromstring(f"<{pool}>{xml * dice.choice((1, 1, 2, 3))}</{pool}>")
    for _ in range(dice.choice((1, 1, 2, 3))):
        elements: list[Any] = [e for e in root.iter() if e is not root and isinstance(e.tag, str)]
        if not elements:
            break
        one = dice.choice(elements)
        match dice.choice(("text", "text", "text", "gone", "twice", "named", "comment", "within", "deep")):
            case "text":
                one.text = dice.choice(ODD if dice.random() < 0.5 else PLAUSIBLE)
            case "gone":
                one.getparent().remove(one)
            case "twice":
                one.addnext(copy.deepcopy(one))
            case "named":
                one.tag = dice.choice(NAMES)
            case "comment":
                one.append(etree.Comment("no"))
            case "within":
                one.append(copy.deepcopy(dice.choice(elements)))
            case "deep":
                one.append(etree.fromstring("<A>" * 200 + "</A>" * 200))
    return etree.tostring(root, encoding="unicode")


def answer(xml: str) -> bytes:
    value = f"<value><boolean>1</boolean></value><value><string>{escape(xml)}</string></value><value><i4>0</i4></value>"
    data = f"<array><data>{value}</data></array>"
    return f"<methodResponse><params><param><value>{data}</value></param></params></methodResponse>".encode()


class World:
    """An executor that leads: custody and core, with a journal of what it decides."""

    def __init__(self) -> None:
        self.custody = Custody()
        self.core = ExecutorCore(self.custody)
        self.position = 0
        cloud = CloudConfig(
            name="c",
            departments=(Department(name="hpc", kind="batch", batch=BatchPolicy()),),
            policy=Policy(),
            hosts=Hosts(cpu_overcommit=2.0),
        )
        self.put("provisioner", f.ConfigAdopted(cloud="c", custody_rules=RULES, config=cloud))
        self.core.take_over(0.0)

    def put(self, writer: str, *facts: Fact) -> None:
        envelope = Envelope(id=str(self.position), writer=writer, epoch=1, at=float(self.position), facts=facts)
        for fact in decode(encode(envelope), writer).facts:  # as the journal has it
            self.position += 1
            void = fold_fact(self.custody, fact, self.position, 0, writer, float(self.position))
            meta = Meta(position=self.position, index=0, writer=writer, at=float(self.position), void=void)
            self.core.apply(fact, meta)

    def see(self, seen: Any, now: float) -> None:
        self.core.observe(seen, now)
        for _ in range(3):
            if facts := self.core.decide(now):
                self.put("executor", *facts)
        self.core.calls(now, 10)


@pytest.mark.parametrize("seed", range(4))
def test_a_pool_that_is_odd_is_an_error_of_that_look_or_one_that_the_core_can_carry(seed: int) -> None:
    dice, world, errors = random.Random(seed), World(), 0
    hosts, vms = host_reader(), vm_reader()
    for number in range(ROUNDS):
        try:
            samples = host_samples(_root(mutated(dice, SAMPLE, "MONITORING_DATA")))
            seen: Any = HostsSeen(world.core.ticket(), hosts.read(answer(mutated(dice, HOST, "HOST_POOL")))[1], samples)
        except (*ERRORS, *_UNREADABLE):
            errors += 1
        else:
            world.see(seen, float(number))
        try:
            strange = sights(_root(mutated(dice, VM, "VM_POOL")), tags=True, places=True)
            pool = vms.read(answer(mutated(dice, VM, "VM_POOL")))[1]
            seen = PoolSeen(world.core.ticket(), pool, strange)
        except (*ERRORS, *_UNREADABLE):
            errors += 1
        else:
            msgspec.msgpack.encode(pool)
            world.see(seen, float(number))
    assert 0 < errors < 2 * ROUNDS
    assert world.position > 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<",
        b"\xff\xfe",
        b"<a/>",
        b"<methodResponse><fault/></methodResponse>",
        b"<methodResponse><fault><value><struct><member><name>faultCode</name></member></struct></value></fault></methodResponse>",
        b"<methodResponse><fault><value><struct><member><name>faultCode</name><value><i4>%s</i4></value></member></struct>"
        b"</value></fault></methodResponse>" % (b"9" * 5000),
        b"<a>" * 100_000 + b"</a>" * 100_000,
        b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><a>&b;</a>',
        b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><methodResponse>&a;</methodResponse>',
        answer("x").replace(b"<i4>0</i4>", b"<i4>%s</i4>" % (b"9" * 30)),
        answer("x").replace(b"<i4>0</i4>", b"<i4>none</i4>"),
        answer("<VM_POOL>" + "<VM><ID>1</ID></VM>"),
        answer("<VM_POOL><VM>" + "<A>" * 100_000),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_that_look(data: bytes) -> None:
    with pytest.raises((*ERRORS, *_UNREADABLE)):
        vm_reader().read(data)
    try:
        _decode(data)
    except (*ERRORS, *_UNREADABLE):
        return


def test_a_pool_without_end_is_not_read() -> None:
    many = answer("<VM_POOL>" + "<VM></VM>" * (MOST + 1) + "</VM_POOL>")
    with pytest.raises(Unreachable, match="more than 200,000 entries"):
        vm_reader().read(many)


@contextmanager
def saying(first: bytes, again: bytes, pause_s: float) -> Iterator[str]:
    """A server that says `first`, and then `again` for ever; its address."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(first)
                while again and not over.wait(pause_s):
                    self.request.sendall(again)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/RPC2"
        finally:
            over.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("first", "again", "pause_s"),
    [
        (b"", b"H", 0.01),
        (b"HTTP/1.1 200 OK\r\n", b"X", 0.01),
        (b"HTTP/1.1 200 OK\r\n", b"X: x\r\n", 0.01),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.0),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, 0.0),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"<", 0.01),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"<", 0.01),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n<\r\n", 0.01),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1", 0.01),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n", 0.01),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"<" * (1 << 20), 0.0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"", 0.0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n<methodResponse>", b"", 0.0),
        (b"\xff\xfe\x00", b"", 0.0),
    ],
)
async def test_an_answer_that_drips_or_has_no_end_is_an_error_of_that_call(
    first: bytes, again: bytes, pause_s: float
) -> None:
    with saying(first, again, pause_s) as url:
        call = asyncio.to_thread(_Transport(url, 0.3).request, "", "/RPC2", b"<x/>")
        with pytest.raises((*ERRORS, *_UNREADABLE)):
            await call
