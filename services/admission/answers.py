"""What both HTTP sides share: answers and errors."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from schemas.problems import TOO_LARGE, problem
from schemas.validation import UNREADABLE, misfit, unreadable
from services.admission.storage.payloads import TooLarge
from services.domain.refusal import Refused
from services.runtime.http.answers import JSON, LEAST_OF_ERRORS, MSGPACK, UNAUTHORISED, not_routed, problem_answer
from services.runtime.http.body import BodyRefused
from services.runtime.log import Log, frames_of

T = TypeVar("T")
# As JSON has it, but for zeros at its beginning.
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpError(Exception):
    """A refusal with a status of its own."""

    def __init__(self, status: int, refused: Refused) -> None:
        super().__init__(refused.message)
        self.status = status
        self.refused = refused


def unauthorised(why: str = "") -> HttpError:
    return HttpError(UNAUTHORISED, Refused("denied", why or "a valid token is needed: Authorization: Bearer <token>"))


def reply(message: Any, status: int = 200) -> web.Response:
    """As JSON; who wants MessagePack gets it by `answers.as_asked`."""
    return web.Response(body=msgspec.json.encode(message), status=status, content_type=JSON)


def gone() -> web.Response:
    """To a guest: its attempt is over."""
    return problem_answer(problem("gone", "this attempt is over, or there is no next job for this VM"))


def no_content() -> web.Response:
    return web.Response(status=204)


def bearer(request: web.Request) -> str:
    """The token of the request; empty if there is none."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def wrong_parameter(name: str, why: str) -> HttpError:
    """Of a query: its status is that of all parameters, 400."""
    return HttpError(400, Refused("invalid", f"{name}: {why}", name))


def number(request: web.Request, name: str, default: float, high: float) -> float:
    """A query parameter between 0 and `high`.  Raises `HttpError`."""
    text = request.query.get(name)
    if text is None:
        return default
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= value <= high:
        raise wrong_parameter(name, f"{text[:40]!r} is no number from 0 to {high:g}")
    return value


def whole(request: web.Request, name: str, high: int) -> int:
    """A query parameter that is a whole number from 0 to `high`; 0 without one.  Raises `HttpError`."""
    text = request.query.get(name)
    if text is None:
        return 0
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    if not 0 <= value <= high:
        raise wrong_parameter(name, f"{text[:40]!r} is no whole number from 0 to {high}")
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
    """Middleware: what handlers raise becomes a problem."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpError as error:
            return problem_answer(error.refused.problem(error.status))
        except Refused as refused:
            return problem_answer(refused.problem())
        except BodyRefused as error:
            # A guest asks again after 503 alone: a VM that was paused within a call loses no output (docs/reference/guests.md).
            if error.status in (408, 429) and request.path.startswith("/v1/guest/"):
                return problem_answer(problem("unavailable", error.message))
            return problem_answer(error.problem())
        except TooLarge as error:
            return problem_answer(problem("limit", str(error), status=TOO_LARGE))
        except TimeoutError:
            return problem_answer(problem("unavailable", "not done in time: try again"))
        except web.HTTPException as error:
            if error.status < LEAST_OF_ERRORS:
                raise
            return not_routed(request, error)
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception as error:
            fields = {"method": request.method, "path": request.path, "error": type(error).__name__}
            log.error("request failed", **fields, trace=frames_of(error))
            return problem_answer(problem("failed", "internal error; admission's log has the details"))

    return middleware
