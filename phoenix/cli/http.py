"""A small HTTP/1.1 client on a plain socket: what the command line needs and nothing else.

Theory of operation
  One request a connection (`Connection: close`), a deadline on every read, and three ways to read the answer: whole, line by
  line while it grows, or as raw bytes with headers.  Addresses, tokens, TLS, errors and the rules of repeating are the client
  library's (`phoenix.client`); its transport is not, because importing aiohttp costs more than the whole of `phoenix queue`, as
  `http.client` does.

Rules
  1. The token goes into the Authorization header and nowhere else: not into errors, not into URLs.
  2. A problem (`schemas.problems`) is read as the library reads it (`phoenix.client.errors`), and becomes a `CliError` with its
     sentence, its field, and the exit code of its class.
  3. A body is read to its announced end: an answer that breaks off is an error, never half a table.
  4. A change that was sent and not answered may have happened: that is an error of its own (`UNKNOWN`).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from phoenix.cli.errors import DENIED, FAILED, UNKNOWN, UNREACHABLE, USAGE, CliError, of_client
from phoenix.client import address
from phoenix.client.address import quote as quote
from phoenix.client.errors import NOT_KNOWN, PhoenixError
from phoenix.client.errors import refusal as error_of

# no answer of ours takes longer, a restart of admission in it; a stream that is silent is asked again
TIMEOUT_S: Final = 30.0
LEAST_S: Final = 0.1  # for what begins when the time is nearly up
HEAD_MAX: Final = 64 << 10  # bytes of status line and headers: more is no answer of ours
_CODES: Final = {400: USAGE, 401: DENIED, 403: DENIED, 404: USAGE, 502: UNREACHABLE, 503: UNREACHABLE, 504: UNREACHABLE}
_REFUSALS: Final = {"unknown": USAGE, "denied": DENIED, "unavailable": UNREACHABLE}
_IN_ADDRESS: Final = ("id", "host")


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


def query(path: str, **values: object) -> str:
    """`path` with a query string of those values that are neither None nor empty."""
    return address.query(path, values)


class Client:
    """The door of one cloud, for one credential."""

    def __init__(self, url: str, token: str = "", *, user: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self.user = user  # for messages
        try:
            self._address = address.parse_url(url)
        except PhoenixError as error:
            raise of_client(error) from error
        self._token = token
        self._timeout_s = timeout_s

    def at(self, url: str) -> Client:
        """The same credential at another address of the cloud."""
        return Client(url, self._token, user=self.user, timeout_s=self._timeout_s)

    def within(self, timeout_s: float) -> Client:
        """The same, with another time limit."""
        return Client(self.url, self._token, user=self.user, timeout_s=max(LEAST_S, timeout_s))

    def get(self, path: str, **values: object) -> Any:
        """The JSON of a read."""
        return _json(self.fetch("GET", query(path, **values)).body)

    def post(self, path: str, payload: object) -> Any:
        try:
            body = orjson.dumps(payload)
        except TypeError as error:  # `--nodes` of 20 digits
            raise CliError(USAGE, f"this cannot be requested: {error}") from error
        return _json(self.fetch("POST", path, body).body)

    def fetch(self, method: str, path: str, body: bytes | None = None) -> Response:
        """One exchange.  CliError for an error status or no answer."""
        with self._open(method, path, body) as connection, connection.makefile("rb") as stream:
            try:
                status, headers = _head(stream)
                answer = Response(status, headers, b"".join(_body(stream, headers)))
            except OSError as error:
                raise self._unanswered(method, error) from error
        if answer.status >= 400:
            raise refusal(answer, self.user)
        return answer

    def lines(self, path: str, **values: object) -> Iterator[bytes]:
        """The lines of an answer that may never end, as they come.  Ends quietly when the server closes it."""
        with self._open("GET", query(path, **values), None) as connection, connection.makefile("rb") as stream:
            try:
                status, headers = _head(stream)
                if status >= 400:
                    raise refusal(Response(status, headers, b"".join(_body(stream, headers))), self.user)
                yield from _split(_body(stream, headers))
            except TimeoutError:
                return
            except OSError as error:
                raise self._unreachable(error) from error

    def _open(self, method: str, path: str, body: bytes | None) -> socket.socket:
        to = self._address
        head = f"{method} {to.base}{path} HTTP/1.1\r\nHost: {to.host}:{to.port}\r\nConnection: close\r\n"
        head += "Accept: application/json\r\n"
        if self._token:
            head += f"Authorization: Bearer {self._token}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        try:
            connection = socket.create_connection((to.host, to.port), timeout=self._timeout_s)
            if to.tls:
                connection = address.tls_context().wrap_socket(connection, server_hostname=to.host)
        except (OSError, UnicodeError) as error:  # a name that none can be
            raise self._unreachable(error) from error
        try:
            connection.sendall(head.encode("latin-1") + b"\r\n" + (body or b""))
        except OSError as error:
            connection.close()
            raise self._unanswered(method, error) from error
        return connection

    def _unreachable(self, error: OSError | UnicodeError) -> CliError:
        if self._address.tls and (no_trust := address.untrusted(self.url, error)) is not None:
            return CliError(DENIED, no_trust.message, no_trust.hint.replace("ca_file, or ", ""))
        return CliError(UNREACHABLE, f"{self.url} does not answer: {error}", "`phoenix status` shows what is running")

    def _unanswered(self, method: str, error: OSError) -> CliError:
        """Rule 4."""
        if method == "GET":
            return self._unreachable(error)
        text = f"{self.url} has not answered: {error}; {NOT_KNOWN}"
        return CliError(UNKNOWN, text, "check the outcome before you try again; `phoenix status` shows what is running")


def refusal(answer: Response, user: str = "") -> CliError:
    """The sentence of a problem, or of what else was answered, with the exit code of its class."""
    found = error_of(answer.status, answer.headers, _content(answer.body))
    error = dict(found.answer) or None
    field, text = str(found.answer.get("field") or ""), found.message
    code = _REFUSALS.get(str(found.answer.get("code")), _CODES.get(answer.status, FAILED))
    if code == DENIED:
        who = f"{user} may not do this" if user else "denied"
        return CliError(DENIED, f"{who}: {text}", "choose another credential with --as USER", error)
    # What is unknown, and what the address names, is named by its sentence.
    named = field and field not in text and field not in _IN_ADDRESS and (code != USAGE or answer.status == 400)
    return CliError(code, f"{field}: {text}" if named else text, answer=error)


def _content(body: bytes) -> object:
    """The decoded JSON, or the text of what is none."""
    try:
        return orjson.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body) if body else {}
    except ValueError as error:
        raise CliError(FAILED, f"the answer is no JSON: {error}") from error


def _head(stream: BinaryIO) -> tuple[int, dict[str, str]]:
    line = stream.readline(HEAD_MAX)
    parts = line.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise ConnectionError("the connection closed without an answer" if not line else "this is no HTTP server")
    headers: dict[str, str] = {}
    while (line := stream.readline(HEAD_MAX)) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers


def _body(stream: BinaryIO, headers: dict[str, str]) -> Iterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(stream.readline(HEAD_MAX).split(b";")[0].strip() or b"0", 16):
            yield _exactly(stream, size)
            stream.readline(HEAD_MAX)
    elif "content-length" in headers:
        yield _exactly(stream, int(headers["content-length"]))
    elif headers:
        yield stream.read()


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError(f"the answer broke off after {len(data)} of {size} bytes")
    return data


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest
