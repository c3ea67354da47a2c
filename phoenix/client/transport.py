"""HTTP for the library: one session, a deadline for every call, and the retries of `retries`.

Rules
  1. The token goes into the Authorization header and nowhere else.  One from a file is read again when the cloud says that it
     is over (401): what replaced it is used from then on.
  2. A call ends within its time, retries and pauses included.  A try that may be repeated has at most half of that time, so
     that a lost packet does not cost all of it.
  3. aiohttp is imported by the first call, not with the library: it takes longer than everything else together.
  4. Idle connections are closed before the server would close them, so that a change is seldom sent into one that just ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from phoenix.client.address import parse_url, query, tls_context, untrusted
from phoenix.client.errors import NOT_KNOWN, Denied, OverLimit, PhoenixError, TimedOut, Unavailable, Unreadable, refusal
from phoenix.client.retries import Failure, Plan, Repeat
from phoenix.client.where import read_token

if TYPE_CHECKING:
    import ssl

    import aiohttp

TIMEOUT_S: Final = 30.0  # no answer of ours takes longer, a restart of admission in it
CONNECT_S: Final = 5.0
SILENCE_S: Final = 60.0  # of a stream; the cloud sends an empty line every 25 s
KEEPALIVE_S: Final = 10.0  # aiohttp's servers close after 75 s
CONNECTIONS_MAX: Final = 100
LINE_MAX: Final = 16 << 20  # an event with the largest array is under 1 MiB
CHUNK_BYTES: Final = 64 << 10


class Answer(NamedTuple):
    """`headers`: names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Raises `Unreadable`."""
        try:
            return msgspec.json.decode(self.body) if self.body else {}
        except msgspec.DecodeError as error:
            raise Unreadable(f"the answer is no JSON: {error}") from error

    def content(self) -> object:
        """The decoded JSON, or the text of what is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self.body.decode(errors="replace")


class Lost(Exception):
    """A try without a useful answer: what to raise if it was the last one."""

    def __init__(self, failure: Failure, error: PhoenixError, *, final: bool = False) -> None:
        super().__init__(error.message)
        self.failure = failure
        self.error = error
        self.final = final


class Token:
    """Rule 1.  `file`: where it is read from; the text itself otherwise."""

    def __init__(self, text: str = "", file: Path | None = None) -> None:
        self._text = text
        self._file = file

    @property
    def text(self) -> str:
        if not self._text and self._file is not None:
            self._text = read_token(self._file)
        return self._text

    def renewed(self) -> bool:
        """True if the file holds another one now."""
        before = self._text
        if self._file is not None:
            self._text = read_token(self._file)
        return self._text != before


class Transport:
    """Calls to one address with one token.  Belongs to the event loop that makes its first call."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        timeout_s: float = TIMEOUT_S,
        agent: str = "phoenix-client",
        ca_file: str | Path | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._address = parse_url(url)
        self._token = token
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | bool = tls_context(ca_file) if self._address.tls else True

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(
        self,
        method: str,
        path: str,
        values: Mapping[str, object] | None = None,
        payload: object = None,
        *,
        repeat: Repeat = Repeat.READ,
        timeout_s: float | None = None,
        request: str = "",
    ) -> Answer:
        """The answer to one call, whose status is below 300.  `payload`: sent as JSON; `request`: its id, for errors.  Raises
        every `PhoenixError`."""
        body = None if method == "GET" else msgspec.json.encode({} if payload is None else payload)
        now = asyncio.get_running_loop().time
        end, plan, renewed = now() + (self.timeout_s if timeout_s is None else timeout_s), Plan(repeat), False
        whole_s = end - now()
        while True:
            left_s = end - now()
            try:
                return await self._try(method, query(path, values or {}), body, _share(repeat, whole_s, left_s))
            except Denied as error:
                if error.status != 401 or renewed or not self._token.renewed():
                    raise
                renewed = True
            except Lost as lost:
                after_s = getattr(lost.error, "retry_after_s", None)
                pause_s = plan.pause_s(lost.failure, end - now(), after_s, os.urandom(1)[0] / 255)
                if pause_s is None or lost.final:
                    raise _ended(lost.error, plan, request) from lost.__cause__
                await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def stream(self, path: str, values: Mapping[str, object]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer that may never end, as they come.  One try; raises `Unavailable` if the connection breaks,
        `TimedOut` after `SILENCE_S` without a byte, `Untrusted`."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        try:
            async with self._opened().get(
                self.url + query(path, values), headers=self._headers(), timeout=timeout
            ) as got:
                if got.status >= 300:
                    answer = Answer(got.status, _lower(got.headers), await got.read())
                    raise refusal(answer.status, answer.headers, answer.content())
                yield got.content.iter_chunked(CHUNK_BYTES)
        except aiohttp.ServerTimeoutError as error:
            raise TimedOut(f"{self.url} is silent") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            wrong = untrusted(self.url, error)
            raise wrong or Unavailable(f"{self.url} does not answer: {_words(error)}") from error

    async def _try(self, method: str, path: str, body: bytes | None, within_s: float) -> Answer:
        """One exchange.  Raises `Lost`, `Refused`, `Untrusted`."""
        import aiohttp

        connect_s = min(CONNECT_S, within_s * 0.9)  # so that it is known whether a request was sent
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        try:
            async with (
                asyncio.timeout(within_s),
                self._opened().request(
                    method,
                    self.url + path,
                    data=body,
                    headers=self._headers(body),
                    timeout=timeout,
                    allow_redirects=False,
                ) as got,
            ):
                answer = Answer(got.status, _lower(got.headers), await got.read())
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:  # to connect: no other is set
            if (no_trust := untrusted(self.url, error)) is not None:
                raise no_trust from error
            wrong = Unavailable(f"{self.url} does not answer: {_words(error)}", hint=_RUNNING)
            raise Lost(Failure.UNSENT, wrong, final=isinstance(error, aiohttp.ClientSSLError)) from error
        except TimeoutError as error:
            raise Lost(Failure.UNANSWERED, TimedOut(f"{self.url} has not answered in time")) from error
        except (aiohttp.ClientError, OSError) as error:
            wrong = Unavailable(f"{self.url} has not answered: {_words(error)}", hint=_RUNNING)
            raise Lost(Failure.UNANSWERED, wrong) from error
        if answer.status < 300:
            return answer
        raise self._refused(answer)

    def _refused(self, answer: Answer) -> Exception:
        error = refusal(answer.status, answer.headers, answer.content())
        if isinstance(error, Unavailable):
            lost = answer.status != 503  # a proxy, or a process that ended: what became of the request is not known
            return Lost(Failure.UNANSWERED if lost else Failure.UNAVAILABLE, error)
        if isinstance(error, OverLimit) and answer.status == 429:
            return Lost(Failure.BUSY, error)
        return error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=KEEPALIVE_S, ssl=self._tls)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=False)
        return self._session

    def _headers(self, body: bytes | None = None) -> dict[str, str]:
        found = {"Accept": "application/json", "User-Agent": self._agent}
        if self._token.text:
            found["Authorization"] = f"Bearer {self._token.text}"
        return found if body is None else found | {"Content-Type": "application/json"}


_RUNNING: Final = "`phoenix status` shows what is running"


def _share(repeat: Repeat, whole_s: float, left_s: float) -> float:
    """Rule 2."""
    return max(0.0, left_s if repeat is Repeat.ONCE else min(left_s, whole_s / 2))


def _ended(error: PhoenixError, plan: Plan, request: str) -> PhoenixError:
    """The error of the call, after the last try."""
    error.request = request
    if plan.unanswered:
        error.unanswered = True
        error.message += f"; {NOT_KNOWN}"
        error.args = (error.message,)
        error.hint = f"the same call with request={request!r} is done at most once" if request else error.hint
    return error


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends; what stands behind the last end is no whole line, and is left out."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > LINE_MAX:
            raise Unreadable(f"a line of more than {LINE_MAX} bytes")
