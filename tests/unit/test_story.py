"""Stories: an entity's whole life, in order, with the decisions that led to each step, as far as the reader may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestClient, TestServer

from phoenix.cli import story as cli
from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, User
from schemas.envelope import Received, decode
from schemas.reasons import Reason
from schemas.releases import Release
from schemas.units import exact
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.monitor.core.buckets import DAY_MS
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain import story_causes
from services.monitor.explain.story import Node, Story
from services.monitor.explain.story import _step as told_step
from services.monitor.history import story_index
from services.monitor.history.file import History
from services.monitor.history.story_index import Place
from services.monitor.http.access import Access, faults
from services.monitor.views.views import Views
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from tests.support.world import Seat, World, batch, web

PEOPLE = (
    User(name="alice", department="hpc"),
    User(name="wendy", department="web"),
    User(name="oscar", department="operators", role="operator"),
)
CLOUD = CloudConfig(name="c", departments=(batch("hpc"), web("web")), users=PEOPLE)

DRAINED = because.HostDrained(host="h1")


class OfWorld:
    """What was said at a place of a world's journal."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gone: set[int] = set()

    async def get(self, positions: Iterable[int]) -> dict[int, Received]:
        journal = self.world.journal
        return {n: decode(journal[n - 1][1], journal[n - 1][0]) for n in positions if n not in self.gone}


class Site:
    """hpc fills three hosts; then web wants one."""

    def __init__(self, tmp_path: Path) -> None:
        self.world = world = World(CLOUD)
        world.strict = False
        world.hosts(3)
        world.seat("provisioner", ProvisionerCore)
        world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
        world.executor()
        self.run_s: dict[str, float] = {}
        world.guests(run_s=self.run_s)
        self.history = History(Path(":memory:"))
        self.history.open()
        self.core: MonitorCore
        self.monitor = Seat("monitor", self._make)
        self.facts = OfWorld(world)
        tokens = tmp_path / "tokens.json"
        tokens.write_bytes(orjson.dumps({digest(f"t-{user.name}"): user.name for user in PEOPLE}))
        access = Access(self.core.custody, Identities(tokens, CLOUD))
        app = http.Application(middlewares=[faults])
        app.add_routes(Story(access, Views(self.core), self.history, self.facts).routes())
        self.client = TestClient(TestServer(app))

    def _make(self, custody: Custody) -> MonitorCore:
        self.core = MonitorCore(custody, self._watch)
        return self.core

    def _watch(self, fact: f.Fact, meta: Meta) -> None:
        self.history.note(self.core, fact, meta)

    def play(self) -> None:
        """Four jobs, one an array; a minute later a person wants an instance, and job 2 has the shortest run."""
        for _ in range(2):
            self.world.submit(cores=4)
        self.world.submit(cores=4, array=(1, 2), walltime_s=600.0)
        self.world.settle()
        self.world.now += 60
        self.world.write("admission", f.ScaleRequested(dept="web", user="wendy", minimum=1))
        reason = because.ScaledByPerson(minimum=1)
        self.world.write("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1, reason=reason))
        self.world.settle()
        self.monitor.fold(self.world.journal)

    async def get(self, path: str, user: str = "oscar") -> tuple[int, dict[str, Any]]:
        answer = await self.client.get(f"/v1/story/{path}", headers={"Authorization": f"Bearer t-{user}"})
        return answer.status, await answer.json()

    async def story(self, path: str, user: str = "oscar") -> dict[str, Any]:
        status, answer = await self.get(path, user)
        assert status == 200, answer
        return answer


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.client.start_server()
    made.play()
    yield made
    await made.client.close()
    await made.history.close()


def moved(site: Site) -> str:
    return next(name for name, host in site.world.custody.state.hosts.items() if host.dept == "web")


def victim(site: Site) -> str:
    return next(fact.unit for fact in site.world.facts(f.AttemptClosed))


def kinds(answer: dict[str, Any]) -> list[str]:
    return [step["kind"] for step in answer["steps"]]


async def test_a_host_that_moved_says_what_led_to_it_back_to_the_person_who_asked(site: Site) -> None:
    answer = await site.story(moved(site))
    assert kinds(answer)[-5:] == ["unit.placed", "attempt.closed", "host.released", "host.cleared", "host.granted"]
    assert (answer["kind"], answer["department"], answer["more"]) == ("host", "web", False)
    closed, released, cleared, granted = answer["steps"][-4:]
    chain = ["quota.changed", "demand.changed", "scale.requested"]
    assert [cause["kind"] for cause in closed["because"]] == chain
    assert [cause["kind"] for cause in released["because"]] == chain
    assert released["because"][-1]["sentence"] == "wendy set web to at least 1 instance"
    assert (cleared["because"], cleared["cause"]) == ([], released["position"])
    assert (granted["because"], granted["cause"]) == ([], cleared["position"])
    assert (granted["cause_index"], cleared["cause_index"]) == (cleared["index"], released["index"])
    text = cli.render(answer)
    assert "is granted to web: web wants 1 host and held 0" in text
    assert "      because hpc may keep 2 hosts: web wants more hosts than it holds  (0.000 s before)" in text


async def test_a_job_that_gave_its_host_says_who_wanted_it(site: Site) -> None:
    unit = victim(site)
    answer = await site.story(unit)
    assert answer["kind"] == "job"
    assert kinds(answer)[0] == "job.submitted"
    closed = next(step for step in answer["steps"] if step["kind"] == "attempt.closed")
    assert [cause["kind"] for cause in closed["because"]] == ["quota.changed", "demand.changed", "scale.requested"]
    assert closed["reason"]["code"] == "reclaimed"
    assert closed["refs"] == []


async def test_a_job_that_ended_for_a_claim_says_who_claimed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    world = site.world
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.submit(cores=4)
    world.submit(cores=4)
    world.settle()
    world.now += 60
    claim = f.LoadObserved(dept="web", start=world.now, end=world.now, samples=1, claim=2, claim_by="wendy")
    world.write("scheduler.web", claim)
    world.settle()
    site.monitor.fold(world.journal)
    async with site.client:
        (closed,) = [step for step in (await site.story(victim(site)))["steps"] if step["kind"] == "attempt.closed"]
        placed = (await site.story("web.2"))["steps"][0]
    await site.history.close()
    for step in (closed, placed):
        assert (
            step["because"][-1]["sentence"] == "web demands 2 hosts for 2 instances: 2 instances are claimed by wendy"
        )


async def test_an_element_has_its_arrays_submission_and_an_array_its_elements(site: Site) -> None:
    element, array = await site.story("3_1"), await site.story("3")
    assert kinds(element)[0] == kinds(array)[0] == "job.submitted"
    assert {"3_1", "3_2"} & {ref for step in array["steps"] for ref in step["refs"]}


async def test_an_element_that_its_array_does_not_have_has_no_story(site: Site) -> None:
    for name in ("3_20", "1_7"):
        status, answer = await site.get(name)
        assert (status, answer["code"]) == (404, "unknown")
        assert repr(name) in answer["detail"]


async def test_a_job_that_ends_by_itself_is_a_beginning(site: Site) -> None:
    """Of the VM that ends: the report, and not how the attempt once began, nor whose room it had got."""
    unit = next(name for name, known in site.world.custody.state.units.items() if known.live and "." not in name)
    site.world.write(
        "admission", f.AttemptReported(unit=unit, attempt=site.world.custody.state.units[unit].attempt, exit=0)
    )
    site.world.settle()
    site.monitor.fold(site.world.journal)
    answer = await site.story(unit)
    reported = next(step for step in answer["steps"] if step["kind"] == "attempt.reported")
    assert (reported["cause"], reported["because"]) == (None, [])
    assert story_causes.of("vm.ended", {"unit": unit}, "hpc")[0][1][:2] == ("attempt.closed", "attempt.reported")


@pytest.mark.parametrize(
    ("reason", "kinds"),
    [
        (because.Rolling(release=2), ("release.requested", "release.changed")),
        (because.Reclaimed(hosts=1), ("quota.changed",)),
        (because.ScaleDown(instances=2), ("demand.changed",)),
    ],
)
def test_an_instance_drains_because_of_what_its_reason_says(reason: Reason, kinds: tuple[str, ...]) -> None:
    """And not of what was decided in the same moment: a demand has nothing to do with a release."""
    fact = msgspec.to_builtins(f.InstanceDraining(unit="web.1", attempt=1, until=9.0, reason=reason))
    assert story_causes.of("instance.draining", fact, "web") == [("department:web", kinds)]


async def test_a_job_that_a_deploy_ended_says_who_deployed(site: Site) -> None:
    content = Release(image="shop-1")
    site.world.write("admission", f.ReleaseRequested(dept="web", release=1, user="wendy", content=content))
    site.world.settle()
    ended = len(site.world.facts(f.AttemptClosed))
    deployed = because.ReleaseDeployed(release=1, user="wendy")
    surge = because.RoomBeside(release=1, surge=1)
    site.world.write(
        "scheduler.web",
        f.ReleaseChanged(dept="web", release=1, state="rolling", reason=deployed),
        f.DemandChanged(dept="web", hosts=2, instances=1, reason=surge),
    )
    site.world.settle()
    site.monitor.fold(site.world.journal)
    steps = (await site.story(site.world.facts(f.AttemptClosed)[ended].unit))["steps"]
    closed = [step["because"] for step in steps if step["kind"] == "attempt.closed"][-1]
    assert [cause["kind"] for cause in closed] == [
        "quota.changed",
        "demand.changed",
        "release.changed",
        "release.requested",
    ]
    assert closed[1]["sentence"].endswith(": release 1 is rolled out with 1 instance more (max_surge)")


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ({"release": 1, "surge": 1}, [("department:web", ("release.requested", "release.changed"))]),
        ({"draining": 1}, []),
        ({"cordoned": ["h1"]}, [("host:h1", ("host.cordoned",))]),
        ({"freed": ["h1"]}, [("host:h1", ("attempt.closed", "attempt.reported"))]),
    ],
)
def test_a_claim_changes_because_of_what_takes_room(told: dict[str, Any], asked: story_causes.Asked) -> None:
    fact = msgspec.to_builtins(f.DemandChanged(dept="web", hosts=2, instances=1, reason=because.RoomBeside(**told)))
    assert story_causes.of("demand.changed", fact, "web") == asked


@pytest.mark.parametrize(
    ("reason", "asked"),
    [
        (because.WebDemand(departments=["web", "shop"], held=3), ["department:web", "department:shop"]),
        (because.BatchShare(department="hpc", held=3), ["department:hpc", "department:lab", "department:web"]),
        (because.Cordoned(hosts=["h1", "h2"]), ["host:h1", "host:h2"]),
        (because.IdleToBatch(department="hpc", held=3), []),  # what hpc wants has nothing to do with it
    ],
)
def test_a_quota_changes_because_of_who_claims_or_of_who_set_hosts_apart(reason: Reason, asked: list[str]) -> None:
    fact = msgspec.to_builtins(
        f.QuotaChanged(
            dept="hpc", hosts=2, by=9.0, claimants=tuple(because.fields(reason).get("departments", ())), reason=reason
        )
    )
    found = story_causes.of("quota.changed", fact, "hpc", ("hpc", "lab", "web"))
    assert [entity for entity, _ in found] == asked
    assert {kind for _, kinds in found for kind in kinds} <= {"demand.changed", "host.cordoned"}


@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        ("attempt.closed", f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.REQUEUE, why=DRAINED)),
        ("host.released", f.HostReleased(host="h1", reason=DRAINED)),
        ("host.released", f.HostReleased(host="h1", reason=because.Cordoned(hosts=["h1"]))),
        ("host.seized", f.HostSeized(host="h1", dept="hpc", reason=DRAINED)),
    ],
)
def test_what_ends_or_goes_back_on_a_drained_host_is_that_persons_doing(kind: str, fact: f.Fact) -> None:
    assert story_causes.of(kind, msgspec.to_builtins(fact), "hpc") == [("host:h1", ("host.cordoned",))]


async def test_a_department_says_what_it_wanted_and_who_asked(site: Site) -> None:
    answer = await site.story("web", "wendy")
    assert kinds(answer) == ["scale.requested", "demand.changed", "quota.changed", "host.granted"]
    assert answer["steps"][1]["cause"] == answer["steps"][0]["position"]


async def test_others_jobs_are_left_out_of_a_hosts_story_and_of_causes(site: Site) -> None:
    answer = await site.story(moved(site), "wendy")
    assert {kind for kind in kinds(answer) if not kind.startswith("host.")} == set()
    told = [cause["kind"] for step in answer["steps"] for cause in step["because"]]
    assert "quota.changed" in told
    assert not any(kind.startswith(("attempt", "unit", "job")) for kind in told)


def test_others_jobs_are_left_out_of_a_chain_whoever_they_led_to() -> None:
    """Whatever the causes are: they are looked at before they are shown."""
    closed = Node(Place(1, 0, "attempt.closed", "17"), 1.0, {"unit": "17", "attempt": 1, "disposal": "requeue"}, "hpc")
    fields = {"host": "h1", "dept": "web"}
    granted = Node(Place(2, 0, "host.granted", "host:h1"), 2.0, fields, "web", closed.place)
    nodes = {node.key: node for node in (closed, granted)}
    for scope, shown in ((None, ["attempt.closed"]), ("hpc", ["attempt.closed"]), ("web", [])):
        step = told_step(granted, nodes, {granted.key}, scope, "h1")
        assert [cause["kind"] for cause in step["because"]] == shown


async def test_a_host_that_is_lost_is_a_step_of_the_jobs_that_were_there(site: Site) -> None:
    units = site.world.custody.state.units
    unit = next(name for name, known in units.items() if known.live and "." not in name)
    site.world.write("executor", f.HostLost(host=units[unit].hosts[0], reason="stuck"))
    site.world.settle()
    site.monitor.fold(site.world.journal)
    steps = {step["kind"]: step for step in (await site.story(unit))["steps"]}
    assert (steps["attempt.closed"]["cause"], steps["attempt.closed"]["because"]) == (
        steps["host.lost"]["position"],
        [],
    )


async def test_the_newest_steps_are_told_and_that_there_are_more(site: Site) -> None:
    whole, some = await site.story("1"), await site.story("1?limit=2")
    assert kinds(some) == kinds(whole)[-2:]
    assert some["more"]
    late = await site.story(f"{moved(site)}?since={exact(site.world.now - 1)}")
    assert kinds(late) == ["attempt.closed", "host.released", "host.cleared", "host.granted"]
    assert late["more"]


async def test_what_is_nowhere_any_more_is_missing_and_said_to_be(site: Site) -> None:
    whole = await site.story("1")
    site.facts.gone.add(whole["steps"][0]["position"])
    answer = await site.story("1")
    assert answer["more"]
    assert kinds(answer) == kinds(whole)[1:]


@pytest.mark.parametrize(
    ("path", "user", "status"),
    [
        ("1", "alice", 200),
        ("1", "wendy", 404),
        ("web", "alice", 403),
        ("h1", "wendy", 200),
        ("h1?kind=job", "oscar", 404),
        ("h1?kind=hots", "oscar", 400),
        ("99", "oscar", 404),
        ("1?since=x", "oscar", 400),
        ("1", "nobody", 401),
    ],
)
async def test_who_may_read_which(site: Site, path: str, user: str, status: int) -> None:
    assert (await site.get(path, user))[0] == status


async def test_a_job_of_another_department_is_as_one_that_is_not_there(site: Site) -> None:
    told = {job: (await site.get(job, "wendy")) for job in ("1", "99")}
    hidden = [told["1"][0], orjson.dumps(told["1"][1]).replace(b"'1'", b"'99'")]
    assert hidden == [404, orjson.dumps(told["99"][1])]


async def test_places_go_with_the_days_that_are_kept(site: Site) -> None:
    before = await site.history.ask(story_index.size)
    day = int(site.world.now * 1000) // DAY_MS * DAY_MS
    await site.history.ask(story_index.cut, day)
    assert await site.history.ask(story_index.size) == before
    site.world.now += 86_400
    site.world.submit(cores=4)
    site.monitor.fold(site.world.journal)
    await site.history.ask(story_index.cut, day + DAY_MS)
    left = (await site.story("h1", "oscar"))["steps"]
    assert left == []
    assert kinds(await site.story("4")) == ["job.submitted"]


async def test_what_is_said_of_an_array_is_in_the_story_of_the_elements_that_it_names(site: Site) -> None:
    site.world.write("admission", f.ArrayHeld(job="3", dept="hpc", elements="2", user="alice"))
    site.world.write("admission", f.ArrayCancelled(job="3", dept="hpc", elements="1-2", user="alice"))
    site.world.settle()
    site.monitor.fold(site.world.journal)
    told = [kind for kind in kinds(await site.story("3_2", "alice")) if kind.startswith("array")]
    assert told == ["array.held", "array.cancelled"]
    one = await site.story("3_1", "alice")
    assert [kind for kind in kinds(one) if kind.startswith("array")] == ["array.cancelled"]
    assert not one["more"]
    sentences = [step["sentence"] for step in one["steps"] if step["kind"] == "array.cancelled"]
    assert sentences == ["alice cancelled elements 1-2 of array 3"]
    assert kinds(await site.story("3", "alice"))[-1] == "array.cancelled"
