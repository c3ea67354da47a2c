"""Services at the door and in the configuration: whose a job is, and what is refused with its reason (acceptance 7, 12)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy, Department
from schemas.requests import JobSubmit
from services.admission.commands import compose
from services.domain.refusal import Refused
from services.runtime.config.checks import check_cloud
from services.runtime.config.file import loads
from services.runtime.config.text import dump_toml
from services.scheduler.core.batch.core import BatchCore
from tests.support.admission import ANN, Fold, cloud
from tests.support.world import World

SERVICES = {"jivaro": 65.0, "bof": 19.0, "third": 12.0}


def door(hosts: int = 6, *, maximum: int | None = None, **policy: Any) -> Fold:
    """hpc shares `hosts` of 8 cores and 8192 MB."""
    given: dict[str, Any] = {"order": "svmsched", "services": SERVICES} | policy
    shared = Department(name="hpc", kind="batch", batch=BatchPolicy(**given), maximum=maximum)
    config = cloud()
    world = Fold()
    world.adopt(msgspec.structs.replace(config, departments=(shared, *config.departments[1:])))
    for number in range(hosts):
        world.host(f"h{number}", 8, 8192)
    return world


def ask(world: Fold, drafted: tuple[f.Fact, ...] = (), **asked: Any) -> f.JobSubmitted:
    given: dict[str, Any] = {"script": "true", "walltime_s": 7200.0} | asked
    request = JobSubmit(**given)
    return compose.submit(world.core, ANN, "hpc", request, "job/x", "d", drafted)


def refusal(world: Fold, **asked: Any) -> tuple[str, str | None, str]:
    with pytest.raises(Refused) as caught:
        ask(world, **asked)
    return caught.value.code, caught.value.field, caught.value.message


def test_a_job_says_whose_it_is() -> None:
    fact = ask(door(), service="bof", best_effort=True, short=True)
    assert (fact.service, fact.best_effort, fact.short) == ("bof", True, True)


def test_an_unknown_service_is_refused_with_those_that_there_are() -> None:
    code, field, message = refusal(door(), service="boff")
    assert (code, field) == ("unknown", "service")
    assert "'boff'; it has: bof, jivaro, third" in message
    assert refusal(door())[:2] == ("invalid", "service")


def test_with_a_single_service_nobody_has_to_name_it() -> None:
    assert ask(door(services={"only": 1.0})).service == "only"


def test_a_job_larger_than_its_share_is_refused_unless_it_may_borrow() -> None:
    """48 cores: third has 6 of them."""
    world = door()
    code, field, message = refusal(world, service="third", tasks=7)
    assert (code, field) == ("invalid", "service")
    assert "14.58 % of 48 cores" in message
    assert "the share of third is 12.5 %" in message
    assert ask(world, service="third", tasks=6).cores == 6
    assert ask(world, service="third", tasks=7, walltime_s=600.0).cores == 7
    assert ask(world, service="third", tasks=7, short=True).cores == 7
    assert ask(world, service="third", tasks=7, best_effort=True).cores == 7
    assert refusal(door(short_s=0.0), service="third", tasks=7, short=True)[0] == "invalid"


def test_the_share_is_of_what_the_department_may_have_and_an_exclusive_job_takes_all_of_its_host() -> None:
    assert ask(door(maximum=3), service="third", tasks=3).cores == 3  # of 24 cores
    assert refusal(door(maximum=3), service="third", tasks=4)[1] == "service"
    assert refusal(door(), service="third", tasks=1, exclusive=True)[1] == "service"
    assert ask(door(), service="bof", tasks=1, exclusive=True).exclusive


def test_a_job_larger_than_every_host_is_refused() -> None:
    assert refusal(door(), service="jivaro", cpus_per_task=9)[1] == "cpus_per_task"


@pytest.mark.parametrize("asked", [{"service": "bof"}, {"short": True}])
def test_what_another_order_would_ignore_is_refused(asked: dict[str, Any]) -> None:
    world = door(order="easy", services={})
    code, field, _ = refusal(world, **asked)
    assert (code, field) == ("invalid", next(iter(asked)))


def test_a_thousand_requests_at_once_are_admitted_and_queued() -> None:
    """Each of 1,000 drafted together has a number of its own, and all of them wait in their services' order."""
    world = door()
    drafted: list[f.Fact] = []
    for number in range(1000):
        service = ("jivaro", "bof", "third")[number % 3]
        drafted.append(ask(world, tuple(drafted[-1:]), service=service, walltime_s=600.0))
    table = World(world.custody.state.config)
    seat = table.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    table.write("admission", *drafted)
    assert table.voids == []
    assert list(seat.core.view.jobs.queue.where) == [str(number) for number in range(1, 1001)]
    assert len(seat.core.view.jobs.queue.lanes) == 3


# ---------------------------------------------------------------------------------------------------------- configuration

TOML = """
[cloud]
name = "site"
[[department]]
name = "hpc"
kind = "batch"
[department.batch]
order = "svmsched"
services = { jivaro = 65, bof = 19.5 }
short_s = 1800
w_cpu = 0.75
w_mem = 0.25
"""


def test_services_are_configuration() -> None:
    config = loads(TOML)
    batch = config.cloud.departments[0].batch
    assert batch is not None
    assert (batch.services, batch.short_s) == ({"jivaro": 65.0, "bof": 19.5}, 1800.0)
    assert loads(dump_toml(config)) == config


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        ({"order": "svmsched"}, {"services"}),
        ({"services": {"a": 1.0}}, {"services"}),
        ({"order": "svmsched", "services": {"a": 0.0}}, {"a"}),
        ({"order": "svmsched", "services": {"A b": 1.0}}, {"services"}),
        ({"order": "svmsched", "services": {"a": 1.0}, "w_mem": 0.5}, {"w_cpu"}),
        ({"order": "svmsched", "services": {"a": 1.0}, "w_cpu": 0.3, "w_mem": 0.7}, set()),
        ({"order": "svmsched", "services": {"a": 1.0}, "short_s": -1.0}, {"short_s"}),
    ],
)
def test_what_cannot_be_shared_is_told(policy: dict[str, Any], wrong: set[str]) -> None:
    department = Department(name="hpc", kind="batch", batch=BatchPolicy(**policy))
    config = msgspec.structs.replace(cloud(), departments=(department, *cloud().departments[1:]))
    assert {str(problem.path[-1]) for problem in check_cloud(config)} == wrong


def test_refusals_are_written_for_people() -> None:
    assert not re.search(r"[A-Z]{2,}_|\bNone\b", refusal(door(), service="third", tasks=7)[2])
