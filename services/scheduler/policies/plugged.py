"""A policy of somebody else, between the core and what it does not trust.

What it decides: nothing.  It passes on what the plug-in says, or ends the process with a sentence that names the policy and its
package.

Rules
  1. What a plug-in raises is told with its name, and ends the process (`Exit.POLICY`): cores are deterministic, so whoever
     asked again would hear the same; and to decide by another policy than the one that was chosen is worse than to wait.
  2. So does an answer of a wrong form: units that do not wait, hosts that are not free, a number that is none.  Custody would
     void such facts again and again; here it is told at once, and whose fault it is.
  3. Whether it is a good policy is not judged here; what else must hold is for `phoenix policies check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

from schemas.config import WebPolicy
from schemas.reasons import Reason
from services.runtime.exits import Exit, Stop
from services.scheduler.policies.order import Order, Situation, Start
from services.scheduler.policies.scale import Memory, Rule
from services.scheduler.policies.victims import Candidate, Choice, HostLoad, Victims
from services.scheduler.shape import Shape

P = ParamSpec("P")
T = TypeVar("T")


def order(policy: Order, who: str) -> Order:
    """`who`: the policy and its package, for messages."""

    def plan(situation: Situation) -> list[Start]:
        starts = _heard(policy.plan, f"{who} in plan")(situation)
        wrong = wrong_starts(situation, starts)
        if wrong:
            _refuse(who, f"plan: {wrong}")
        return starts

    parts = {name: getattr(policy, name) for name in Order._fields if name != "plan" and hasattr(policy, name)}
    heard: dict[str, Any] = {n: _heard(part, f"{who} in {n}") if callable(part) else part for n, part in parts.items()}
    return Order(plan, **heard)


def victims(policy: Victims, who: str) -> Victims:
    def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
        choice = _heard(policy, f"{who} in its choice")(hosts, candidates, count)
        wrong = wrong_choice(hosts, candidates, count, choice)
        if wrong:
            _refuse(who, f"its choice: {wrong}")
        return choice

    return choose


def rule(policy: Rule, who: str) -> Rule:
    def wanted(memory: Memory, serving: int, current: int, settings: WebPolicy) -> tuple[int, Reason]:
        number = _heard(policy.wanted, f"{who} in wanted")(memory, serving, current, settings)
        wrong = wrong_number(number)
        if wrong:
            _refuse(who, f"wanted: {wrong}")
        return number

    return Rule(_heard(policy.follow, f"{who} in follow"), wanted, bool(policy.hurried))


def wrong_starts(situation: Situation, starts: list[Start]) -> str:
    """What is wrong with the form of starts; empty if nothing is (rule 2)."""
    if not isinstance(starts, list) or not all(isinstance(start, Start) for start in starts):
        return f"it should return a list of Start, not {starts!r:.200}"
    if len(starts) > situation.most:
        return f"it starts {len(starts)} units, and {situation.most} are allowed"
    seen: dict[str, None] = {}
    for start in starts:
        shape = _shape(situation, start.unit)
        if shape is None:
            return f"it starts {start.unit!r}, which does not wait"
        if start.unit in seen:
            return f"it starts {start.unit!r} twice"
        seen[start.unit] = None
        if start.shape != shape:
            return f"it gives {start.unit!r} another shape: {start.shape} for {shape}"
        if len(dict.fromkeys(start.hosts)) != start.shape.nodes or len(start.hosts) != start.shape.nodes:
            return f"it gives {start.unit!r} the hosts {start.hosts}: {start.shape.nodes} different ones are needed"
        if not isinstance(start.reason, Reason):
            return f"it starts {start.unit!r} without a Reason"
    return ""


def _shape(situation: Situation, unit: str) -> Shape | None:
    """Of a unit that waits, in a lane or for its time slot."""
    where, booking = situation.queue.where.get(unit), situation.queue.bookings.get(unit)
    return where[0].key.shape if where is not None else booking.shape if booking is not None else None


def wrong_choice(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int, choice: Choice) -> str:
    """What is wrong with the form of a choice; empty if nothing is (rule 2)."""
    if not isinstance(choice, Choice):
        return f"it should be a Choice, not {choice!r:.200}"
    strangers = [unit for unit in choice.victims if unit not in candidates]
    if strangers:
        return f"{strangers[0]!r} does not run there"
    if len(dict.fromkeys(choice.victims)) != len(choice.victims):
        return f"a victim is named twice: {choice.victims}"
    units = {host.name: host.units for host in hosts}
    ended = dict.fromkeys(choice.victims)
    for name in choice.hosts:
        if name not in units:
            return f"{name!r} is not one of the hosts"
        if any(unit not in ended for unit in units[name]):
            return f"{name!r} is not empty when the victims have ended"
    wanted = min(count, len(hosts))
    if len(dict.fromkeys(choice.hosts)) != wanted or len(choice.hosts) != wanted:
        return f"it gives back {len(dict.fromkeys(choice.hosts))} hosts, and {wanted} are asked for"
    return ""


def wrong_number(number: tuple[int, Reason]) -> str:
    """What is wrong with the form of a number of instances; empty if nothing is (rule 2)."""
    if not isinstance(number, tuple) or len(number) != 2 or not isinstance(number[1], Reason):
        return f"it should return a number of instances and a Reason, not {number!r:.200}"
    if isinstance(number[0], bool) or not isinstance(number[0], int) or number[0] < 0:
        return f"the number of instances should be a whole number of 0 or more, not {number[0]!r}"
    return ""


def _heard(function: Callable[P, T], who: str) -> Callable[P, T]:
    """Rule 1."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise Stop(Exit.POLICY, f"{who}: {type(error).__name__}: {error}; its author must mend that") from error

    return call


def _refuse(who: str, what: str) -> NoReturn:
    raise Stop(Exit.POLICY, f"{who}: {what}; its author must mend that")
