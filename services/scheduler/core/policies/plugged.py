"""Third-party policies, wrapped: the core does not trust what they return.

What it decides: nothing.  It passes on what the plug-in returns, or ends the process with a message that names the policy and
its package.

Rules
  1. An exception in a plug-in is reported with the plug-in's name, and ends the process (`Exit.POLICY`): cores are
     deterministic, so the next call would raise it again; and to decide by another policy than the one that was chosen is worse
     than to wait.
  2. So does an answer of a wrong form: units that do not wait, names that are no names, a number that is none, a reason that
     cannot be serialised.  Readers of the journal would void such facts again and again; here the error is reported at once,
     with the policy that made it.
  3. Nothing is preempted but best-effort that runs, for production, by an order that declares that it chooses victims
     (`makes_way`).
  4. Whether it is a good policy is not judged here; `phoenix policies check` checks what else must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast

import msgspec

from schemas.reasons import Reason
from services.domain.exits import Exit, Stop
from services.scheduler.core.policies.order import Order, Plan, Reserved, Situation, Start
from services.scheduler.core.policies.scale import Memory, Rule
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad, Victims
from services.scheduler.core.state.shape import Shape

P = ParamSpec("P")
T = TypeVar("T")
REASON_MAX: Final = 4096  # bytes of one reason: a few names and numbers; a thousand stand in one envelope


def order(policy: Order, who: str) -> Order:
    """`who`: the policy and its package, for messages."""
    parts = {name: getattr(policy, name) for name in Order._fields if hasattr(policy, name)}
    made = Order(**parts)
    if made.keeps_slots and not made.makes_way:
        _refuse(who, "it keeps the slots of leases, and does not say makes_way=True")

    def wrong(situation: Situation, plan: Plan) -> str:
        return wrong_plan(situation, plan, makes_way=bool(made.makes_way))

    judged = _judged(_heard(made.plan, f"{who} in plan"), wrong, who, "plan")
    hosts = made.hosts and _judged(_heard(made.hosts, f"{who} in hosts"), _wrong_hosts, who, "hosts")

    def plan(situation: Situation) -> Plan:
        return _plan(judged(situation), situation, who)

    return made._replace(plan=plan, hosts=hosts)


def _plan(plan: Plan, situation: Situation, who: str) -> Plan:
    """Guarded units are not preempted for a later slot either; what is computed later is checked like the rest."""
    clear = [pair for pair in plan.clear if not situation.guarded(pair[0])]
    waits = {lane: _heard(wait, f"{who} in waits") for lane, wait in plan.waits.items()}
    return plan._replace(clear=clear, waits=waits, rest=_rest(plan.rest, who) if plan.rest is not None else None)


def _rest(rest: Callable[[float], Plan], who: str) -> Callable[[float], Plan]:
    ask = _judged(_heard(rest, f"{who} in rest"), lambda _now, plan: wrong_kind(plan), who, "rest")

    def heard(now: float) -> Plan:
        plan = ask(now)
        waits = {lane: _heard(wait, f"{who} in waits") for lane, wait in plan.waits.items()}
        return plan._replace(waits=waits, reservations=_each(plan.reservations, who))

    return heard


def _each(reservations: Iterable[Reserved], who: str) -> Iterator[Reserved]:
    """One by one, as they are computed."""
    more, end = iter(reservations), cast("Reserved", None)
    step = _judged(_heard(partial(next, more, end), f"{who} in reservations"), wrong_reserved, who, "reservations")
    while (found := step()) is not end:
        yield found


def _wrong_hosts(_situation: Situation, _kinds: Sequence[tuple[int, int]], count: object) -> str:
    return "" if _is_count(count) else f"it wants {count!r} hosts"


def victims(policy: Victims, who: str) -> Victims:
    return _judged(_heard(policy, f"{who} in its choice"), wrong_choice, who, "its choice")


def rule(policy: Rule, who: str) -> Rule:
    follow = _judged(_heard(policy.follow, f"{who} in follow"), lambda *given: wrong_memory(given[-1]), who, "follow")
    wanted = _judged(_heard(policy.wanted, f"{who} in wanted"), lambda *given: wrong_number(given[-1]), who, "wanted")
    return Rule(follow, wanted, bool(policy.hurried))


def wrong_plan(situation: Situation, plan: Plan, *, makes_way: bool = True) -> str:
    """What is wrong with the form of a plan; empty if nothing is (rules 2 and 3).  `rest` is judged when it is asked for."""
    wrong = wrong_kind(plan)
    if wrong:
        return wrong
    if not isinstance(plan.reservations, list | tuple):
        return f"its reservations should be a list of Reserved, not {plan.reservations!r:.200}"
    wrong = next((wrong for each in plan.reservations if (wrong := wrong_reserved(each))), "")
    return wrong or wrong_starts(situation, plan.starts, makes_way=makes_way) or _wrong_times(situation, plan)


def wrong_kind(plan: Plan) -> str:
    if not isinstance(plan, Plan):
        return f"it should return a Plan, not {plan!r:.200}"
    if not isinstance(plan.waits, Mapping) or not all(map(callable, plan.waits.values())):
        return f"its waits should have a function for each lane, not be {plan.waits!r:.200}"
    if not (plan.rest is None or callable(plan.rest)):
        return f"its rest should be a function or None, not {plan.rest!r:.200}"
    return ""


def wrong_reserved(reserved: Reserved | None) -> str:
    """None: there are no more."""
    if reserved is None:
        return ""
    if not isinstance(reserved, Reserved) or not _are_texts((reserved.unit,), tuple) or not _is_time(reserved.at):
        return f"each reservation should be a Reserved, not {reserved!r:.200}"
    return ""


def wrong_starts(situation: Situation, starts: list[Start], *, makes_way: bool = True) -> str:
    """What is wrong with the form of starts; empty if nothing is (rules 2 and 3)."""
    if not isinstance(starts, list) or not all(isinstance(start, Start) for start in starts):
        return f"what starts should be a list of Start, not {starts!r:.200}"
    if len(starts) > situation.most:
        return f"it starts {len(starts)} units, and {situation.most} are allowed"
    seen: dict[str, None] = {}
    for start in starts:
        wrong = _wrong_start(situation, start)
        if wrong:
            return wrong
        if start.unit in seen:
            return f"it starts {start.unit!r} twice"
        seen[start.unit] = None
    return _wrong_victims(situation, starts, makes_way)


def _wrong_start(situation: Situation, start: Start) -> str:
    shape = _shape(situation, start.unit) if _are_texts((start.unit,), tuple) else None
    if shape is None:
        return f"it starts {start.unit!r}, which does not wait"
    if start.shape != shape:
        return f"it gives {start.unit!r} another shape: {start.shape} for {shape}"
    if not _are_texts(start.hosts, tuple):
        return f"it gives {start.unit!r} the hosts {start.hosts!r:.200}: a tuple of names is needed"
    if len(dict.fromkeys(start.hosts)) != start.shape.nodes or len(start.hosts) != start.shape.nodes:
        return f"it gives {start.unit!r} the hosts {start.hosts}: {start.shape.nodes} different ones are needed"
    wrong = wrong_reason(start.reason)
    return f"it starts {start.unit!r} {wrong}" if wrong else ""


def _wrong_victims(situation: Situation, starts: list[Start], makes_way: bool) -> str:
    """Rule 3."""
    seen: dict[str, None] = {}
    for start in starts:
        if not _are_texts(start.victims, tuple):
            return f"the victims for {start.unit!r} should be a tuple of units, not {start.victims!r:.200}"
        if start.victims and not makes_way:
            return f"it names victims for {start.unit!r}, and does not say makes_way=True"
        waiting = situation.queue.where.get(start.unit)
        if start.victims and waiting is not None and waiting[0].key.kind.best_effort:
            return f"it names victims for {start.unit!r}, which is best-effort itself"
        for unit in start.victims:
            if unit in seen:
                return f"it names the victim {unit!r} twice"
            if unit not in situation.forecast().best_effort:
                return f"it names the victim {unit!r}, which is no best-effort that runs"
            seen[unit] = None
    return ""


def _wrong_times(situation: Situation, plan: Plan) -> str:
    """Of the victims for slots, and of the next moment."""
    if not isinstance(plan.clear, Sequence):
        return f"its clear should be a list of unit and lease, not {plan.clear!r:.200}"
    for pair in plan.clear:
        if not _are_texts(pair, tuple) or len(pair) != 2:
            return f"its clear should hold pairs of unit and lease, not {pair!r:.200}"
        unit, lease = pair
        if unit not in situation.forecast().best_effort:
            return f"it clears {unit!r}, which is no best-effort that runs"
        if lease not in situation.queue.bookings:
            return f"it clears {unit!r} for {lease!r}, which is no lease that waits for its slot"
    if not _is_time(plan.due) or not plan.due > situation.now:
        return f"the next moment should be a time after {situation.now!r}, not {plan.due!r}"
    return ""


def wrong_reason(reason: Reason) -> str:
    """What is wrong with a reason, as the end of a sentence; empty if nothing is."""
    if not isinstance(reason, Reason):
        return "without a Reason"
    try:
        text = msgspec.json.encode(reason)
        msgspec.json.decode(text, type=Reason)  # as in the journal
        msgspec.msgpack.encode(reason)  # as in a snapshot
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        return f"with a Reason that cannot be written: {error}"
    return f"with a Reason of {len(text)} bytes: {REASON_MAX} are allowed" if len(text) > REASON_MAX else ""


def _are_texts(names: object, *forms: type) -> bool:
    """True if these are names, and nothing that only looks like them: subclasses cannot be written."""
    return isinstance(names, forms) and all(type(name) is str for name in cast("tuple[object, ...]", names))


def _is_time(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool)


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _shape(situation: Situation, unit: str) -> Shape | None:
    """Of a unit that waits, in a lane or for its time slot."""
    where, booking = situation.queue.where.get(unit), situation.queue.bookings.get(unit)
    return where[0].key.shape if where is not None else booking.shape if booking is not None else None


def wrong_choice(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int, choice: Choice) -> str:
    """What is wrong with the form of a choice; empty if nothing is (rule 2)."""
    if not isinstance(choice, Choice):
        return f"it should be a Choice, not {choice!r:.200}"
    if not (_are_texts(choice.victims, list, tuple) and _are_texts(choice.hosts, list, tuple)):
        return f"its victims and hosts should be lists of names, not {choice!r:.200}"
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
    if not _is_count(number[0]):
        return f"the number of instances should be a whole number of 0 or more, not {number[0]!r}"
    wrong = wrong_reason(number[1])
    return f"a number of instances {wrong}" if wrong else ""


def wrong_memory(memory: Memory) -> str:
    """What is wrong with what a scaling rule remembers; empty if nothing is.  It must be the same after a restart."""
    try:
        if isinstance(memory, Memory) and msgspec.json.decode(msgspec.json.encode(memory), type=Memory) == memory:
            return ""
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        return f"what it remembers cannot be written: {error}"
    return f"it should return a Memory of samples and a Track, not {memory!r:.200}"


def _heard(function: Callable[P, T], who: str) -> Callable[P, T]:
    """Rule 1."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise Stop(Exit.POLICY, f"{who}: {type(error).__name__}: {error}; its author must mend that") from error

    return call


def _judged(function: Callable[..., T], wrong: Callable[..., str], who: str, part: str) -> Callable[..., T]:
    """Rule 2.  `wrong`: what is wrong with an answer, given what was asked."""

    def call(*args: Any) -> T:
        answer = function(*args)
        why = wrong(*args, answer)
        if why:
            _refuse(who, f"{part}: {why}")
        return answer

    return call


def _refuse(who: str, what: str) -> NoReturn:
    raise Stop(Exit.POLICY, f"{who}: {what}; its author must mend that")
