"""Contracts and idle hosts on the real cores: what its owner does not need goes to whom a contract lets have it."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Lending
from schemas.reasons import Reason
from services.domain.sharing.lending import owned
from services.domain.sharing.loans import Loan, loans
from services.domain.sharing.withheld import withheld
from services.domain.text import remedy, sentence, shares
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain import why_department
from services.monitor.views.views import Views
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.lookahead import why as batch_why
from services.scheduler.lookahead import why_web as web_why
from tests.support.world import World, batch, cloud, web

BOUND = Lending(lender="hpc", borrower="web", hosts=2)


def site(*contracts: Lending, hpc: int = 0, sci: int = 45, hosts: int = 13) -> World:
    """hpc owns 6 of 13 hosts, sci 4 and web 3; each job takes a host.  web wants 5."""
    config = cloud(batch("hpc", weight=1.5), batch("sci"), web("web", guarantee=3))
    world = World(msgspec.structs.replace(config, lending=contracts))
    for dept in ("hpc", "sci"):
        world.seat(f"scheduler.{dept}", partial(BatchCore, dept=dept))
    world.seat("provisioner", ProvisionerCore)
    world.executor()
    world.guests()
    world.strict = False
    world.hosts(hosts)
    for dept, jobs in (("hpc", hpc), ("sci", sci)):
        for _ in range(jobs):
            world.submit(dept, cores=4)
    wants(world, 5)
    return world


def wants(world: World, hosts: int) -> None:
    """Of web; and time for the notice."""
    world.write("scheduler.web", f.DemandChanged(dept="web", hosts=hosts, instances=hosts))
    world.settle()
    world.strict = True
    world.advance(2)
    assert not world.voids


def held(world: World) -> dict[str, int]:
    return {dept: world.custody.held(dept) for dept in ("hpc", "sci", "web")}


def preempted(world: World) -> int:
    return len(world.facts(f.AttemptClosed))


def test_web_that_grows_by_a_host_takes_one_and_leaves_none_idle() -> None:
    world = site(BOUND)
    assert held(world) == {"hpc": 0, "sci": 8, "web": 5}
    wants(world, 6)
    assert held(world) == {"hpc": 0, "sci": 7, "web": 6}  # one of web's is sci's, which has all of hpc's that are idle
    assert preempted(world) == 1


def test_without_a_contract_it_is_the_same() -> None:
    world = site()
    wants(world, 6)
    assert held(world) == {"hpc": 0, "sci": 7, "web": 6}
    assert preempted(world) == 1


def test_what_a_lender_has_lent_both_comes_back_from_who_has_it_by_its_contract() -> None:
    world = site(BOUND, Lending(lender="hpc", borrower="sci", deadline_s=60.0))
    wants(world, 6)
    config, now = world.custody.state.config, {"hpc": 0, "sci": 7, "web": 6}
    assert config is not None
    lent = loans(config, world.now, owned(config, world.now, 13), now, 13)
    assert lent == [Loan("hpc", "sci", 4), Loan("hpc", "web", 2), Loan("sci", "web", 1)]
    for _ in range(10):
        world.submit("hpc", cores=4)
    world.advance(50)
    assert held(world) == now
    world.advance(20)
    assert held(world) == {"hpc": 4, "sci": 3, "web": 6}  # web still has two of its own, and one of sci's


# ------------------------------------------------------------------------------------------------------------------- why


def told(world: World, dept: str) -> tuple[list[str], str]:
    """What `phoenix why` and `phoenix departments` say of a department's hosts."""
    core: MonitorCore = world.seat("monitor", MonitorCore).core
    answer = why_department.explain(core, dept, world.now)
    assert answer is not None
    row = Views(core).department(dept)
    return [word["sentence"] for word in answer["told"]], shares.of_row(row)


def why(world: World, dept: str) -> Reason:
    """That a job of a batch department, or a web department, waits for hosts."""
    if dept == "web":
        core = WebCore(world.custody, "web")
        return next(reason for reason in web_why.why(core, world.now) if type(reason) is because.WaitsForHosts)
    units = world.custody.state.units.values()
    first = next(unit.id for unit in units if unit.dept == dept and unit.state == "pending")
    return batch_why.why(world.seats[f"scheduler.{dept}"].core, first, world.now)[0]


@pytest.mark.parametrize(
    ("contract", "sci", "says"),
    [
        (Lending(lender="hpc", borrower="sci", hosts=0), 4, "by contract hpc lends it no host, which keeps 6 from it"),
        (
            Lending(lender="hpc", borrower="*", hosts=1),
            5,
            "by contract hpc lends it 1 host at most, which keeps 4 from it",
        ),
        (
            Lending(lender="hpc", borrower="sci", windows=("daily 00:00-01:00",)),
            4,
            "by contract hpc lends it no host at this hour, which keeps 6 from it",
        ),
    ],
)
def test_where_a_contract_keeps_hosts_idle_why_names_it(contract: Lending, sci: int, says: str) -> None:
    world = site(contract)
    wants(world, 3 if contract.borrower == "sci" else 4)
    assert held(world)["sci"] == sci
    sentences, row = told(world, "sci")
    assert says in sentences
    assert row == says
    waits = why(world, "sci")
    assert f"; {says}" in sentence(waits)
    assert "or when a contract lends more of hpc (phoenix lending)" in remedy(waits)


def test_web_is_told_which_contract_bounds_it() -> None:
    world = site(Lending(lender="*", borrower="web", hosts=1), hpc=20)
    wants(world, 8)
    assert held(world) == {"hpc": 5, "sci": 3, "web": 5}
    says = "; ".join(
        f"by contract {lender} lends it 1 host at most, which keeps {hosts} from it"
        for lender, hosts in (("hpc", 5), ("sci", 3))
    )
    assert told(world, "web")[1] == says
    assert sentence(why(world, "web")) == f"the department wants 8 hosts and holds 5: {says}"
    assert remedy(why(world, "web")) == "another contract with hpc, sci (phoenix lending), or what others give back"


def test_who_has_what_it_wants_or_waits_for_jobs_to_end_is_told_of_no_contract() -> None:
    world = site(BOUND, hpc=20)
    assert withheld(world.custody, "web", world.now) == ()  # it has what it wants
    assert withheld(world.custody, "sci", world.now) == ()  # hpc uses its own
    assert told(world, "sci")[1] == ""
    assert "by contract" not in sentence(why(world, "sci"))
