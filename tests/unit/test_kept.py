"""What guarantees keep from web is told exactly where it is they that the provisioner decides by."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from phoenix.cli import departments, parser, why
from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department, Lending
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.domain.sharing.shortage import Kept, Share, kept_from, shares_of_others
from services.domain.text import remedy, sentence
from services.provisioner.core.provisioner import ProvisionerCore

PHYS = Department(name="phys", kind="batch", guarantee=2)
BIO = Department(name="bio", kind="batch", guarantee=3)
SHOP = Department(name="shop", kind="web")
HOSTS = 8


def told(demand: int, *known: Department, second: int = 0) -> tuple[Kept | None, int]:
    """What is told of `shop`, and its quota, when the provisioner has decided; `second`: what `blog` wants."""
    custody = settled(known, {"shop": demand, "blog": second})
    return kept_from(custody, "shop", 1.0), custody.quota("shop").hosts


def settled(known: tuple[Department, ...], demands: dict[str, int], lent: tuple[Lending, ...] = ()) -> Custody:
    """The provisioner has decided what departments that want so much may keep."""
    custody = Custody()
    core, position = ProvisionerCore(custody), 0

    def write(writer: str, fact: f.Fact) -> None:
        nonlocal position
        position += 1
        void = fold_fact(custody, fact, position, 0, writer, 1.0)
        core.apply(fact, Meta(position=position, index=0, writer=writer, at=1.0, void=void))

    write(
        "provisioner",
        f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CloudConfig(name="c", departments=known, lending=lent)),
    )
    for number in range(HOSTS):
        write("executor", f.HostDescribed(host=f"h{number}", one_id=number, cores=1, memory_mb=1000))
        write("executor", f.HostCleared(host=f"h{number}"))
    for name, hosts in demands.items():
        if any(d.name == name for d in known):
            write(f"scheduler.{name}", f.DemandChanged(dept=name, hosts=hosts))
    for fact in core.decide(1.0):
        write("provisioner", fact)
    return custody


def test_three_of_five() -> None:
    assert told(5, PHYS, BIO, SHOP) == (Kept(5, HOSTS, ("bio", "phys")), 3)
    assert told(3, PHYS, BIO, SHOP) == (None, 3)


@pytest.mark.parametrize("maximum", [None, 2, 4])
def test_it_is_told_if_and_only_if_web_had_more_without_those_guarantees(maximum: int | None) -> None:
    shop = msgspec.structs.replace(SHOP, maximum=maximum)
    blog = Department(name="blog", kind="web", priority=1)
    for demand, second, phys, bio in product(range(0, 10, 2), (0, 3, 9), (0, 2, 9), (0, 3)):
        guaranteed = [msgspec.structs.replace(d, guarantee=n) for d, n in ((PHYS, phys), (BIO, bio))]
        free = [msgspec.structs.replace(d, guarantee=0) for d in (PHYS, BIO)]
        kept, quota = told(demand, *guaranteed, shop, blog, second=second)
        _, without = told(demand, *free, shop, blog, second=second)
        if without > quota:
            assert kept is not None
            assert kept.departments == tuple(n for n, hosts in (("bio", bio), ("phys", phys)) if hosts)
        elif quota >= min(demand, HOSTS if maximum is None else maximum):
            assert kept is None


def test_people_read_whose_guarantees_they_are() -> None:
    row = {
        "department": "shop",
        "kind": "web",
        "hosts_held": 3,
        "hosts_quota": 3,
        "hosts_demanded": 5,
        "kept_by_guarantees": {"hosts": 5, "usable": 8, "departments": ["bio", "phys"]},
    }
    said = "5 of the 8 hosts are kept from web by the guarantees of bio, phys"
    assert departments.render([row]).endswith(f"shop wants 5 hosts and may keep 3: {said}")
    assert said not in departments.render([{**row, "kept_by_guarantees": None}])
    reason = because.WaitsForHosts(demand=5, held=3, short=2, kept=5, usable=8, kept_by=["bio", "phys"])
    assert sentence(reason) == f"the department wants 5 hosts and holds 3: {said}"
    assert why.render({"job": "shop", "what": "department", "reasons": [reason]}).startswith("department shop:")
    assert [parser.entity(text) for text in ("shop", "17", "18_3", "shop.2")] == [
        "shop",
        "17",
        "18_3",
        "shop.2",
    ]


BLOG = Department(name="blog", kind="web", guarantee=1)
NEWS = Department(name="news", kind="web", priority=1)
MAIL = Department(name="mail", kind="web", weight=2.0)


def test_what_others_have_is_told_with_its_rule() -> None:
    known = (Department(name="hpc", kind="batch", guarantee=2), SHOP, BLOG, NEWS, MAIL)
    custody = settled(known, {"shop": 5, "blog": 5, "news": 2, "mail": 5})
    assert {d.name: custody.quota(d.name).hosts for d in known} == {
        "hpc": 2,
        "shop": 1,
        "blog": 1,
        "news": 2,
        "mail": 2,
    }
    news, blog = Share("news", 2, "priority", 1.0), Share("blog", 1, "guarantee", 1.0)
    assert shares_of_others(custody, "shop", 1.0) == (news, blog, Share("mail", 2, "weight", 2.0))
    assert shares_of_others(custody, "mail", 1.0) == (news, blog, Share("shop", 1, "weight", 1.0))
    assert shares_of_others(custody, "news", 1.0) == ()  # it has what it wants
    assert shares_of_others(custody, "hpc", 1.0) == ()


def test_what_is_short_for_another_reason_is_not_laid_to_others() -> None:
    hpc, small = Department(name="hpc", kind="batch"), msgspec.structs.replace(SHOP, maximum=2)
    custody = settled((hpc, small, BLOG), {"shop": 5, "blog": 1})
    assert custody.quota("shop").hosts == 2
    assert shares_of_others(custody, "shop", 1.0) == ()  # its own maximum
    lent = (Lending(lender="hpc", borrower="shop", hosts=1),)
    custody = settled((hpc, SHOP, BLOG), {"shop": 5, "blog": 1}, lent)
    assert custody.quota("shop").hosts == 1
    assert shares_of_others(custody, "shop", 1.0) == ()  # a contract


def test_people_read_who_has_how_much() -> None:
    shares = [Share("news", 6, "priority", 1.0), Share("blog", 2, "guarantee", 1.0), Share("mail", 4, "weight", 0.5)]
    said = (
        "3 of the 16 hosts are kept from web by the guarantees of hpc; news goes first and may keep 6; "
        "blog may keep 2 by its guarantee; the rest is shared by weight (2 here): mail 4 (weight 0.5)"
    )
    row = {
        "department": "shop",
        "kind": "web",
        "weight": 2.0,
        "hosts_quota": 1,
        "hosts_demanded": 5,
        "kept_by_guarantees": {"hosts": 3, "usable": 16, "departments": ["hpc"]},
        "shares_of_others": msgspec.to_builtins(shares),
    }
    assert departments.render([row]).endswith(f"shop wants 5 hosts and may keep 1: {said}")
    by: dict[str, list[str] | float] = {"kept": 3, "usable": 16, "kept_by": ["hpc"], "weight": 2.0}
    reason = because.WaitsForHosts(demand=5, held=1, short=4, shares=[s.text for s in shares], **by)
    assert sentence(reason) == f"the department wants 5 hosts and holds 1: {said}"
    alone = because.WaitsForHosts(demand=5, held=1, short=4, shares=[shares[0].text], weight=2.0)
    assert sentence(alone) == "the department wants 5 hosts and holds 1: news goes first and may keep 6"


def test_a_cluster_that_is_all_its_own_is_told_as_that() -> None:
    reason = because.WaitsForHosts(demand=12, held=4, short=8, usable=4)
    assert sentence(reason) == "the department wants 12 hosts and holds 4: it has all 4 that can be used"
    assert "more hosts" in remedy(reason)
    coming = because.WaitsForHosts(demand=12, held=4, short=8, usable=6)
    assert sentence(coming).endswith("holds 4: 2 of the 6 hosts that can be used are not its own yet")
    assert "more hosts" not in remedy(coming)
