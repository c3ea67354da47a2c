"""The same as `told` for reasons of web departments alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.units import count, span
from services.domain.text.params import Params
from services.domain.text.told_signals import claims


def draining(p: Params) -> str | None:
    if "left_s" not in p:
        return None
    one = p.number("instances") == 1
    return (
        f"{count(p.number('instances'), 'instance')} {'drains' if one else 'drain'}: no new session goes there, and "
        f"{'it stops' if one else 'they stop'} when the open ones have ended, in {span(p['left_s'])} at the latest"
    )


def unreachable(p: Params) -> str | None:
    if "unreachable_s" in p:
        return f"the load balancer has not reached it for {p['unreachable_s']:g} s"
    return None


def starting(p: Params) -> str | None:
    one = p.number("instances") == 1
    return (
        f"{count(p.number('instances'), 'instance')} {'is' if one else 'are'} being started{_answer(p)}"
        if "instances" in p
        else None
    )


def _answer(p: Params) -> str:
    return f"; by now {p['answer']}" if p.get("answer") else ""


def scaled(p: Params) -> str | None:
    """Up or down: the number that is wanted then."""
    if p.get("by") and "instances" in p:
        return claims(p)
    return f"the load asks for {count(p.number('instances'), 'instance')}" if "instances" in p else None


def by_person(p: Params) -> str | None:
    if "minimum" in p:
        return f"a person set the number of instances: at least {p['minimum']}, at most {p['maximum']}"
    number = p.get("exact", p.get("instances"))
    return None if number is None else f"a person set the number of instances to {number}"


def room_beside(p: Params) -> str | None:
    """Why the hosts are others though the instances are as many."""
    found, surge, drains = [], p.number("surge"), p.number("draining")
    if surge:
        found.append(f"release {p['release']} is rolled out with {count(surge, 'instance')} more (max_surge)")
    if p.number("not_ready") or p.number("unreachable"):  # the second one in old journals
        some = p.number("not_ready") or 1
        found.append(f"{count(some, 'successor')} {'comes' if some == 1 else 'come'} for instances that are not ready")
    if drains:
        found.append(f"{count(drains, 'instance')} still {'drains' if drains == 1 else 'drain'}")
    if p.get("cordoned"):
        found.append(f"{p.names('cordoned')} {'is' if len(p['cordoned']) == 1 else 'are'} cordoned and still in use")
    if p.number("small"):
        small = p.number("small")
        found.append(f"{count(small, 'host')} {'is' if small == 1 else 'are'} too small for an instance")
    if p.get("freed"):
        found.append(f"what {p.names('freed')} carried has ended")
    return "; ".join(found) or None


def at_maximum(p: Params) -> str | None:
    by = f"; {p['by']} claims {p['claimed']}" if "by" in p and "claimed" in p else ""
    return f"{told}{by}" if (told := bound("maximum")(p)) else None


def bound(which: str) -> Callable[[Params], str | None]:
    """At the department's minimum or maximum."""

    def told(p: Params) -> str | None:
        return f"the department is at its {which} of {count(p.number(which), 'instance')}" if which in p else None

    return told


TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    "draining": draining,
    "at_maximum": at_maximum,
    "at_minimum": bound("minimum"),
    "room_beside": room_beside,
    "scale_down": scaled,
    "scale_up": scaled,
    "scaled_by_person": by_person,
    "starting": starting,
    "unreachable": unreachable,
}
