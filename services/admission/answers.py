"""What both HTTP sides share: answers and errors."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from schemas import requests as r
from schemas.validation import UNREADABLE, misfit, unreadable
from services.admission.storage.payloads import TooLarge
from services.domain.refusal import Refused
from services.runtime.http.answers import JSON, MSGPACK, allowed
from services.runtime.http.body import BodyRefused
from services.runtime.log import Log, frames_of

_STATUS: Final[dict[str, int]] = {
    "invalid": 422,
    "unknown": 404,
    "denied": 403,
    "conflict": 409,
    "limit": 429,
    "unavailable": 503,
}
_SIZES: Final = ("script", "inputs")  # a limit on these is one of size
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpError(Exception):
    """An answer with an error object and a status of its own."""

    def __init__(self, status: int, refused: Refused) -> None:
        super().__init__(refused.message)
        self.status = status
        self.refused = refused


def unauthorised(why: str = "") -> HttpError:
    return HttpError(401, Refused("denied", why or "a valid token is needed: Authorization: Bearer <token>"))


def status_of(refused: Refused) -> int:
    if refused.code == "limit" and refused.field in _SIZES:
        return 413
    return _STATUS[refused.code]


def failed(refused: Refused) -> r.Failed:
    lease = refused.lease or msgspec.UNSET
    return r.Failed(error=r.Error(code=refused.code, field=refused.field, message=refused.message, lease=lease))


def reply(message: Any, status: int = 200) -> web.Response:
    """As JSON; who wants MessagePack gets it by `answers.as_asked`."""
    return web.Response(body=msgspec.json.encode(message), status=status, content_type=JSON)


def error_reply(refused: Refused, status: int | None = None) -> web.Response:
    answer = reply(failed(refused), status or status_of(refused))
    if answer.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if answer.status == 429:
        answer.headers["Retry-After"] = "1"
    return answer


def gone() -> web.Response:
    """To a guest: its attempt is over."""
    return web.Response(status=410, body=b'{"status":"gone"}', content_type=JSON)


def no_content() -> web.Response:
    return web.Response(status=204)


def bearer(request: web.Request) -> str:
    """The token of the request; empty if there is none."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def number(request: web.Request, name: str, default: float, high: float) -> float:
    """A query parameter between 0 and `high`.  Raises `Refused`."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= high:
        raise Refused("invalid", f"{name}: {text[:40]!r} is no number from 0 to {high:g}", name)
    return value


def is_msgpack(request: web.Request) -> bool:
    """Whether the body is."""
    return request.content_type == MSGPACK


def decoded(request: web.Request, data: bytes, cls: type[T]) -> T:
    """The body `data` of `request`.  Raises `HttpError` 400 with what is wrong."""
    packed, kind = is_msgpack(request), cast("Any", cls)
    empty, form = (b"\x80", "MessagePack") if packed else (b"{}", "JSON")
    try:
        found: T = _decode(kind, packed)(data or empty)
        return found
    except msgspec.ValidationError as error:
        wrong = misfit(error, cls)
    except UNREADABLE as error:
        wrong = unreadable(error, data, form)
    raise HttpError(400, Refused("invalid", wrong.message, wrong.field))


@functools.cache
def _decode(cls: Any, packed: bool) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(cls).decode if packed else msgspec.json.Decoder(cls).decode


def errors_as_answers(log: Log) -> Middleware:
    """Middleware: what handlers raise becomes the contract's error object."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpError as error:
            return error_reply(error.refused, error.status)
        except Refused as refused:
            return error_reply(refused)
        except BodyRefused as error:
            # A guest asks again after 503 alone: a VM that was paused within a call loses no output (docs/reference/guests.md).
            if error.status in (408, 429) and request.path.startswith("/v1/guest/"):
                return error_reply(Refused("unavailable", error.message))
            return error_reply(Refused("invalid" if error.status == 400 else "limit", error.message), error.status)
        except TooLarge as error:
            return error_reply(Refused("limit", str(error)), 413)
        except TimeoutError:
            return error_reply(Refused("unavailable", "not done in time: try again"))
        except web.HTTPException as error:
            if error.status < 400:
                raise
            code: r.ErrorCode = "unknown" if error.status == 404 else "invalid"
            message = f"{request.method} {request.path}: {error.reason}"
            answer = error_reply(Refused(code, message[:500]), error.status)
            answer.headers.update(allowed(error))
            return answer
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception as error:
            fields = {"method": request.method, "path": request.path, "error": type(error).__name__}
            log.error("request failed", **fields, trace=frames_of(error))
            return error_reply(Refused("unavailable", "internal error; admission's log has the details"), 500)

    return middleware
