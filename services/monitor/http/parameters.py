"""Parameters of a read's query: what was meant, or a `Fault` that names the field and what would be right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeVar

from aiohttp import web

from schemas.reads import BY_PATH, POSITION_MAX
from schemas.times import received
from schemas.validation import no_such
from services.monitor.http.http_error import Fault

SHOWN_MAX: Final = 40  # characters of what was written, in the words of a refusal
Choice = TypeVar("Choice", bound=str)
_NAMES: Final = {path: tuple(parameter.name for parameter in read.query) for path, read in BY_PATH.items()}


@web.middleware
async def known(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
    """A parameter that the read does not have is refused: it would change nothing, and its sender would not know."""
    resource = request.match_info.route.resource
    names = _NAMES.get(resource.canonical) if resource is not None else None
    if names is None:
        return await handler(request)
    for name in request.query:
        if name not in names:
            shown = name[:SHOWN_MAX]
            raise Fault(400, "invalid", f"{shown}: {no_such('parameter', name, names)}", shown)
    return await handler(request)


def time_of(request: web.Request, name: str, default: float) -> float:
    """UTC seconds of an RFC 3339 time; `default` without one."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        return received(text)
    except ValueError:
        wrong = f"{name}={text[:SHOWN_MAX]!r} is no time such as 2026-02-03T04:05:06Z"
        raise Fault(400, "invalid", wrong, name) from None


def integer_of(request: web.Request, name: str, default: int, most: int = POSITION_MAX, least: int = 0) -> int:
    """A whole number from `least` to `most`; `default` without one."""
    text = request.query.get(name)
    if text is None:
        return default
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    if not least <= value <= most:
        wrong = f"{name}={text[:SHOWN_MAX]!r} is no whole number from {least} to {most}"
        raise Fault(400, "invalid", wrong, name)
    return value


def limit_of(request: web.Request, most: int, default: int | None = None) -> int:
    """The query's `limit`; without one `default`, else `most`."""
    return integer_of(request, "limit", most if default is None else default, most)


def choice_of(request: web.Request, name: str, known: Collection[Choice], default: Choice) -> Choice:
    """One of `known`; without one `default`, which need not be one."""
    text = request.query.get(name)
    if text is None:
        return default
    for one in known:
        if text == one:
            return one
    raise Fault(400, "invalid", f"{name}={text[:SHOWN_MAX]!r} is none of {', '.join(known)}", name)


def several_of(request: web.Request, name: str) -> tuple[str, ...]:
    """The words of a parameter with commas; one that is repeated, as many clients send lists, has those of all."""
    return tuple(word for text in request.query.getall(name, ()) for word in text.split(",") if word)


def is_set(request: web.Request, name: str) -> bool:
    """True of 1 and true, False of 0, false and nothing."""
    text = request.query.get(name, "0")
    if text not in ("0", "1", "false", "true"):
        raise Fault(400, "invalid", f"{name}={text[:SHOWN_MAX]!r} is neither true nor false", name)
    return text in ("1", "true")
