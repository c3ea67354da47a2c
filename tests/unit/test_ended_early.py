"""A job that its guest told to end, and that wishes to complete on that: every view says that it ended early, and why it was
preempted; without the wish, no view knows anything but the preemption."""

from __future__ import annotations

from typing import Any

import pytest

from phoenix.cli import events as cli_events
from phoenix.cli import history as cli_history
from phoenix.cli import queue as cli_queue
from phoenix.cli import show as cli_show
from phoenix.cli import usage as cli_usage
from phoenix.cli import waiting
from schemas import facts as f
from schemas.config import BatchPolicy, Department
from services.domain.text import sentence
from services.domain.text.facts import told
from services.monitor.history import reads
from services.monitor.history.reads import Filter
from services.monitor.views.usage import EVER, usage
from services.monitor.views.views import Views
from services.scheduler.lookahead.why import why
from tests.properties.test_accounting import house
from tests.properties.test_history import Written
from tests.support.scheduling import core
from tests.support.world import World
from tests.unit.test_monitor_core import shown

HOUR_MS = 3_600_000


class Preempted:
    """Job 1 has run for ten seconds when its host is taken, and its script ends with 0; job 2 waits for it."""

    def __init__(self, how: str, **asked: Any) -> None:
        self.world = world = house()
        self.job = world.submit(name="tidy", cores=4, **asked)
        self.next = world.submit(after=(f.Dependency(condition="afterok", job=self.job),))
        world.settle()
        world.begin(self.job)
        world.now += 10.0
        if how == "notice":
            world.quota("hpc", 0)
            world.settle()
        else:  # its scheduler has not answered
            seat = world.seats.pop("scheduler.hpc")
            world.quota("hpc", 0, by_s=0.0)
            for host in world.unit(self.job).hosts:
                world.write("provisioner", f.HostSeized(host=host, dept="hpc"))
            self.report()
            world.seats["scheduler.hpc"] = seat
            seat.fold(world.journal)
        if how == "notice":
            self.report()
        world.settle()
        self.written = Written().fold(world)

    def report(self) -> None:
        self.world.report(self.job, terminated=True)

    def history(self) -> dict[str, Any]:
        found = reads.jobs(self.written.db, Filter(), round(self.world.now * 1000) + HOUR_MS)
        return next(dict(job) for job in found["jobs"] if job["unit"] == self.job)

    def view(self) -> dict[str, Any]:
        found = shown(Views(self.written.core), self.job)
        assert found is not None
        return cli_show.normal(found, self.job)


@pytest.fixture(params=["notice", "seized"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_view_says_that_it_ended_early_and_why_it_was_preempted(how: str) -> None:
    case = Preempted(how, on_term="complete")
    view, past = case.view(), case.history()
    assert (view["state"], view["exit_code"], view["on_term"]) == ("ended_early", 0, "complete")
    shown = cli_show.render(view)
    assert "ended early" in shown
    assert "it has completed, ended early: its script exited with 0 on SIGTERM" in shown
    assert past["state"] == "ended_early"
    assert past["reason"]["code"] == ("reclaimed" if how == "notice" else "host_taken")
    assert "ended early" in cli_history.render([past])
    assert view["attempts"][0]["why"]["code"] == past["reason"]["code"]
    ended = usage(case.written.core.accounting, "user", None, 0.0, EVER, case.world.now)["departments"]
    assert next(one["ended"] for one in ended if one["department"] == "hpc") == {"ended_early": 1}


def test_without_the_wish_the_preemption_is_all_that_anybody_knows(how: str) -> None:
    case = Preempted(how)
    view, past = case.view(), case.history()
    assert (view["state"], view["exit_code"]) == ("pending", None)
    assert [attempt["disposal"] for attempt in view["attempts"]] == ["requeue"]
    assert past["reason"]["code"] == ("reclaimed" if how == "notice" else "host_taken")
    hpc = usage(case.written.core.accounting, "user", None, 0.0, EVER, case.world.now)["departments"][0]
    assert (hpc["department"], hpc["lost_core_s"], hpc["ended"]) == ("hpc", 40.0, {})  # nothing of it is taken back
    assert case.world.unit(case.next).attempt == 0  # who depends on its success does not start


def test_who_depends_on_its_success_starts_where_it_wishes_so() -> None:
    case = Preempted("notice", on_term="complete")
    back(case.world)
    assert case.world.unit(case.next).attempt == 1
    case = Preempted("notice")
    back(case.world)
    assert (case.world.unit(case.job).attempt, case.world.unit(case.next).attempt) == (2, 0)


def back(world: World) -> None:
    """The department has its hosts again."""
    world.quota("hpc", 3)
    for name in ("h1", "h2", "h3"):
        world.write("executor", f.HostCleared(host=name))
        world.write("provisioner", f.HostGranted(host=name, dept="hpc"))
    world.settle()


def test_a_department_may_wish_it_for_its_jobs() -> None:
    world = house()
    config = world.custody.state.config
    assert config is not None
    wishing = Department(name="hpc", kind="batch", batch=BatchPolicy(on_term="complete"))
    others = tuple(department for department in config.departments if department.name != "hpc")
    changed = type(config)(name="test", departments=(wishing, *others), capabilities=config.capabilities)
    job = world.submit()
    world.settle()
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=3, config=changed))
    world.report(job, terminated=True)
    assert world.unit(job).end == "ended_early"


def test_its_scheduler_and_the_events_say_so() -> None:
    case = Preempted("notice", on_term="complete")
    (reason,) = why(core(case.world), case.job, case.world.now)
    assert "ended early" in sentence(reason)
    fields = {"unit": "1", "attempt": 1, "exit": 0, "seconds": 3.0, "terminated": True}
    assert told("attempt.reported", fields, "hpc") == (
        "job 1 has completed, ended early after 3s: its script exited with 0 on SIGTERM"
    )
    event = {"kind": "attempt.reported", "at": 0.0, "department": "hpc"}
    line = cli_events.render({**event, "fact": fields})
    assert line == "1970-01-01T00:00:00Z  attempt.reported   hpc        unit=1 attempt=1 exit=0 seconds=3 ended early"
    failed = cli_events.render({**event, "fact": {**fields, "exit": 143}})
    assert ("ended early" in failed, "terminated=True" in failed) == (False, True)


def test_a_failure_after_it_was_told_to_end_did_not_end_early() -> None:
    attempt = {"attempt": 1, "terminated": True, "disposal": None}
    shown = [cli_show._attempts([{**attempt, "exit": code}]) for code in (0, 143)]
    assert ["ended early" in table for table in shown] == [True, False]


def test_states_and_ends_are_shown_in_words() -> None:
    line = ["1", "tidy", "hpc", "ann", "ended_early", 1, 4, None, {"code": "finished"}]
    assert " ended early " in cli_queue.render([line], 1)
    assert "ended_early" in cli_queue.STATES
    assert "ended_early" in reads.STATES
    assert "1 ended early" in cli_usage._work("ann", USED, 1.0, str)


USED: dict[str, Any] = {
    **dict.fromkeys(
        ("used_core_s", "lost_core_s", "failed_core_s", "used_gpu_s", "submitted", "preempted", "started"), 1
    ),
    "mean_wait_s": 0.5,
    "ended": {"ended_early": 1},
}


class Answering:
    """A monitor that knows one job."""

    def get(self, _path: str, **_query: Any) -> dict[str, Any]:
        return {"job": "1", "state": "ended_early", "exit_code": 0, "attempts": []}


def test_who_waits_for_it_has_its_exit_code_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    client: Any = Answering()
    assert waiting.wait(client, client, "1", None, None) == 0
    assert capsys.readouterr().err == "phoenix: job 1 has ended early\n"
