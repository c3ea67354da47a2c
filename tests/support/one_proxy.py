"""A proxy between the executor and its OpenNebula: every way in which an endpoint fails, made on purpose, one method at a time.

    async with OneProxy(server.port) as proxy:          # clients use proxy.url
        gate = proxy.hold("one.vm.deploy")              # the next deploy waits before it reaches OpenNebula
        await gate.reached()
        gate.release()                                  # now it continues, even if its caller is dead by then
        proxy.spoil("one.vm.allocate", status(500), times=2)

`one.vm.action` has its action behind it: "one.vm.action terminate".
A held request arrives late; a held answer has happened.  Each connection carries one call, as with `oned`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.ports import free_port

ANY = "*"
_ACTION = re.compile(rb"<string>([^<]*)</string>")
_METHOD = re.compile(rb"<methodName>([^<]+)</methodName>")
_BAD = '<?xml version="1.0"?><methodResponse>{}</methodResponse>'
REACHED_S = 20.0

Spoil = Callable[
    [bytes], bytes
]  # the whole HTTP answer of OpenNebula -> what the caller gets; b"": the connection is closed


def http_answer(body: str | bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/xml\r\nContent-Length: {len(data) if length is None else length}\r\n"
    )
    return f"{head}Connection: close\r\n\r\n".encode() + data


def status(code: int) -> Spoil:
    return lambda _: http_answer("<html>sorry</html>", f"{code} Sorry")


def page() -> Spoil:
    """Another server's page."""
    return lambda _: http_answer("<html><body>It works!</body></html>")


def noise() -> Spoil:
    """No XML at all."""
    return lambda _: http_answer("methodResponse: ok")


def cut_short() -> Spoil:
    """Half of the answer, then nothing more."""
    return lambda answer: answer[: answer.index(b"\r\n\r\n") + 4 + len(answer.partition(b"\r\n\r\n")[2]) // 2]


def closed() -> Spoil:
    return lambda _: b""


def refusal(code: int, words: str) -> Spoil:
    """An error of OpenNebula's own."""
    values = f"<boolean>0</boolean>|<string>{words}</string>|<i4>{code}</i4>|<i4>-1</i4>"
    data = "".join(f"<value>{value}</value>" for value in values.split("|"))
    body = _BAD.format(f"<params><param><value><array><data>{data}</data></array></value></param></params>")
    return lambda _: http_answer(body)


def fault(code: int, words: str) -> Spoil:
    members = f"<member><name>faultCode</name><value><int>{code}</int></value></member>"
    members += f"<member><name>faultString</name><value><string>{words}</string></value></member>"
    return lambda _: http_answer(_BAD.format(f"<fault><value><struct>{members}</struct></value></fault>"))


def _is(method: str, wanted: str) -> bool:
    """`wanted` may leave out which action it is."""
    return wanted in (ANY, method, method.partition(" ")[0])


@dataclass(eq=False)
class Gate:
    """`answer`: it is the answer that waits, not the request."""

    method: str
    answer: bool
    _reached: asyncio.Event = field(default_factory=asyncio.Event)
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    passed: asyncio.Event = field(default_factory=asyncio.Event)  # OpenNebula has answered

    async def reached(self) -> None:
        async with asyncio.timeout(REACHED_S):
            await self._reached.wait()

    def release(self) -> None:
        self._open.set()

    async def wait(self) -> None:
        self._reached.set()
        await self._open.wait()


@dataclass(eq=False)
class _Fault:
    method: str
    spoil: Spoil
    times: int | None
    forward: bool


class OneProxy:
    """`calls`: how often each method was asked for; `most`: most calls at once."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.calls: Counter[str] = Counter()
        self.now = self.most = 0
        self._target = target
        self._gates: list[Gate] = []  # those that no call has met yet
        self._made: list[Gate] = []
        self._faults: list[_Fault] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/RPC2"

    async def __aenter__(self) -> OneProxy:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def refuse(self) -> None:
        """New connections are refused, until `listen`."""
        assert self._server is not None
        self._server.close()

    def hold(self, method: str, *, answer: bool = False) -> Gate:
        """The next call of `method` waits: before it reaches OpenNebula, or its answer."""
        gate = Gate(method, answer)
        self._gates.append(gate)
        self._made.append(gate)
        return gate

    def spoil(self, method: str, how: Spoil, times: int | None = None, *, forward: bool = False) -> None:
        """Answer so.  `times` None: until `heal`.  `forward`: OpenNebula has done it all the same."""
        self._faults.append(_Fault(method, how, times, forward))

    def heal(self) -> None:
        self._faults.clear()
        for gate in self._made:
            gate.release()
        self._gates.clear()
        self._made.clear()

    # ---------------------------------------------------------------------------------------------------------- carrying

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._carry(reader, writer)
        writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(found[1]) if found else 0)
        name = _METHOD.search(body)
        method = name[1].decode() if name else "?"
        if method == "one.vm.action":
            method += " " + _ACTION.findall(body)[1].decode()  # after the session
        self.calls[method] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            answer = await self._answer(method, body)
        finally:
            self.now -= 1
        writer.write(answer)
        await writer.drain()

    async def _answer(self, method: str, body: bytes) -> bytes:
        gate = next((gate for gate in self._gates if _is(method, gate.method)), None)
        if gate is not None:
            self._gates.remove(gate)
            if not gate.answer:
                await gate.wait()
        wrong = self._fault(method)
        answer = b"" if wrong is not None and not wrong.forward else await self._forward(body)
        if gate is not None:
            gate.passed.set()
            if gate.answer:
                await gate.wait()
        return answer if wrong is None else wrong.spoil(answer or http_answer("x" * 100))

    def _fault(self, method: str) -> _Fault | None:
        wrong = next((wrong for wrong in self._faults if _is(method, wrong.method)), None)
        if wrong is not None and wrong.times is not None:
            wrong.times -= 1
            if not wrong.times:
                self._faults.remove(wrong)
        return wrong

    async def _forward(self, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        head = f"POST /RPC2 HTTP/1.1\r\nHost: one\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        answer = await reader.read()
        writer.transport.abort()
        return answer
