"""Why a host is where it is: its holder and the decision, what runs there, what keeps it from being used, which department may
have it next, and its last moves.  Read from the fold, changing nothing.

Rules
  1. First where it is and why, in the words of the last decision; then what keeps it apart; then the department that may have
     it next.
  2. `reasons` are in that order; each has a sentence, and what a person could do where there is something (`remedy`).
  3. `moves` are the last ones, newest last; `phoenix story HOST` has all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from schemas import facts as f
from schemas.dimensions import DIMENSIONS
from schemas.reasons import Reason
from schemas.units import count, iso, span
from services.domain import grace
from services.domain.custody.state import Host
from services.domain.others import used_by_others
from services.domain.sharing.lending import bounds
from services.domain.text import sentence
from services.domain.text.facts import told
from services.monitor.core.host_history import Step
from services.monitor.core.monitor import MonitorCore

_SET_APART = (f.HostCordoned, f.HostUncordoned, f.HostQuarantined)


class Word(NamedTuple):
    """A sentence, and what would change it."""

    sentence: str
    remedy: str = ""


def explain(core: MonitorCore, name: str, now: float) -> dict[str, Any] | None:
    """None if there is no such host."""
    host = core.custody.state.hosts.get(name)
    if host is None:
        return None
    steps = core.state.moves.hosts.get(name, [])
    words = [
        _where(host, steps, now),
        *_there(host),
        *_left(core, host, now),
        *_ending(core, host, now),
        *_apart(host, now),
        *_next(core, host, now),
    ]
    return {
        "what": "host",
        "name": name,
        "state": host.state,
        "department": host.dept if host.state in ("held", "draining", "lost") else None,
        "since": iso(host.since),
        "told": [word._asdict() for word in words],
        "moves": [shown(step) for step in steps],
    }


def shown(step: Step) -> dict[str, Any]:
    kind, fact = f.kind_of(step.fact), msgspec.to_builtins(step.fact)
    sentence = told(kind, fact, step.department)
    found = {"at": iso(step.at), "position": step.position, "kind": kind, "department": step.department or None}
    return {**found, "reason": fact.get("reason"), "sentence": sentence}


def _where(host: Host, steps: list[Step], now: float) -> Word:
    """Rule 1."""
    for_s = f", for {span(now - host.since)}" if host.since else ""
    last = next((step for step in reversed(steps) if not isinstance(step.fact, _SET_APART)), None)
    reason = getattr(last.fact, "reason", None) if last is not None else None
    why = f": {sentence(reason)}" if isinstance(reason, Reason) else ""
    if host.state == "held":
        return Word(f"held by {host.dept} since {iso(host.since)}{for_s}{why}")
    if host.state == "draining":
        left = count(len(host.vms), "VM")
        return Word(f"it leaves {host.dept} since {iso(host.since)}{for_s}{why}; {left} of the cloud still there")
    if host.state == "lost":
        return Word(f"it is lost since {iso(host.since)}{for_s}: {host.lost}", "bring it back in OpenNebula")
    if host.state == "absent":
        return Word("OpenNebula has it; whether VMs of the cloud are left there has not been checked yet")
    return Word(f"it is free since {iso(host.since)}{for_s}{why}")


def _left(core: MonitorCore, host: Host, now: float) -> list[Word]:
    """Of one that is given up: for whom it waits."""
    return [
        Word(sentence(one)) for one in grace.told([x for x in grace.leavers(core.custody) if x.host == host.name], now)
    ]


def _ending(core: MonitorCore, host: Host, now: float) -> list[Word]:
    """Of one that is given up: VMs that outlive the time in which they should have ended by themselves."""
    custody = core.custody
    config, vms, units = custody.state.config, custody.state.vms, custody.state.units
    leaving = [unit for unit in (units[vms[key].unit] for key in host.vms) if not (unit.suspended or unit.resumes)]
    if host.state != "draining" or config is None or not leaving:
        return []
    ordered = host.since + max(grace.of_unit(custody, unit) for unit in leaving)
    if now < ordered:
        return []
    again = ordered + config.end_again_s * (1 + (now - ordered) // config.end_again_s)
    told = f"the hard end of {count(len(leaving), 'VM')} was ordered at {iso(ordered)} at the latest"
    return [
        Word(f"{told}, and is ordered again at {iso(again)} where it is still under way then", "see onevm show of it")
    ]


def _there(host: Host) -> list[Word]:
    if host.state != "held":
        return []
    if not host.units:
        return [Word("nothing runs there")]
    names = ", ".join(sorted(host.units)[:8]) + (" …" if len(host.units) > 8 else "")
    parts = zip(DIMENSIONS, host.used, host.size, strict=True)
    there = ", ".join(
        f"{used} of {dimension.amount(number)}" for dimension, used, number in parts if dimension.is_shown(number)
    )
    return [Word(f"there: {names}, on {there}")]


def _apart(host: Host, now: float) -> list[Word]:
    found = []
    if host.cordoned is not None:
        found.append(Word(_cordoned(host), f"phoenix hosts uncordon {host.name}"))
    if host.quarantine_until > now:
        until = "" if host.quarantine_until > now + 365 * 86_400 else f" until {iso(host.quarantine_until)}"
        found.append(Word(f"it is set apart{until}: {host.quarantine}"))
    return [*found, *(Word(one.sentence(), one.remedy()) for one in used_by_others([host]))]


def _cordoned(host: Host) -> str:
    """What a person's word means for what runs there."""
    if not host.units:
        return f"it is cordoned: {host.cordoned}"
    if host.drain_until is not None:
        return f"it drains ({host.cordoned}): what still runs there at {iso(host.drain_until)} is ended"
    if host.drain:
        return f"it drains ({host.cordoned}): jobs run to their end, instances are replaced elsewhere"
    return f"it is cordoned ({host.cordoned}): what runs there stays, nothing more is placed there"


def _next(core: MonitorCore, host: Host, now: float) -> list[Word]:
    """Who may have it next, and by which rule."""
    config, dept = core.custody.state.config, host.dept
    holder = config.department(dept) if config is not None and dept is not None and host.state == "held" else None
    if config is None or holder is None:
        return _wanted(core) if host.state == "free" and host.cordoned is None else []
    if host.cordoned is not None:
        return [Word(f"{holder.name} releases it when nothing runs there any longer, and no department gets it")]
    held, quota = core.custody.held(holder.name), core.custody.quota(holder.name)
    found = []
    if held > quota.hosts:
        by = f", until {iso(quota.next_due())}" if quota.lowerings else ""
        found.append(Word(f"on notice: {holder.name} holds {held} and may keep {quota.hosts}{by}"))
    if holder.kind == "web":
        return [*found, Word(f"it goes back when {holder.name} needs fewer hosts than the {held} that it holds")]
    claimants = [each.name for each in config.departments if each.kind == "web"]
    guarantee = bounds(holder, now)[0]
    if claimants and held > guarantee:
        beyond = f"{held - guarantee} of the {held} hosts of {holder.name} are beyond its guarantee of {guarantee}"
        found.append(Word(f"may be claimed by {', '.join(claimants)}: {beyond}", _keep(holder.name)))
    elif claimants:
        found.append(Word(f"web may not claim it: {holder.name} holds no more than its guarantee of {guarantee}"))
    return found


def _keep(department: str) -> str:
    return f"to keep more from web: a higher guarantee of {department} in the configuration"


def _wanted(core: MonitorCore) -> list[Word]:
    """Of a free host: who wants more than it holds."""
    state = core.custody.state
    short = {name: hosts - core.custody.held(name) for name, hosts in sorted(state.demands.items())}
    words = [f"{name} ({count(hosts, 'host')} more)" for name, hosts in short.items() if hosts > 0]
    return [Word(f"departments that demand one: {', '.join(words)}" if words else "no department demands one")]
