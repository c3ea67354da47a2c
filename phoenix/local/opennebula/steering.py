"""Steering: how a test makes a hypervisor slow, failing or stuck, at one step of one VM on one host.

1. A rule matches by step, VM and host (each may be left out); the newest match wins, once per step.
2. A rule delays, then holds until released, then fails, in that order; each part is optional. `times` bounds how
   often it applies.
3. Steps: `dispatch` (accepted, not yet begun), `transfer`, `fetch`, `boot`, `save`, `restore`, `shutdown`, `cancel`,
   `migrate`, `reboot`, `reset`, `stow`, `clean`. Groups: `vmm` (what the hypervisor does) and
   `tm` (what moves files).
4. Without rules a gate costs one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from phoenix.local.driver import DriverError

GROUPS: dict[str, frozenset[str]] = {
    "vmm": frozenset({"boot", "save", "restore", "shutdown", "cancel", "migrate", "reboot", "reset"}),
    "tm": frozenset({"transfer", "fetch", "stow", "clean"}),
}
STEPS = frozenset({"dispatch"}) | GROUPS["vmm"] | GROUPS["tm"]

# More rules than this are a leak in a test, not a scenario.
RULES_MAX = 10_000


@dataclass(slots=True)
class Rule:
    """One rule. `times` None: for ever. `fail` is the message, None: it succeeds."""

    id: int
    steps: frozenset[str]
    vm_id: int | None = None
    host_id: int | None = None
    delay_s: float = 0.0
    fail: str | None = None
    times: int | None = None
    released: asyncio.Event | None = field(default=None)


class Steering:
    """The rules in force, and who waits at them."""

    def __init__(self) -> None:
        self.rules: dict[int, Rule] = {}
        self.waiting = 0
        self._next = 0

    def add(
        self,
        step: str,
        *,
        vm_id: int | None = None,
        host_id: int | None = None,
        delay_s: float = 0.0,
        hold: bool = False,
        fail: str | None = None,
        times: int | None = None,
    ) -> int:
        """Add a rule; returns its id. Raises ValueError for an unknown step."""
        steps = GROUPS.get(step) or (frozenset({step}) if step in STEPS else None)
        if steps is None:
            raise ValueError(f"step {step!r} is not one of {', '.join(sorted(STEPS | set(GROUPS)))}")
        if len(self.rules) >= RULES_MAX:
            raise ValueError(f"more than {RULES_MAX} rules: clear those that are not needed")
        released = asyncio.Event() if hold else None
        rule = Rule(self._next, steps, vm_id, host_id, delay_s, fail, times, released)
        self.rules[rule.id] = rule
        self._next += 1
        return rule.id

    def add_fields(self, fields: Mapping[str, Any]) -> int:
        """Add a rule from its JSON form.

        Step, vm, host, delay_s, hold, fail, times. Raises ValueError, KeyError, TypeError.
        """
        return self.add(
            str(fields["step"]),
            vm_id=fields.get("vm"),
            host_id=fields.get("host"),
            delay_s=float(fields.get("delay_s", 0.0)),
            hold=bool(fields.get("hold", False)),
            fail=fields.get("fail"),
            times=fields.get("times"),
        )

    def release(self, rule_id: int) -> None:
        """Release calls that wait at the rule, and remove it. Raises ValueError if there is none."""
        rule = self.rules.pop(rule_id, None)
        if rule is None:
            raise ValueError(f"there is no rule {rule_id}")
        if rule.released:
            rule.released.set()

    def clear(self) -> None:
        """Release and remove all rules."""
        for rule_id in list(self.rules):
            self.release(rule_id)

    def _match(self, step: str, vm_id: int, host_id: int) -> Rule | None:
        for rule in reversed(self.rules.values()):
            if step in rule.steps and rule.vm_id in (None, vm_id) and rule.host_id in (None, host_id):
                return rule
        return None

    async def gate(self, step: str, vm_id: int, host_id: int) -> None:
        """Pass the step, as the rules have it. Raises `DriverError` if a rule makes it fail."""
        if not self.rules:
            return
        rule = self._match(step, vm_id, host_id)
        if rule is None:
            return
        if rule.times is not None:
            rule.times -= 1
            if rule.times <= 0:
                self.rules.pop(rule.id, None)
        if rule.delay_s:
            await asyncio.sleep(rule.delay_s)
        if rule.released:
            self.waiting += 1
            try:
                await rule.released.wait()
            finally:
                self.waiting -= 1
        if rule.fail is not None:
            raise DriverError(rule.fail)
