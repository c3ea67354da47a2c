"""Does a policy keep the rules of its kind?  For authors of policies: from a test, or by `phoenix policies check NAME`.

    from phoenix.policy_check import check_order

    def test_the_order_keeps_the_rules() -> None:
        check_order(ORDER)                     # raises Violation: the rule, what was seen, and a small situation that shows it

Theory of operation
  Each rule is a function that looks at a policy in one situation and raises `Violation` if it is broken.  Hypothesis makes the
  situations, many and various, and searches a small one that shows the same.  They are made by the production core from facts,
  so a policy sees here what it will see there.  The same policy gets the same situations each time: a verdict is repeatable.

Rules, by kind: `ORDER_RULES`, `VICTIMS_RULES`, `SCALING_RULES`.  They are necessary, not sufficient: a policy that keeps them
can still be a bad idea, and the simulator says more about that.

Needs the extra `policies` (Hypothesis), which nothing else of the product imports.
"""

from __future__ import annotations

from phoenix.policy_check.orders import ORDER_RULES, check_order
from phoenix.policy_check.rules import EXAMPLES, Rule, Violation, verdicts
from phoenix.policy_check.scaling import SCALING_RULES, check_scaling
from phoenix.policy_check.victims import VICTIMS_RULES, check_victims

__all__ = [
    "EXAMPLES",
    "ORDER_RULES",
    "SCALING_RULES",
    "VICTIMS_RULES",
    "Rule",
    "Violation",
    "check_order",
    "check_scaling",
    "check_victims",
    "verdicts",
]
