"""The form of every error over HTTP: ``{"ok": false, "error": {code, field, message}}``, as the caller reads it.

Rules
  1. Callers that send MessagePack, or accept nothing but it, get MessagePack; all others JSON.
  2. Every error is made here, whatever found it: a handler, the router, the parser of HTTP.
  3. Every answer has the type that it declares (`nosniff`), and no cache on the way keeps it, unless its handler allows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"


SAFE: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def made_safe(app: web.Application) -> web.Application:
    """Rule 3, for all answers of `app`."""

    async def complete(_request: web.Request, answer: web.StreamResponse) -> None:
        for name, value in SAFE.items():
            answer.headers.setdefault(name, value)

    app.on_response_prepare.append(complete)
    return app


def wants_msgpack(request: web.BaseRequest) -> bool:
    """Rule 1.  What is accepted counts before what is sent."""
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("Accept", "").split(",")]
    for kind in accepted:
        if kind in (JSON, MSGPACK):
            return kind == MSGPACK
    sent = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return sent == MSGPACK


@web.middleware
async def as_asked(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
    """Rule 1, for whatever a handler answers as JSON.  Streams stay what they are: lines, and server-sent events."""
    given = await handler(request)
    told = given.body if isinstance(given, web.Response) and given.content_type == JSON else None
    if isinstance(told, bytes) and wants_msgpack(request):
        given.body = msgspec.msgpack.encode(msgspec.json.decode(told))
        given.content_type = MSGPACK
    return given


def allowed(error: web.HTTPException) -> dict[str, str]:
    """The header `Allow` of a 405."""
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}


def answer(request: web.BaseRequest, value: Any, status: int = 200) -> web.Response:
    """`value` as the caller reads it."""
    if wants_msgpack(request):
        return web.Response(body=msgspec.msgpack.encode(value), status=status, content_type=MSGPACK, headers=SAFE)
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=JSON, headers=SAFE)


def error_body(code: str, message: str, field: str | None = None) -> bytes:
    return msgspec.json.encode(_error(code, message, field))


def error_response(
    request: web.BaseRequest, status: int, code: str, message: str, field: str | None = None
) -> web.Response:
    return answer(request, _error(code, message, field), status)


def _error(code: str, message: str, field: str | None) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "field": field, "message": message}}
