"""aiohttp's server with what it lacks: time limits for headers and for peers that do not read, limits of connections, and
errors of its own that repeat nothing of what was sent.

    connection ─▶ guard.enter ─▶ first header within `header_timeout_s` ─▶ requests ─▶ idle for `IDLE_S`: closed
                      ╰─▶ 503, closed                                         ╰── nothing taken for `UNREAD_S`: closed

Rules
  1. A connection has `header_timeout_s` for its first request's line and headers, and `IDLE_S` from the end of an answer to the
     end of the next request's headers.
  2. How long an answer lasts is its handler's matter (event streams last for days); but a peer that takes nothing of what waits
     for it for `UNREAD_S` is gone, or pretends.
  3. Whose caller has not been known (`is_known`) for too long ends with its next answer (rule 4 of `guard`).
  4. Bodies have a rate that they must keep (`body`).
  5. What is no HTTP is answered in the form of every other error.  aiohttp's own message goes nowhere: it quotes the header,
     and the header may be a token.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod
from aiohttp.web_protocol import RequestHandler

from schemas import problems
from schemas.problems import problem
from services.runtime.http.answers import problem_response
from services.runtime.http.given import given
from services.runtime.http.guard import HEADER, UNREAD, Guard

IDLE_S: Final = 75.0  # nginx keeps a connection to its backend for 60 s: it lets go first, and loses no request
# for what is left of a body that was refused, so that its sender reads why and not "connection reset"
LINGER_S: Final = 2.0
UNREAD_S: Final = 60.0  # a laptop that slept for a moment reads on; no client takes longer for the next byte
_FULL_TEXT: Final = "too many connections: close some, or try again in a moment"
_FULL_BODY: Final = msgspec.json.encode(problem("unavailable", _FULL_TEXT))
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: %b\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (problems.JSON.encode(), len(_FULL_BODY), _FULL_BODY)
)
_WRONG: Final = {
    "LineTooLong": "its first line or one of its headers is too long",
    "InvalidHeader": "a header is no header",
    "BadHttpMethod": "it begins with no method of HTTP",
    "InvalidURLError": "its path is no path",
    "ContentLengthError": "its length is no length",
    "TransferEncodingError": "its body is not in the chunks that it announces",
}
_USUALLY: Final = (
    "what HTTP does not allow stands in it, such as a line break within a header: look at the token's file"
)


METHODS: Final = "DELETE, GET, HEAD, POST, PUT"  # that any path of ours knows
_METHOD: Final = re.compile(r"""b['"]([A-Z]{1,20}) /""")  # the parser stops there: of which path it was is not known


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ("_deadline", "_header_timer", "_is_in", "_unread", "_unread_timer", "guard", "peer")

    def __init__(self, guard: Guard, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, loop=asyncio.get_running_loop(), **options)
        self.guard, self.peer = guard, ""
        self._is_in, self._unread, self._deadline = False, 0, guard.deadline()
        self._header_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    # ----------------------------------------------------------------------------------------------- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) else ""
        self._is_in = self.guard.enter(self.peer)
        if not self._is_in:
            self.force_close()  # of what it sends nothing is read
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._header_timer = self._loop.call_later(self.guard.limits.header_timeout_s, self._header_is_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_timers()
        if self._is_in:
            self._is_in = False
            self.guard.leave(self.peer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._header_timer is not None and self._request_count:
            self._header_timer.cancel()
            self._header_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    # --------------------------------------------------------------------------------------------------------- without token

    def is_known(self) -> None:
        self._deadline = self.guard.deadline()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Rule 3, before aiohttp's."""
        if self.guard.is_over(self._deadline) and isinstance(resp, web.StreamResponse):
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    # ------------------------------------------------------------------------------------------------------------- slowness

    def _header_is_late(self) -> None:
        self._header_timer = None
        self.guard.too_slow(HEADER, self.peer)
        self.force_close()

    def _watch_unread(self) -> None:
        if self.transport is not None:
            self._unread = self.transport.get_write_buffer_size()
            self._unread_timer = self._loop.call_later(UNREAD_S, self._look_at_unread)

    def _look_at_unread(self) -> None:
        """Rule 2: slow is not gone."""
        self._unread_timer = None
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() < self._unread:
            self._watch_unread()
            return
        self.guard.too_slow(UNREAD, self.peer)
        self.transport.abort()

    def _cancel_timers(self) -> None:
        for timer in (self._header_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._unread_timer = None

    # --------------------------------------------------------------------------------------------------------------- errors

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's: of its parser, with what was sent
    ) -> web.StreamResponse:
        """Rule 5, instead of aiohttp's, which logs and answers with the exception's text."""
        if isinstance(exc, ConnectionError):  # the client has gone before its answer
            raise exc
        if status < 500:
            self.guard.malformed(self.peer, exc)
            wrong = f"this is no request of HTTP: {_WRONG.get(type(exc).__name__, _USUALLY)}"
            answer = problem_response(request, problem("invalid", wrong, status=status))
            if isinstance(exc, BadHttpMethod) and (method := _METHOD.search(exc.message)):
                wrong = f"there is no method {method[1]} here; there are {METHODS}"
                answer = problem_response(request, problem("invalid", wrong, status=405), METHODS)
        else:
            self.guard.failed("request failed", exc, method=request.method, path=request.path)
            wrong = "internal error; the server's log has the details"
            answer = problem_response(request, problem("failed", wrong))
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent: it ends here")
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:  # noqa: ARG002
        error = kw.get("exc_info")
        if isinstance(error, web.RequestPayloadError):  # in the rest of a body that is not needed
            self.guard.malformed(self.peer, error)
        else:
            self.guard.failed("connection failed", error)


def is_known(request: web.BaseRequest) -> None:
    """Its caller has shown a token that is accepted."""
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.is_known()


class Site(web.TCPSite):
    """A listener of `runner` whose connections `guard` watches.  aiohttp makes its own connections; this makes ours.  Sockets
    that this process was given for the address (`given`) are taken."""

    def __init__(self, runner: web.BaseRunner, host: str, port: int, guard: Guard, *, backlog: int = 128) -> None:
        super().__init__(runner, host, port, backlog=backlog)
        self._guard = guard
        self._others: list[asyncio.AbstractServer] = []

    async def start(self) -> None:
        await web.BaseSite.start(self)
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None
        options = {**server._kwargs, "keepalive_timeout": IDLE_S, "lingering_time": LINGER_S}
        loop.set_exception_handler(self._guard.loop_failed)
        inherited = [{"sock": it} for it in given(self._host or "", self._port)]
        places: list[dict[str, Any]] = inherited or [{"host": self._host, "port": self._port}]
        for where in places:
            serving = await loop.create_server(
                lambda: Connection(self._guard, server, **options), backlog=self._backlog, **where
            )
            self._others.append(serving)
        self._server = self._others.pop(0)

    async def stop(self) -> None:
        for serving in self._others:
            serving.close()
        await super().stop()
