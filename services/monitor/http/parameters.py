"""Parameters of a read's query: what was meant, or a `Fault` that names the field and what would be right."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeVar

from aiohttp import web

from services.monitor.http.http_error import Fault

SHOWN_MAX: Final = 40  # characters of what was written, in the words of a refusal
Choice = TypeVar("Choice", bound=str)
NUMBER_MAX: Final = 1e15  # farther than any time or position, and exact as a float


def number_of(request: web.Request, name: str, default: float = 0.0) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise Fault(400, "invalid", f"{name}={text!r} is not a number", name) from None
    if not -NUMBER_MAX < value < NUMBER_MAX:
        raise Fault(400, "invalid", f"{name}={text!r} is out of range", name)
    return value


def limit_of(request: web.Request, most: int, default: int | None = None) -> int:
    """The query's `limit`, at most `most`; without one `default`, else `most`."""
    asked = int(number_of(request, "limit", float(most if default is None else default)))
    return max(0, min(asked, most))


def choice_of(request: web.Request, name: str, known: Collection[Choice], default: Choice) -> Choice:
    """One of `known`; `default`, which need not be one, if nothing else is said."""
    text = request.query.get(name, default)
    for one in (default, *known):
        if text == one:
            return one
    raise Fault(400, "invalid", f"{name}={text[:SHOWN_MAX]!r} is none of {', '.join(known)}", name)


def is_set(request: web.Request, name: str) -> bool:
    return request.query.get(name) in ("1", "true")
