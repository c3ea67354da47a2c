"""The form of every error over HTTP: a problem (`schemas.problems`), as the caller reads it.

Rules
  1. Callers that send MessagePack, or accept nothing but it, get MessagePack; all others JSON.  A problem has a content type
     of its own in either.
  2. Every error is made here, whatever found it: a handler, the router, the parser of HTTP.
  3. 429 and 503 have `Retry-After`, 401 `WWW-Authenticate`, 405 `Allow`.
  4. Every answer has the type that it declares (`nosniff`), and no cache on the way keeps it, unless its handler allows it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from schemas import problems
from schemas.problems import Problem, problem

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
_PACKED: Final = {JSON: MSGPACK, problems.JSON: problems.MSGPACK}
_IS_PACKED: Final = {kind: packed for pair in _PACKED.items() for kind, packed in zip(pair, (False, True), strict=True)}
UNAUTHORISED: Final = 401
PATH_MAX: Final = 200  # characters of a path in a sentence
LEAST_OF_ERRORS: Final = 400
_SERVER_ERRORS: Final = 500

SAFE: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def made_safe(app: web.Application) -> web.Application:
    """Rule 4, for all answers of `app`."""

    async def complete(_request: web.Request, answer: web.StreamResponse) -> None:
        for name, value in SAFE.items():
            answer.headers.setdefault(name, value)

    app.on_response_prepare.append(complete)
    return app


def wants_msgpack(request: web.BaseRequest) -> bool:
    """Rule 1.  What is accepted counts before what is sent."""
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("Accept", "").split(",")]
    for kind in accepted:
        if kind in _IS_PACKED:
            return _IS_PACKED[kind]
    sent = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return sent == MSGPACK


@web.middleware
async def as_asked(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
    """Rule 1, for whatever a handler answers as JSON.  Streams stay what they are: lines, and server-sent events."""
    given = await handler(request)
    told = given.body if isinstance(given, web.Response) and given.content_type in _PACKED else None
    if isinstance(told, bytes) and wants_msgpack(request):
        given.body = msgspec.msgpack.encode(msgspec.json.decode(told))
        given.content_type = _PACKED[given.content_type]
    return given


def problem_answer(shown: Problem, allow: str = "") -> web.Response:
    """`shown` as JSON, for `as_asked`.  `allow`: the methods that a path has (rule 3)."""
    return web.Response(
        body=msgspec.json.encode(shown),
        status=shown.status,
        content_type=problems.JSON,
        headers=_headers(shown, allow),
    )


def problem_response(request: web.BaseRequest, shown: Problem, allow: str = "") -> web.Response:
    """`shown` as the caller reads it, where no middleware completes the answer."""
    answer = problem_answer(shown, allow)
    answer.headers.update(SAFE)
    if wants_msgpack(request):
        answer.body, answer.content_type = msgspec.msgpack.encode(shown), problems.MSGPACK
    return answer


def not_routed(request: web.BaseRequest, error: web.HTTPException) -> web.Response:
    """aiohttp's own refusal: no such path, no such method, …"""
    code: problems.Code = "unknown" if error.status == problems.KINDS["unknown"].status else "invalid"
    if error.status >= _SERVER_ERRORS:
        code = "failed"
    allowed = error.headers.get("Allow", "")
    hint = f"; allowed: {allowed}" if allowed else "; /openapi.json lists the calls" if code == "unknown" else ""
    detail = f"{request.method} {request.path[:PATH_MAX]}: {error.reason}{hint}"
    return problem_answer(problem(code, detail, status=error.status), allowed)


@web.middleware
async def routed(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
    """Rule 2, of an application whose handlers refuse nothing themselves."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < LEAST_OF_ERRORS:
            raise
        return not_routed(request, error)


def _headers(shown: Problem, allow: str) -> dict[str, str]:
    """Rule 3."""
    found = {"Allow": allow} if allow else {}
    if shown.status == UNAUTHORISED:
        found["WWW-Authenticate"] = "Bearer"
    if shown.retry_after_s is not None:
        found["Retry-After"] = str(max(1, math.ceil(shown.retry_after_s)))
    return found
