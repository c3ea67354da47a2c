"""The same as `told` for reasons of web departments alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.sentences.params import Params
from schemas.sentences.units import count, span


def draining(p: Params) -> str | None:
    if "left_s" not in p:
        return None
    one = p.number("instances") == 1
    return (
        f"{count(p.number('instances'), 'instance')} {'drains' if one else 'drain'}: no new session goes there, and "
        f"{'it stops' if one else 'they stop'} when the open ones have ended, in {span(p['left_s'])} at the latest"
    )


def unreachable(p: Params) -> str | None:
    if "units" not in p:
        return None
    one = p.number("instances") == 1
    return (
        f"the load balancer does not reach {p.names('units')}: {'it is' if one else 'they are'} replaced, "
        f"{'once its successor serves' if one else 'one at a time'}"
    )


def scale_up(p: Params) -> str | None:
    return f"the load asks for {count(p.number('instances'), 'instance')}" if "instances" in p else None


TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    "draining": draining,
    "scale_up": scale_up,
    "unreachable": unreachable,
}
