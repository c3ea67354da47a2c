"""What a rule is, and how it is tried: many situations, and for the first that breaks it a small one that does."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.strategies import SearchStrategy

EXAMPLES: Final = 100  # situations for each rule: enough for each mistake that the tests of the rules make, in seconds
P = TypeVar("P")
C = TypeVar("C")


class Violation(AssertionError):
    """A rule is broken.  `rule`: which one; `seen`: what the policy did; `story`: the situation, in lines."""

    def __init__(self, rule: str, seen: str, story: str = "") -> None:
        super().__init__("\n".join(filter(None, (f"{rule}: {seen}", story))))
        self.rule, self.seen, self.story = rule, seen, story


class Broken(Exception):
    """Raised by a rule's test: what was seen.  It becomes a `Violation` with the rule and the situation."""


class Rule(NamedTuple, Generic[P, C]):
    """`text`: what must hold, as a clause; `test`: looks at a policy in a case, raises `Broken`."""

    name: str
    text: str
    test: Callable[[P, C], None]


def attempt(
    rule: Rule[P, C],
    policy: P,
    cases: SearchStrategy[C],
    tell: Callable[[C], str],
    examples: int,
    *,
    shrink: bool = True,
) -> None:
    """Try one rule.  `shrink`: look for a small situation, which takes some seconds.  Raises `Violation`."""

    def holds(case: C) -> None:
        try:
            rule.test(policy, case)
        except Broken as error:
            raise Violation(rule.text, str(error), tell(case)) from None
        except Violation:
            raise
        except Exception as error:
            raise Violation(rule.text, f"it raised {_where(error)}", tell(case)) from error

    tried: Any = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )(given(cases)(holds))
    tried()


def _where(error: Exception) -> str:
    """The exception, and the line of the policy that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{last}"


def verdicts(
    rules: Sequence[Rule[P, C]], policy: P, cases: SearchStrategy[C], tell: Callable[[C], str], examples: int
) -> Iterator[tuple[Rule[P, C], Violation | None]]:
    """Each rule with what breaks it, or None."""
    for rule in rules:
        try:
            attempt(rule, policy, cases, tell, examples)
        except Violation as violation:
            yield rule, violation
        else:
            yield rule, None


def demand(holds: bool, seen: str) -> None:
    """Raises `Broken` if it does not hold."""
    if not holds:
        raise Broken(seen)
