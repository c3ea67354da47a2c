"""Who may claim how many instances, and what the audit has of it."""

from __future__ import annotations

import msgspec
import pytest

from schemas.audit import AuditRecord
from schemas.config import CloudConfig, User, WebPolicy
from schemas.signals import ClaimSignal
from services.scheduler.edge.claims import Claims
from tests.support.world import batch, web

TIMEOUT_S = 10.0
POLICY = WebPolicy(instances_max=8, claim_max_user=2)
USERS = (
    User(name="wal", department="web"),
    User(name="wim", department="web", role="manager"),
    User(name="mia", department="hpc", role="manager"),
    User(name="root", department="operators", role="operator"),
)
CLOUD = CloudConfig(name="c", departments=(batch("hpc"), web("web")), users=USERS)


class Desk:
    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[AuditRecord] = []
        self.claims = Claims("web", self.told.append, lambda: self.now)

    def grant(self, instances: int, user: str = "wim", source: str = "plan") -> None:
        self.claims.granted(ClaimSignal(instances=instances, source=source), user, CLOUD, TIMEOUT_S)


@pytest.mark.parametrize(
    ("user", "instances", "counts"),
    [
        ("wal", 2, 2),
        ("wal", 3, None),
        ("wim", 8, 8),
        ("wim", 1_000_000, 8),  # a plan goes on when instances_max is lowered
        ("root", 9, 8),
        ("mia", 3, None),  # of another department
        ("gone", 3, None),
        ("gone", 0, 0),
    ],
)
def test_how_many_somebody_may_claim_is_a_matter_of_the_role(user: str, instances: int, counts: int | None) -> None:
    judged = Desk().claims.judged(ClaimSignal(instances=instances), user, CLOUD, POLICY)
    if counts is None:
        assert judged == f"it claims {instances} instances; claim_max_user of web is 2"
    else:
        assert judged == ClaimSignal(instances=counts)


@pytest.mark.parametrize(
    ("user", "counts"),
    [("lb", True), ("wal", False), ("wim", True), ("root", True), ("mia", False), ("gone", False)],
)
def test_where_the_balancers_are_named_the_load_is_what_they_managers_and_operators_say(
    user: str, counts: bool
) -> None:
    named = msgspec.structs.replace(POLICY, balancers=("lb",))
    assert Desk().claims.untold(user, CLOUD, named) == ("" if counts else "balancers of web: lb")
    assert Desk().claims.untold(user, CLOUD, POLICY) == ""  # nobody is named: everybody may
    two = msgspec.structs.replace(POLICY, balancers=("lb", "lb2"))
    assert counts or Desk().claims.untold(user, CLOUD, two) == "balancers of web: lb, lb2"


def test_the_audit_has_a_claim_when_it_begins_and_when_it_says_something_else() -> None:
    desk = Desk()
    for _ in range(5):
        desk.grant(3)
        desk.now += 1
    assert [record.names for record in desk.told] == [("web", "3 instances")]
    desk.grant(3, source="another plan")
    desk.grant(4)
    desk.grant(0)
    desk.now += TIMEOUT_S
    desk.grant(0)  # the last one has ended
    assert [record.names[1][0] for record in desk.told[1:]] == ["3", "4", "0", "0"]
    shown = msgspec.to_builtins(desk.told[0])
    assert shown == {
        "at": 1000.0,
        "kind": "signal.claim",
        "outcome": "granted",
        "via": "nats",
        "user": "wim",
        "department": "web",
        "role": "manager",
        "names": ("web", "3 instances"),
        "peer": "plan",
    }


def test_a_flood_of_claims_does_not_flood_the_audit() -> None:
    desk = Desk()
    for instances in range(1000):
        desk.grant(instances)
    claim = ClaimSignal(instances=9)
    for _ in range(1000):
        desk.claims.refused(claim, "wal", CLOUD, "it claims 9 instances; claim_max_user of web is 2")
    assert 40 <= len(desk.told) <= 42
    desk.now += 60
    desk.claims.refused(claim, "wal", CLOUD, "too many")
    assert (desk.told[-1].outcome, desk.told[-1].left_out) == ("refused", 980)
