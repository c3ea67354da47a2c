"""The rules that a plug-in can be checked against: ours keep them, and each catches a policy that is broken in its way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from phoenix.policies import names
from phoenix.policy_check import (
    ORDER_RULES,
    SCALING_RULES,
    VICTIMS_RULES,
    Violation,
    check_order,
    check_victims,
    orders,
    scaling,
    victims,
)
from phoenix.policy_check import check_scaling as check_rule
from phoenix.policy_check import department as departments
from phoenix.policy_check.rules import Rule as Property
from phoenix.policy_check.rules import attempt
from phoenix.policy_check.verdict import judged
from schemas import reasons as because
from schemas.config import BatchPolicy, WebPolicy
from services.runtime.plugins import KINDS
from services.scheduler.core.policies import registry, scale_threshold
from services.scheduler.core.policies.order import Order, Plan, Situation, Start
from services.scheduler.core.policies.order_easy import plan as easy
from services.scheduler.core.policies.order_first_fit import plan as first_fit
from services.scheduler.core.policies.scale import Heard, Memory, Rule
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad
from services.scheduler.core.state.shape import Place
from tests.support.examples import few

EXAMPLES = few(6, searching=15)  # of ours; they are tried with more in the properties of their own
FITS = because.FirstFit()


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in names(kind)])
def test_ours_keep_every_rule(kind: str, name: str) -> None:
    assert [str(violation) for _, violation in judged(kind, name, EXAMPLES) if violation is not None] == []


def caught(rule: Property[Any, Any], policy: Any, cases: Any, tell: Any) -> None:
    """The rule catches the policy with as many situations as by default."""
    with pytest.raises(Violation) as found:
        attempt(rule, policy, cases, tell, scaling.tries(rule.name, 100), shrink=False)
    assert found.value.rule == rule.text


# ---------------------------------------------------------------------------------------------------------- broken orders

_calls = itertools.count()


def waiting(situation: Situation) -> list[Place]:
    return situation.queue.in_order()


def shape_of(situation: Situation, place: Place) -> Any:
    return situation.queue.where[place.unit][0].key.shape


def raises_when_nobody_waits(situation: Situation) -> Plan:
    min(waiting(situation))
    return first_fit(situation)


def by_a_counter(situation: Situation) -> Plan:
    return first_fit(situation) if next(_calls) % 2 else Plan([])


def uses_up_the_room_it_is_shown(situation: Situation) -> Plan:
    found = []
    for place in waiting(situation)[:1]:
        hosts = situation.room.take(shape_of(situation, place))
        found += [Start(place.unit, shape_of(situation, place), hosts, FITS)] if hosts else []
    return Plan(found)


def forgets_what_it_has_placed(situation: Situation) -> Plan:
    found = []
    for place in waiting(situation):
        hosts = situation.room.pick(shape_of(situation, place))
        found += [Start(place.unit, shape_of(situation, place), hosts, FITS)] if hosts else []
    return Plan(found)


def forgets_the_throttle(situation: Situation) -> Plan:
    room, found = situation.room.copy(), []
    for place in waiting(situation)[: situation.most]:
        hosts = room.take(shape_of(situation, place))
        found += [Start(place.unit, shape_of(situation, place), hosts, FITS)] if hosts else []
    return Plan(found)


def forgets_how_many(situation: Situation) -> Plan:
    return first_fit(situation._replace(most=1000))


def best_effort_chases_best_effort(situation: Situation) -> Plan:
    """Whoever waits takes the place of whoever is best-effort and runs on the right number of hosts."""
    for place in waiting(situation):
        shape, forecast = shape_of(situation, place), situation.forecast()
        for unit, ending in forecast.best_effort.items():
            same = ending.shape == shape and all(host in forecast.held for host in ending.hosts)
            if same and all(forecast.units(host) == 1 for host in ending.hosts):
                return Plan([Start(place.unit, shape, ending.hosts, FITS, (unit,))])
    return first_fit(situation)


def looks_at_the_clock(situation: Situation) -> Plan:
    return first_fit(situation) if situation.now > departments.NOW + 100.0 else Plan([])


def nobody(_situation: Situation) -> Plan:
    return Plan([])


BROKEN_ORDERS: dict[str, Order] = {
    "O1": Order(raises_when_nobody_waits),
    "O2": Order(by_a_counter),
    "O3": Order(uses_up_the_room_it_is_shown),
    "O4": Order(forgets_what_it_has_placed),
    "O5": Order(forgets_the_throttle),
    "O6": Order(forgets_how_many),
    "O7": Order(best_effort_chases_best_effort, foresees=True),
    "O8": Order(looks_at_the_clock),
    "O9": Order(easy, foresees=False),
    "O10": Order(nobody),
}


@pytest.mark.parametrize("rule", ORDER_RULES, ids=lambda rule: rule.name)
def test_each_rule_of_orders_catches_a_broken_one(rule: Any) -> None:
    policy = orders.of("svmsched") if rule.name == "O7" else BatchPolicy()
    checked = orders.Checked(BROKEN_ORDERS[rule.name], policy)
    caught(rule, checked, departments.cases(policy), departments.story)


def test_what_is_shown_is_small_and_can_be_read() -> None:
    with pytest.raises(Violation) as found:
        check_order(Order(forgets_how_many), only=lambda name: name == "O6")
    first, second, *rest = str(found.value).splitlines()
    assert first == "it starts no more than it may: 0 starts are allowed, and it starts 1"
    assert second == "in this situation:"
    assert [line.split()[:2] for line in rest] == [["host", "h1:"], ["job", "1:"]]


def test_what_it_raises_is_told_with_its_line() -> None:
    with pytest.raises(Violation) as found:
        check_order(Order(raises_when_nobody_waits))
    assert found.value.seen.startswith("it raised ValueError: min() arg is an empty sequence (test_policy_check.py:")
    assert found.value.story == "in this situation:\n  no hosts, no jobs"


def test_the_order_in_the_document_keeps_the_rules() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "plugins.md").read_text()
    written: dict[str, Any] = {}
    exec(text.split("```python\n", 1)[1].split("```", 1)[0], written)
    check_order(written["ORDER"], examples=EXAMPLES)


# --------------------------------------------------------------------------------------------------------- broken victims

Crowd = tuple[Sequence[HostLoad], Mapping[str, Candidate], int]


def ending(hosts: Sequence[HostLoad]) -> Choice:
    """These hosts, and all who are there."""
    victims = dict.fromkeys(unit for host in hosts for unit in host.units)
    return Choice(list(victims), [host.name for host in hosts])


def good(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    return registry.VICTIMS["smallest-shortest-spared"](hosts, candidates, count)


def one_too_few(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    return good(hosts, candidates, max(1, count - 1))


def as_they_come(hosts: Sequence[HostLoad], _candidates: Mapping[str, Candidate], count: int) -> Choice:
    return ending(hosts[:count])


def sorts_what_it_is_shown(hosts: Any, candidates: Mapping[str, Candidate], count: int) -> Choice:
    hosts.sort(key=lambda host: (len(host.units), host.name))
    return good(hosts, candidates, count)


def without_regard_to_cordons(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    return good([host._replace(cordoned=False) for host in hosts], candidates, count)


def by_name(hosts: Sequence[HostLoad], _candidates: Mapping[str, Candidate], count: int) -> Choice:
    return ending(sorted(hosts, key=lambda host: (not host.cordoned, host.name))[:count])


def all_are_production(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    return good(hosts, {unit: one._replace(best_effort=False) for unit, one in candidates.items()}, count)


def everybody(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    chosen = good(hosts, candidates, count)
    return Choice(sorted(candidates), chosen.hosts)


def who_asked_first(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    return good(hosts, {unit: one._replace(late_s=-one.late_s) for unit, one in candidates.items()}, count)


BROKEN_VICTIMS: dict[str, Callable[..., Choice]] = {
    "V1": one_too_few,
    "V2": as_they_come,
    "V3": sorts_what_it_is_shown,
    "V4": without_regard_to_cordons,
    "V5": by_name,
    "V6": all_are_production,
    "V7": everybody,
    "V8": who_asked_first,
}


@pytest.mark.parametrize("rule", VICTIMS_RULES, ids=lambda rule: rule.name)
def test_each_rule_of_victims_catches_a_broken_one(rule: Any) -> None:
    caught(rule, BROKEN_VICTIMS[rule.name], victims.crowds(), victims.story)


@pytest.mark.long
def test_whoever_promises_no_least_number_of_victims_is_not_held_to_it() -> None:
    check_victims(registry.VICTIMS["smallest-shortest"], minimal=False, examples=EXAMPLES)
    with pytest.raises(Violation, match="could be spared"):
        check_victims(registry.VICTIMS["smallest-shortest"])


# ----------------------------------------------------------------------------------------------------------- broken rules


def wanting(wanted: Callable[[Memory, int, int, WebPolicy], Any]) -> Rule:
    return Rule(scale_threshold.follow, lambda *given: (wanted(*given), because.ByPolicy()), hurried=True)


def in_place(memory: Memory, heard: Heard, _policy: WebPolicy) -> Memory:
    memory.samples.append(heard.sample)
    return memory


def for_ever(memory: Memory, heard: Heard, _policy: WebPolicy) -> Memory:
    return memory._replace(samples=[*memory.samples, heard.sample])


BROKEN_RULES: dict[str, Rule] = {
    "S1": wanting(lambda _memory, serving, _current, _policy: serving / 2),
    "S2": wanting(lambda *_given: next(_calls) % 3),
    "S3": scale_threshold.RULE._replace(follow=in_place),
    "S4": wanting(lambda _memory, serving, current, policy: serving + current + policy.instances_max),
    "S5": scale_threshold.RULE._replace(follow=for_ever),
    "S6": wanting(lambda _memory, serving, current, _policy: max(0, current - 1)),
}


@pytest.mark.parametrize("rule", SCALING_RULES, ids=lambda rule: rule.name)
def test_each_rule_of_scaling_catches_a_broken_one(rule: Any) -> None:
    checked = scaling.Checked(BROKEN_RULES[rule.name], {})
    caught(rule, checked, scaling.loads(), scaling.story)


def test_a_broken_one_is_refused_as_a_whole() -> None:
    with pytest.raises(Violation):
        check_rule(BROKEN_RULES["S1"])
    with pytest.raises(Violation):
        check_victims(everybody)
