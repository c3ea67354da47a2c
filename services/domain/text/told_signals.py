"""Reasons that speak of a web department's load and of its signals, as sentences (see `told`)."""

from __future__ import annotations

from typing import Final

from schemas.units import count, span
from services.domain import signal_drops
from services.domain.signal_drops import CLOCK, Drop
from services.domain.text.params import Params

_UNBLOCK: Final[dict[str, str]] = {
    Drop.NOT_ALLOWED: "send them as a user who may, or name this one in balancers of the department",
    Drop.OUT_OF_ORDER: "give each publisher a `source` of its own",
    Drop.IMPLAUSIBLE: "repair the publisher, or stop it: what it says cannot be so in this department",
    **dict.fromkeys(CLOCK, "set the publisher's clock; who cannot trust its clock leaves `at` out"),
}


def utilisation_low(p: Params) -> str | None:
    return utilisation(p, low=True)


def utilisation(p: Params, low: bool = False) -> str | None:
    if "utilisation" not in p:
        return _asked(p) if "requests_per_s" in p or "open_s" in p else None
    asked = ""
    if "requests_per_s" in p:
        asked = f" ({p['requests_per_s']:g} requests/s, {p['requests_per_instance']:g} for each)"
    measured = f"utilisation was {float(p['utilisation']) * 100:.0f} %{asked}"
    with_n = f"with {count(p.number('instances'), 'instance')}"
    if "target" in p:
        return f"{measured} {with_n}{_tracked(p)}"
    mark = f"; {threshold}" if (threshold := _threshold(p, low)) else ""
    over = f" over {p['window_s']:g} s" if isinstance(p.get("window_s"), int | float) else ""
    return f"{measured}{over} {with_n}{mark}"


def _threshold(p: Params, low: bool) -> str:
    """Of a low load the mark is where one instance fewer would be at the threshold: that of n - 1 in n."""
    if "threshold" not in p:
        return ""
    mark, n = float(p["threshold"]) * 100, p.number("instances")
    if not low or n < 2:
        return f"the threshold is {mark:.0f} %"
    return f"below {mark:.0f} % one fewer is enough, at less than the threshold of {mark * n / (n - 1):.0f} %"


def _tracked(p: Params) -> str:
    """Of rule target-tracking: how many keep the target."""
    target = f"target {'is' if 'wanted' not in p else 'of'} {float(p['target']) * 100:.0f} %"
    if "wanted" not in p:
        return f"; the {target}{_held(p)}"
    if p.number("wanted") > p.number("instances") or not p.get("window_s"):
        return f": {p['wanted']} keep it at the {target}"
    return f": for {span(p.number('window_s'))} at most {p['wanted']} were needed for the {target}"


def _held(p: Params) -> str:
    """If a window holds the number."""
    if "held" not in p:
        return ""
    window, more = span(p.number("held_s")), "fewer" if p.number("asked") < p.number("held") else "more"
    why = f"{'as many' if more == 'fewer' else 'no more'} were wanted within the last {window}"
    if not p.number("against"):
        why = f"the load has not been watched for {window} yet"
    left = f"{more} in {span(p.number('left_s'))} at the earliest"
    return f"; now it asks for {p['asked']}, but {p['held']} are held: {why}; {left}"


def _asked(p: Params) -> str | None:
    """Before there is a mean that could decide."""
    if not p.number("instances"):
        return "no instance is in service yet"
    full = "the window is not full yet"
    if "open_s" in p:
        left = f"in {span(p.number('left_s'))}" if "left_s" in p else "when that is full"
        begins = "it begins anew when the number in service changes, or signals come again"
        full = f"the load of {span(p.number('open_s'))} decides, {left} at the earliest ({begins})"
    if "requests_per_s" not in p:
        return f"the number of instances is held; {full}"
    rate = f"{p['requests_per_s']:g} requests/s arrive, {p['requests_per_instance']:g} are for each of"
    return f"{rate} {count(p.number('instances'), 'instance')}; {full}"


def claimed(p: Params) -> str | None:
    if "instances" not in p:
        return None
    load = f"; the load alone asks for {p['load']}" if "load" in p else ""
    return f"{claims(p)}{load}"


def claims(p: Params) -> str:
    """Who claims so many; a sentence does not begin with a user's name, which would become another one."""
    number = count(p.number("instances"), "instance")
    if not p.get("by"):
        return f"a signal claims {number}"
    return f"{number} {'is' if p.number('instances') == 1 else 'are'} claimed by {p['by']}"


def signal_missing(p: Params) -> str | None:
    if "silent_s" not in p:
        silent = f"for {p['timeout_s']:g} s nobody has said how busy the instances are" if "timeout_s" in p else None
        return f"{silent}: their number is held" if silent else None
    last = ""
    if "signal" in p:
        last = f"; the last one was {p['signal']}" + (f" of {p['source']}" if p.get("source") else "")
    held = f"the number of instances is held after {p['timeout_s']:g} s" if "timeout_s" in p else "their number is held"
    return f"for {span(p['silent_s'])} nobody has said how busy the instances are{last}: {held}"


def signals_dropped(p: Params) -> str | None:
    return signal_drops.sentence(p) if "why" in p else None


def unblock_dropped(p: Params) -> str | None:
    """Where there is more to say than that signals should be as docs/reference/signals.md asks for."""
    if p.get("why") == Drop.NOT_ALLOWED and p.get("signal") == "claim":
        return "claim as a manager of the department, or raise its claim_max_user"
    return _UNBLOCK.get(str(p.get("why")))


def requests_refused(p: Params) -> str | None:
    if "rate" not in p:
        return None
    waited = f", for {span(p.number('for_s'))}" if "for_s" in p else ""
    of = f", with {p.number('instances')} of at most {count(p.number('most'), 'instance')}" if "most" in p else ""
    return f"{p['rate']:g} requests/s are turned away by the load balancer{waited}: no instance has room for them{of}"


def requests_queued(p: Params) -> str | None:
    if "requests" not in p:
        return None
    one = p.number("requests") == 1
    waited = f", for {span(p.number('waited_s'))}" if "waited_s" in p else ""
    seen = [f"{float(p['utilisation']) * 100:.0f} % CPU"] if "utilisation" in p else []
    if "requests_per_instance" in p:
        seen.append(f"{p['requests_per_instance']:g} requests/s as what an instance serves")
    sees = f"; the rule sees {' and '.join(seen)} only" if seen else ""
    of = f" with {count(p.number('instances'), 'instance')}" if "instances" in p else ""
    return (
        f"{count(p.number('requests'), 'request')} {'waits' if one else 'wait'} at the load balancer{waited}{of}{sees}"
    )
