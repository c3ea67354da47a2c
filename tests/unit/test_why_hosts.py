"""Why a host is where it is, and why a batch department has no more of them: told from the fold, by the rules that decided."""

from __future__ import annotations

from typing import Any

import pytest

from phoenix.cli import why
from schemas import facts as f
from schemas import reasons as because
from schemas.units import iso
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain import why_department, why_host
from services.monitor.explain.why import worded
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from tests.support.world import World, batch, cloud, web


class Site:
    """hpc (one host guaranteed) and web on four hosts, which hpc's jobs fill; with a monitor that follows."""

    def __init__(self, **settings: Any) -> None:
        """`settings` of web."""
        self.world = world = World(cloud(batch("hpc", guarantee=1), web("web", **settings)))
        world.hosts(4)
        world.seat("provisioner", ProvisionerCore)
        world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
        world.executor()
        self.core: MonitorCore = world.seat("monitor", MonitorCore).core
        for _ in range(6):
            world.submit(cores=4)
        world.settle()

    def spike(self, hosts: int) -> None:
        """Web wants so many."""
        self.world.now += 60
        reason = because.UtilisationHigh(utilisation=1.2, instances=0, window_s=20.0, threshold=0.8)
        self.world.write("scheduler.web", f.DemandChanged(dept="web", hosts=hosts, instances=hosts, reason=reason))
        self.world.settle()

    def host(self, name: str) -> dict[str, Any]:
        found = why_host.explain(self.core, name, self.world.now + 5)
        assert found is not None
        return found

    def department(self, name: str) -> dict[str, Any]:
        found = why_department.explain(self.core, name, self.world.now + 5)
        assert found is not None
        return found


def sentences(answer: dict[str, Any]) -> list[str]:
    return [word["sentence"] for word in answer["told"]]


def test_a_host_of_batch_says_by_which_decision_and_that_web_may_claim_it() -> None:
    answer = Site().host("h1")
    assert sentences(answer) == [
        "held by hpc since 1970-01-12T13:46:40Z, for 5s: 1 host is guaranteed to the department, and it held 0",
        "there: 1, on 4 of 4 cores, 256 of 8192 MiB",
        "may be claimed by web: 3 of the 4 hosts of hpc are beyond its guarantee of 1",
    ]


def test_a_host_that_moved_says_why_step_by_step() -> None:
    site = Site()
    site.spike(2)
    moved = next(n for n, host in site.world.custody.state.hosts.items() if host.dept == "web")
    answer = site.host(moved)
    assert (answer["state"], answer["department"]) == ("held", "web")
    assert sentences(answer)[0].startswith(
        "held by web since 1970-01-12T13:47:40Z, for 5s: web wants 2 hosts and held "
    )
    assert sentences(answer)[-1] == "it goes back when web needs fewer hosts than the 2 that it holds"
    assert [step["kind"] for step in answer["moves"]] == ["host.granted", "host.released", "host.granted"]
    assert answer["moves"][1]["sentence"] == f"hpc releases {moved}: hpc held 4 and may keep 2"
    text = why.render_told(worded(answer))
    assert text.startswith(f"host {moved}:\n  1. Held by web since ")
    assert "Its last moves" in text


def test_a_batch_department_says_who_has_the_rest_by_which_rule() -> None:
    site = Site()
    site.spike(3)
    site.world.cordon("h4")
    site.world.settle()
    answer = site.department("hpc")
    told = sentences(answer)
    assert (answer["hosts_held"], answer["hosts_demanded"]) == (1, 4)  # with the cordoned one
    assert told[0] == "it wants 4 hosts, may keep 1 and holds 1, 3 fewer than it wants; 1 host is guaranteed to it"
    assert "it may keep 1 since 1970-01-12T13:47:40Z: web wants more hosts than it holds" in told[2]
    assert "held by web: 3 hosts; web goes before what is not guaranteed to batch, and it wants 3" in told
    assert "cordoned, so nothing more is placed there: h4" in told
    assert any("the load of web falls" in word["remedy"] for word in answer["told"])


def test_what_web_keeps_whatever_its_load_does_not_come_back_when_that_falls() -> None:
    site = Site(instances_min=3)
    site.spike(3)
    (remedy,) = [
        word["remedy"] for word in site.department("hpc")["told"] if word["sentence"].startswith("held by web")
    ]
    assert remedy == (
        "web keeps 3 whatever its load: a lower minimum or guarantee of it; to keep more: a higher guarantee of hpc"
    )


@pytest.mark.parametrize(
    ("said", "by_hand"),
    [
        ({"exact": 3}, True),
        ({"minimum": 3}, True),
        ({"minimum": 2}, False),  # the third comes back when the load falls
        ({}, False),
        ({"exact": 3, "until": 1.0}, False),
    ],
)
def test_hosts_that_a_person_has_set_come_back_by_another_word_of_a_person(said: dict[str, Any], by_hand: bool) -> None:
    site = Site()
    site.spike(3)
    site.world.write("admission", f.ScaleRequested(dept="web", user="wes", **said))
    remedies = [word["remedy"] for word in site.department("hpc")["told"]]
    assert any("`phoenix scale web --auto`" in remedy for remedy in remedies) == by_hand
    assert any("the load of web falls" in remedy for remedy in remedies) != by_hand


def test_a_notice_is_told_of_the_department_and_of_its_hosts() -> None:
    site = Site()
    reason = because.WebDemand(department="web", held=4)
    site.world.write("provisioner", f.QuotaChanged(dept="hpc", hosts=3, by=site.world.now + 60, reason=reason))
    assert "it has notice: 1 host to give back, by 1970-01-12T13:47:40Z" in sentences(site.department("hpc"))
    assert "on notice: hpc holds 4 and may keep 3, until 1970-01-12T13:47:40Z" in sentences(site.host("h1"))
    site.world.settle()
    assert not any("notice" in text for text in (*sentences(site.department("hpc")), *sentences(site.host("h1"))))


def test_what_is_guaranteed_may_not_be_claimed() -> None:
    site = Site()
    site.spike(3)
    kept = next(name for name, host in site.world.custody.state.hosts.items() if host.dept == "hpc")
    assert sentences(site.host(kept))[-1] == ("web may not claim it: hpc holds no more than its guarantee of 1")


def test_what_is_out_of_use_is_told_with_what_to_do() -> None:
    site = Site()
    site.world.cordon("h1")
    site.world.write("executor", f.HostQuarantined(host="h2", reason="starts failed", until=site.world.now + 600))
    site.world.lose("h3")
    site.world.settle()
    words = {word["sentence"]: word["remedy"] for word in site.host("h1")["told"]}
    cordoned = "it is cordoned (repair): what runs there stays, nothing more is placed there"
    assert words[cordoned] == "phoenix hosts uncordon h1"
    assert any(text.startswith("it is set apart until ") for text in sentences(site.host("h2")))
    assert "it is lost since" in sentences(site.host("h3"))[0]
    told = sentences(site.department("hpc"))
    assert "1 host lost (phoenix hosts shows why)" in told
    assert why_host.explain(site.core, "h99", 0.0) is None
    assert why_department.explain(site.core, "nobody", 0.0) is None


def test_a_host_that_is_set_apart_says_what_stays_and_until_when() -> None:
    site = Site()
    site.world.drain("h1", 60.0)
    site.world.settle()
    until = iso(site.world.now + 60)
    told = sentences(site.host("h1"))
    assert f"it drains (repair): what still runs there at {until} is ended" in told
    assert told[-1] == "hpc releases it when nothing runs there any longer, and no department gets it"
    site.world.drain("h1", None)
    assert "it drains (repair): jobs run to their end, instances are replaced elsewhere" in sentences(site.host("h1"))


def test_what_vms_of_others_take_is_told_of_the_host_and_of_departments() -> None:
    site = Site()
    less = f.HostDescribed(host="h1", one_id=1, cores=2, memory_mb=4096, others={"cores": 2, "memory_mb": 512})
    site.world.write("executor", less)
    said = "VMs of other users of OpenNebula hold 2 cores and 512 MiB on host h1"
    for answer in (site.host("h1"), site.department("hpc")):
        [remedy] = [word["remedy"] for word in answer["told"] if word["sentence"] == said]
        assert "onehost show" in remedy
    assert said not in sentences(site.host("h2"))


def test_a_free_host_says_who_wants_one() -> None:
    world = World(cloud(batch("hpc")))
    world.hosts(1)
    core: MonitorCore = world.seat("monitor", MonitorCore).core
    found = why_host.explain(core, "h1", world.now)
    assert found is not None
    assert sentences(found)[-1] == "no department demands one"
    world.write("scheduler.hpc", f.DemandChanged(dept="hpc", hosts=3, reason=because.Queue(pending=3, running=0)))
    found = why_host.explain(core, "h1", world.now)
    assert found is not None
    assert sentences(found)[-1] == "departments that demand one: hpc (3 hosts more)"


def test_a_host_whose_vms_do_not_end_says_when_that_was_ordered_and_when_it_is_again() -> None:
    site = Site()
    custody, world = site.core.custody, site.world
    world.write("scheduler.hpc", f.HostReleased(host="h1"))
    config, host = custody.state.config, custody.state.hosts["h1"]
    assert config is not None
    ordered = host.since + config.policy.grace_s
    for now, again in ((ordered, 1), (ordered + config.end_again_s, 2)):
        found = why_host.explain(site.core, "h1", now)
        assert found is not None
        told = f"the hard end of 1 VM was ordered at {iso(ordered)} at the latest"
        at = iso(ordered + again * config.end_again_s)
        assert f"{told}, and is ordered again at {at} where it is still under way then" in sentences(found)
    found = why_host.explain(site.core, "h1", ordered - 0.01)
    assert found is not None
    assert not any("hard end" in sentence for sentence in sentences(found))
