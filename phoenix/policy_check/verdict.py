"""The verdict on a policy by its name: every rule of its kind, each with what breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phoenix.policy_check import department, orders, scaling, victims
from phoenix.policy_check.rules import Rule, Violation, verdicts
from services.runtime import plugins
from services.scheduler.core.policies import registry
from services.scheduler.core.policies.order_multi_factor import order_below

Verdict = tuple[Rule[Any, Any], Violation | None]


def judged(kind: str, name: str, examples: int) -> Iterator[Verdict]:
    """The policy of this kind and name, by itself: no guard stands before a plug-in here."""
    if kind == "order":
        policy = orders.of(name)
        checked = orders.Checked(_order(name), policy)
        yield from verdicts(orders.ORDER_RULES, checked, department.cases(policy), department.story, examples)
    elif kind == "victims":
        choose, minimal = _victims(name)
        rules = victims.rules(minimal=minimal)
        yield from verdicts(rules, choose, victims.crowds(), victims.story, examples)
    else:
        rule = scaling.Checked(_rule(name), {})
        for each in scaling.SCALING_RULES:
            count = scaling.tries(each.name, examples)
            yield from verdicts([each], rule, scaling.loads(), scaling.story, count)


def _order(name: str) -> Any:
    if name in registry.names("order"):
        return registry.order(order_below(orders.of(name)))  # multi-factor gives the order in which another one looks
    return plugins.use("order", name).policy


def _victims(name: str) -> tuple[Any, bool]:
    if name in registry.names("victims"):
        return registry.victims(name), registry.entry("victims", name).minimal
    loaded = plugins.use("victims", name)
    return loaded.policy, loaded.minimal


def _rule(name: str) -> Any:
    return registry.rule(name) if name in registry.names("scaling") else plugins.use("scaling", name).policy
