"""Whose each host is: those held longest are a department's own, what is beyond is lent, and until when."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import CloudConfig, Department, Lending
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.state import Host
from services.domain.sharing.host_ownership import Whereabouts, counts, held_now, usable, whereabouts

AT = 1000.0
# Of six hosts three are a's, two b's, and one w's.
A_B_W = (
    Department(name="b", kind="batch", guarantee=2),
    Department(name="a", kind="batch", guarantee=3),
    Department(name="w", kind="web", guarantee=1),
)


class Site:
    def __init__(self, *contracts: Lending, departments: tuple[Department, ...] = A_B_W) -> None:
        self.custody = Custody()
        self.at = 0.0
        config = CloudConfig(name="c", departments=departments, lending=contracts)
        self.put("provisioner", f.ConfigAdopted(cloud="c", custody_rules=3, config=config))

    def put(self, writer: str, *facts: f.Fact) -> None:
        for fact in facts:
            self.at += 1.0
            position = int(self.at)
            assert fold_fact(self.custody, fact, position, 0, writer, self.at) is None

    def free(self, *names: str) -> Site:
        for name in names:
            self.put(
                "executor", f.HostDescribed(host=name, one_id=1, cores=4, memory_mb=1000), f.HostCleared(host=name)
            )
        return self

    def held(self, dept: str, *names: str) -> Site:
        """In this order."""
        self.free(*names)
        self.put("provisioner", *(f.HostGranted(host=name, dept=dept) for name in names))
        return self

    def given_back(self, dept: str, *names: str) -> Site:
        self.put(f"scheduler.{dept}", *(f.HostReleased(host=name) for name in names))
        return self

    def cordoned(self, name: str) -> Site:
        self.put("admission", f.HostCordoned(host=name, reason="fan", user="o"))
        return self

    def quarantined(self, name: str, until: float = AT) -> Site:
        self.put("executor", f.HostQuarantined(host=name, reason="r", until=until))
        return self

    def lost(self, name: str) -> Site:
        self.put("executor", f.HostLost(host=name, reason="r"))
        return self

    def told(self) -> list[Whereabouts]:
        return whereabouts(self.custody, AT)

    def owners(self) -> dict[str, str | None]:
        return {one.host: one.owner for one in self.told()}

    def lent(self) -> list[str]:
        return [one.host for one in self.told() if one.lent]


# ------------------------------------------------------------------------------------------------------------ which count


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        (Host(name="h", state="free"), True),
        (Host(name="h", state="held", dept="a"), True),
        (Host(name="h", state="draining", dept="a"), True),
        (Host(name="h", state="lost"), False),
        (Host(name="h", state="absent"), False),
        (Host(name="h", state="free", cordoned="fan"), False),
        (Host(name="h", state="held", dept="a", cordoned="fan"), False),
        (Host(name="h", state="free", quarantine_until=AT), True),  # over
        (Host(name="h", state="free", quarantine_until=AT + 1), False),
        (Host(name="h", state="draining", dept="a", quarantine_until=AT + 1), False),
        (Host(name="h", state="held", dept="a", quarantine_until=AT + 1), True),  # who has it keeps it
    ],
)
def test_which_hosts_departments_divide(host: Host, counted: bool) -> None:
    assert counts(host, AT) is counted


def test_how_many_there_are_and_who_holds_them() -> None:
    site = Site().held("a", "h1", "h2", "h3").held("b", "h4", "h5").free("h6", "h7", "h8")
    assert (usable(site.custody, AT), held_now(site.custody, AT)) == (8, {"a": 3, "b": 2})
    site.cordoned("h1").cordoned("h6").quarantined("h7", AT + 1).quarantined("h8", AT).quarantined("h2", AT + 1)
    assert (usable(site.custody, AT), held_now(site.custody, AT)) == (5, {"a": 2, "b": 2})
    site.cordoned("h4").lost("h4").quarantined("h5", AT + 1).lost("h5")  # counted once, as lost
    assert (usable(site.custody, AT), held_now(site.custody, AT)) == (3, {"a": 2, "b": 0})


# ------------------------------------------------------------------------------------------------------------- whose they are


def test_before_a_configuration_a_host_is_nobodys() -> None:
    custody = Custody()
    fold_fact(custody, f.HostDescribed(host="h1", one_id=1, cores=4, memory_mb=1000), 1, 0, "executor", 5.0)
    assert whereabouts(custody, AT) == [Whereabouts(host="h1", state="absent", owner=None, holder=None, since=5.0)]


def test_every_host_is_told_by_name() -> None:
    site = Site().free("h3", "h1", "h2")
    assert [one.host for one in site.told()] == ["h1", "h2", "h3"]


def test_who_holds_fewer_than_its_own_has_the_others_among_the_free() -> None:
    site = Site().held("a", "h6").free("h1", "h2", "h3", "h4", "h5")
    assert site.owners() == {"h1": "a", "h2": "a", "h3": "b", "h4": "b", "h5": "w", "h6": "a"}


def test_those_held_longest_are_its_own_and_what_is_beyond_is_lent() -> None:
    site = Site().held("b", "h5", "h4", "h6", "h3").held("a", "h1").free("h2")
    assert site.owners() == {"h1": "a", "h2": "w", "h3": "a", "h4": "b", "h5": "b", "h6": "a"}
    assert site.lent() == ["h3", "h6"]
    since = {one.host: one.since for one in site.told()}
    assert since["h5"] < since["h4"] < since["h6"] < since["h3"]


def test_of_those_held_equally_long_the_first_names_are_its_own() -> None:
    site = Site().held("b", "h5", "h4", "h6", "h3").free("h1", "h2")
    for host in site.custody.state.hosts.values():
        host.since = 7.0
    assert site.lent() == ["h5", "h6"]


def test_free_and_draining_hosts_are_whose_are_missing_by_name() -> None:
    site = Site().held("b", "h4", "h6").given_back("b", "h4", "h6").free("h5", "h3", "h2", "h1")
    assert site.owners() == {"h1": "a", "h2": "a", "h3": "a", "h4": "b", "h5": "b", "h6": "w"}
    assert site.lent() == []
    by_name = {one.host: (one.state, one.holder) for one in site.told()}
    assert (by_name["h4"], by_name["h5"]) == (("draining", "b"), ("free", None))


def test_a_host_that_does_not_count_is_nobodys_and_is_not_lent() -> None:
    site = Site().held("a", "h1", "h2").held("b", "h3").free("h4", "h5", "h6").cordoned("h1").lost("h3").cordoned("h4")
    owners = site.owners()
    assert {name: owners[name] for name in ("h1", "h3", "h4")} == {"h1": None, "h3": None, "h4": None}
    assert site.lent() == []
    holders = {one.host: one.holder for one in site.told()}
    assert (holders["h1"], holders["h3"]) == ("a", None)


def test_hosts_beyond_what_everybody_owns_are_nobodys() -> None:
    """Maxima leave some: whoever holds them has them of nobody."""
    few = (Department(name="a", kind="batch", guarantee=1, maximum=1), Department(name="w", kind="web", guarantee=1))
    site = Site(departments=few).held("w", "h1", "h2").free("h3", "h4")
    assert site.owners() == {"h1": "w", "h2": None, "h3": "a", "h4": None}
    assert site.lent() == []


# ------------------------------------------------------------------------------------------------------------------- when due

CONTRACT = Lending(lender="a", borrower="b", deadline_s=60.0)


def lending(*contracts: Lending) -> Site:
    """b holds h1 to h4, of which h3 and h4 are a's."""
    return Site(*contracts).held("b", "h1", "h2", "h3", "h4").held("w", "h5")


def due(site: Site) -> dict[str, float | None]:
    return {one.host: one.due_at for one in site.told()}


def test_a_lent_host_is_due_at_its_contracts_deadline() -> None:
    site = lending(CONTRACT)
    assert site.lent() == ["h3", "h4"]
    since = {one.host: one.since for one in site.told()}
    assert due(site) == {"h1": None, "h2": None, "h3": since["h3"] + 60.0, "h4": since["h4"] + 60.0, "h5": None}


def test_or_when_its_departments_notice_says_so() -> None:
    site = lending(CONTRACT)
    site.put("provisioner", f.QuotaChanged(dept="b", hosts=4, by=0.0), f.QuotaChanged(dept="b", hosts=3, by=77.0))
    assert due(site) == {"h1": None, "h2": None, "h3": 77.0, "h4": 77.0, "h5": None}
    site.put("provisioner", f.QuotaChanged(dept="w", hosts=1, by=0.0), f.QuotaChanged(dept="w", hosts=0, by=88.0))
    assert due(site)["h5"] is None  # its own


@pytest.mark.parametrize(
    "contracts", [(), (Lending(lender="a", borrower="b"),), (Lending(lender="b", borrower="a", deadline_s=9.0),)]
)
def test_else_when_its_owner_wants_it(contracts: tuple[Lending, ...]) -> None:
    site = lending(*contracts)
    assert site.lent() == ["h3", "h4"]
    assert set(due(site).values()) == {None}
