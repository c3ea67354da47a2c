"""Releases as people see them: the monitor's picture, the words for it, and what `phoenix deploy` asks and waits for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from phoenix.cli import departments, deploy, instances, releases
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client, Response
from phoenix.cli.last_output import LINES_MAX, last_words
from phoenix.cli.parser import make
from schemas import facts as f
from schemas import reasons as because
from schemas.reasons import Reason
from schemas.releases import Release
from services.domain import text as sentences
from services.domain.custody.state import RELEASES_KEPT
from services.monitor.metrics.collect import ReadModel
from services.monitor.views.views import Views
from tests.support.closing import closing
from tests.unit.test_custody_rules import Step
from tests.unit.test_monitor_core import ADOPTED, Desk

FAILED = because.ReleaseFailed(release=2, failures=5, unit="web.9", cause="boot_timeout", back_to=1)
STUCK = because.RollStuck(department="web", release=2, hosts=4, max_unavailable=0, helps=1)
SERVES: tuple[Step, ...] = (
    ("executor", f.HostDescribed(host="h1", one_id=1, cores=8, memory_mb=8192)),
    ("executor", f.HostCleared(host="h1")),
    ("provisioner", f.HostGranted(host="h1", dept="web")),
)


def asked(number: int, image: str = "") -> Step:
    fact = f.ReleaseRequested(dept="web", release=number, user="wes", content=Release(image=image), max_surge=2)
    return "admission", fact


def told(number: int, state: Any, reason: Reason | None = None, back_to: int = 0) -> Step:
    why = reason or because.ReleaseDeployed(release=number, user="wes")
    return "scheduler.web", f.ReleaseChanged(dept="web", release=number, state=state, back_to=back_to, reason=why)


def instance(number: int, release: int, begins: bool = True) -> tuple[Step, ...]:
    unit = f"web.{number}"
    placed = f.UnitPlaced(unit=unit, attempt=1, hosts=("h1",), cores=1, memory_mb=1, release=release)
    begun = ("admission", f.AttemptBegan(unit=unit, attempt=1, addresses=("127.0.0.1:1",)))
    return (("scheduler.web", placed), *((begun,) if begins else ()))


def stages(views: Views) -> dict[int, str]:
    return {one["release"]: one["state"] for one in views.releases("web")["releases"]}


# ------------------------------------------------------------------------------------------------------------------ picture


def test_a_department_begins_with_what_the_configuration_says() -> None:
    views = Desk().play(ADOPTED).views
    shown = views.releases("web")
    assert (shown["wanted"], shown["state"], stages(views)) == (0, "complete", {0: "complete"})
    assert views.department("web")["release"]["release"] == 0
    assert views.department("hpc")["release"] is None


def test_a_roll_and_its_instances() -> None:
    desk = Desk().play(ADOPTED, *SERVES, *instance(1, 0), asked(1, "shop-1"))
    assert stages(desk.views) == {1: "requested", 0: "complete"}
    desk.play(told(1, "rolling"), *instance(2, 1), *instance(3, 1, begins=False))
    draining = f.InstanceDraining(unit="web.1", attempt=1, until=99.0, reason=because.Rolling(release=1))
    desk.play(("scheduler.web", draining))
    newest, configured = desk.views.releases("web")["releases"]
    assert (newest["state"], newest["image"], newest["user"], newest["max_surge"]) == ("rolling", "shop-1", "wes", 2)
    assert (newest["instances"], newest["instances_serving"], newest["content"]["image"]) == (2, 1, "shop-1")
    assert (configured["instances"], configured["instances_serving"], configured["content"]) == (1, 0, None)
    desk.play(told(1, "complete"))
    assert stages(desk.views) == {1: "complete", 0: "replaced"}


def test_a_roll_back_a_stop_and_one_that_takes_over() -> None:
    desk = Desk().play(ADOPTED, asked(1), told(1, "rolling"), told(1, "complete"), asked(2), told(2, "rolling"))
    desk.play(told(2, "rolled_back", FAILED, back_to=1))
    assert (desk.views.releases("web")["wanted"], stages(desk.views)[2], stages(desk.views)[1]) == (
        1,
        "rolled_back",
        "rolling",
    )
    desk.play(told(1, "complete"), asked(3), asked(4), told(4, "rolling"), asked(5), told(5, "rolling"))
    assert stages(desk.views) == {
        5: "rolling",
        4: "replaced",
        3: "replaced",
        2: "rolled_back",
        1: "complete",
        0: "replaced",
    }
    desk.play(told(5, "stopped", FAILED), asked(6), told(6, "rolling"))
    assert stages(desk.views)[5] == "replaced"
    desk.play(*closing(desk.core.custody, "web"))
    assert stages(desk.views) == {0: "complete"}


def test_what_is_asked_for_while_another_one_is_given_up_is_wanted() -> None:
    desk = Desk().play(ADOPTED, asked(1), told(1, "complete"), asked(2), told(2, "rolling"), asked(3))
    desk.play(told(2, "rolled_back", FAILED, back_to=1))
    assert desk.views.releases("web")["wanted"] == 3


def test_a_bounded_number_of_them_is_remembered() -> None:
    desk = Desk().play(ADOPTED, *(asked(number) for number in range(1, 2 * RELEASES_KEPT)))
    assert len(desk.views.releases("web")["releases"]) == RELEASES_KEPT + 1


def test_the_state_is_a_metric_with_four_labels() -> None:
    desk = Desk().play(ADOPTED, asked(1), told(1, "stopped", FAILED))
    registry = CollectorRegistry()
    registry.register(ReadModel(desk.core, desk.views, lambda: 0.0))
    lines = [x for x in generate_latest(registry).decode().splitlines() if x.startswith("phoenix_web_release")]
    assert lines == [
        'phoenix_web_release{department="web"} 1.0',
        'phoenix_web_release_state{department="web",state="requested"} 0.0',
        'phoenix_web_release_state{department="web",state="rolling"} 0.0',
        'phoenix_web_release_state{department="web",state="complete"} 0.0',
        'phoenix_web_release_state{department="web",state="stopped"} 1.0',
    ]


# -------------------------------------------------------------------------------------------------------------------- words


def test_why_a_release_was_given_up_is_told() -> None:
    assert sentences.sentence(FAILED) == (
        "release 2 was given up after 5 failures: the last instance, web.9, did not come up in time; release 1 is wanted again"
    )
    assert sentences.remedy(FAILED) == "`phoenix logs web.9` shows what it wrote; deploy one that runs"
    stopped = because.ReleaseFailed(release=0, failures=1, unit="web.2", cause="vm_ended")
    assert sentences.sentence(stopped).endswith("ended by itself; nothing more is started")
    assert sentences.remedy(stopped).endswith("to try the same again: phoenix scale web N")
    deployed = because.ReleaseDeployed(release=0, user="configuration")
    assert sentences.sentence(deployed) == "the configuration says otherwise what release 0 runs"
    assert sentences.sentence(because.Rolling(release=2, instances=1, others=3, failures=2)) == (
        "release 2 takes the others' places: 1 instance of it, 3 others; 2 failures until now"
    )
    young = because.Rolling(release=2, instances=1, others=3, failures=0, fresh=1, min_ready_s=5.0)
    assert sentences.sentence(young).endswith("1 instance of it, 3 others; 1 instance has served for less than 5s")


def test_what_a_roll_waits_for_and_what_helps() -> None:
    assert sentences.sentence(STUCK) == (
        "release 2 waits for a host for its next instance: web holds 4 hosts, and none is free for it; "
        "with max_unavailable 0 no other instance may leave first"
    )
    place = "`phoenix deploy web --max-unavailable 1` continues on the hosts that it has"
    assert sentences.remedy(STUCK) == f"{place}; or free a host"
    short = because.RollStuck(department="web", release=2, hosts=1)
    assert sentences.sentence(short).endswith("its next instance: web holds 1 host, and none is free for it")
    assert sentences.remedy(short) == "free a host"
    most = replace(STUCK, maximum=4)
    assert "web holds 4 hosts, as many as it may have; " in sentences.sentence(most)
    assert sentences.remedy(most) == f"{place}; or raise the maximum of the department"


def test_departments_tell_of_a_roll_and_of_a_stop() -> None:
    desk = Desk().play(ADOPTED, *SERVES, *instance(1, 0), asked(1), told(1, "rolling"), *instance(2, 1))
    assert departments.render(desk.views.departments()["departments"]).endswith(
        "web rolls release 1 out: 1 instance of it, 1 another one"
    )
    desk.play(told(1, "stopped", FAILED))
    assert "web has stopped: release 2 was given up" in departments.render(desk.views.departments()["departments"])


def test_releases_are_a_table() -> None:
    desk = Desk().play(ADOPTED, *SERVES, *instance(1, 0), asked(1, "shop-1"), told(1, "rolled_back", FAILED))
    lines = releases.render(desk.views.releases("web")).splitlines()
    assert lines[0].split() == ["RELEASE", "STATE", "IMAGE", "WHEN", "BY", "INSTANCES"]
    assert lines[1].split()[:4] == ["1", "rolled", "back", "shop-1"]
    assert lines[2].split() == ["0", "rolling", "-", "(configuration)", "-", "1"]
    assert lines[3].startswith("Release 2 was given up after 5 failures")


# ------------------------------------------------------------------------------------------------------------------- deploy


def parsed(*argv: str) -> Any:
    parser = make("deploy")
    deploy.add_arguments(parser)
    return parser.parse_args(deploy.prepared(["web", *argv]))


def test_what_is_asked_for() -> None:
    named = ("--image", "v2", "--env", "A=1=2", "--secret", "KEY=shop-key", "--unset", "B", "--max-surge", "0")
    args = parsed(*named, "--min-ready", "10s", "--", "./serve", "--json", "--", "x")
    body = deploy._asked(args)
    assert len(body.pop("request")) == 36
    assert body == {
        "image": "v2",
        "command": ["./serve", "--json", "--", "x"],
        "environment": {"B": None, "A": "1=2"},
        "secrets": {"B": None, "KEY": "shop-key"},
        "health_path": None,
        "configured": False,
        "undo": False,
        "max_unavailable": None,
        "max_surge": 0,
        "min_ready_s": 10.0,
    }
    assert (args.json, parsed("--").command, parsed("--undo").command) == (False, [], None)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env", "A"], "--env A: NAME=VALUE is needed"),
        (["--secret", "=x"], "--secret =x: NAME=VALUE is needed"),
        (["--timeout", "9s"], "--timeout goes with --wait"),
        (["--wait", "--timeout", "soon"], "--timeout: 'soon' is no time"),
        (["--min-ready", "soon"], "--min-ready: 'soon' is no time"),
    ],
)
def test_what_is_mistyped(argv: list[str], message: str) -> None:
    with pytest.raises(CliError, match=message):
        deploy.run(parsed(*argv))


class Told(Client):
    """A cloud that answers one after another."""

    def __init__(self, *states: str) -> None:
        super().__init__("http://127.0.0.1:1")
        self.states = list(states)
        self.reasons = [because.Running()]

    def get(self, path: str, **_values: object) -> Any:
        if path == "/v1/why/web":
            return {"reasons": to_builtins(self.reasons)}
        assert path == "/v1/departments/web/releases"
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        reason = to_builtins(FAILED) if state == "rolled_back" else None
        return {"releases": [{"release": 2, "state": state, "instances_serving": 1, "reason": reason}]}


@pytest.mark.parametrize(
    ("failures", "boot_s", "said"),
    [
        (5, 60.0, "it is given up after 5 failed starts of at most 60 s each"),
        (1, 2.5, "it is given up after 1 failed start of at most 2.5 s each"),
        (0, 60.0, "it is tried until another release is deployed: start_failures_max is 0"),
    ],
)
def test_when_a_release_is_given_up_is_as_the_department_says(failures: int, boot_s: float, said: str) -> None:
    assert deploy.given_up({"release": 4, "start_failures_max": failures, "boot_timeout_s": boot_s}) == said


def test_waiting_ends_with_what_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy, "POLL_FIRST_S", 0.0)
    assert deploy.wait(Told("requested", "rolling", "complete"), "web", 2, None)["state"] == "complete"
    failed = deploy.wait(Told("rolling", "rolled_back"), "web", 2, None)
    assert deploy._why_not(failed).startswith("release 2 was given up after 5 failures")
    assert deploy._why_not(deploy.wait(Told("replaced"), "web", 2, 9.0)).startswith("another release took the place")
    assert deploy._why_not(deploy.wait(Told("complete"), "web", 3, 9.0)).startswith("another release took the place")
    late = deploy.wait(Told("rolling"), "web", 2, 0.0)
    assert deploy._why_not(late) == "release 2 is not complete after 0 s (rolling); it continues"


def test_progress_counts_those_that_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"release": 2, "state": "rolling", "instances_serving": 1, "instances": 1, "instances_wanted": 3}
    shown = deploy._progress(one, None, "")
    assert capsys.readouterr().err == "release 2: rolling, 1 of 3 in service\n"
    assert deploy._progress(one, None, shown) == shown
    assert capsys.readouterr().err == ""  # it is said once


ILL = {"unit": "web.9", "answer": "/healthz answered HTTP 500"}


@pytest.mark.parametrize(
    ("reason", "told", "remedy"),
    [
        (
            because.Starting(instances=1, **ILL),
            "; 1 instance is being started; by now /healthz answered HTTP 500",
            "`phoenix logs web.9` shows what it writes; phoenix deploy web --undo goes back to what ran before",
        ),
        (
            because.Rolling(
                release=2,
                instances=0,
                others=3,
                failures=2,
                cause="boot_timeout",
                boot_timeout_s=60.0,
                **ILL,
            ),
            "; release 2 takes the others' places: 0 instances of it, 3 others; 2 failures until now, the last one: web.9 "
            "was not healthy within 1m00s: /healthz answered HTTP 500",
            "`phoenix logs web.9` shows what it wrote; deploy one that runs, or go back: phoenix deploy web --undo",
        ),
        (because.Rolling(release=2, instances=1, others=2, failures=0), "", ""),
        (because.Starting(instances=1), "", ""),
    ],
)
def test_progress_says_why_instances_do_not_come(
    reason: Reason, told: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Told("rolling")
    cloud.reasons.append(reason)
    deploy._progress({"release": 2, "state": "rolling", "instances_wanted": 3}, releases.stuck(cloud, "web"), "")
    assert capsys.readouterr().err == f"release 2: rolling, 0 of 3 in service{told}\n"
    assert not remedy or sentences.remedy(reason) == remedy


def test_an_old_roll_back_is_told_until_the_next_deploy() -> None:
    row = {"image": "", "requested_at": None, "user": "", "instances": 1, "instances_serving": 1, "reason": None}
    bad = {**row, "release": 2, "state": "rolled_back", "reason": to_builtins(FAILED)}
    assert "Release 2 was given up" in releases.render({"releases": [bad]})
    assert "was given up" not in releases.render({"releases": [{**row, "release": 3, "state": "complete"}, bad]})


def test_waiting_in_vain_tells_what_for() -> None:
    cloud = Told("rolling")
    cloud.reasons.append(STUCK)
    late = deploy.wait(cloud, "web", 2, 0.0)
    assert deploy._why_not(late).startswith("release 2 is not complete after 0 s: release 2 waits for a host")
    assert sentences.remedy(late["stuck"]) == sentences.remedy(STUCK)
    lines = releases.render({"releases": [], "stuck": releases.stuck(cloud, "web")}).splitlines()
    assert lines[-2].startswith("Release 2 waits for a host for its next instance")
    assert lines[-1].startswith("To unblock it: `phoenix deploy web --max-unavailable 1`")


class Wrote(Client):
    """A door that has these logs."""

    def __init__(self, **streams: bytes) -> None:
        self._streams = streams

    def fetch(self, method: str, path: str, body: bytes | None = None) -> Response:
        return Response(200, {}, self._streams["stderr" if "stderr" in path else "stdout"])


def test_the_last_words_of_an_instance_are_the_end_of_stderr_or_else_of_stdout() -> None:
    told = b"Traceback\n" * 9 + b"OSError: cannot \x1b[1mread config\n\n"
    assert last_words(Wrote(stderr=told), "web.7")[-2:] == ["Traceback", "OSError: cannot  [1mread config"]
    assert len(last_words(Wrote(stderr=told), "web.7")) == LINES_MAX
    assert last_words(Wrote(stderr=b"\n", stdout=b"starting\n"), "web.7") == ["starting"]
    assert last_words(Wrote(stderr=b"", stdout=b""), "web.7") == []
    shown = {"instance": "web.7", "state": "failed", "release": 2, "why": {"code": "vm_ended"}}
    (row,) = instances._with_last_words(Wrote(stderr=told), [shown])
    assert "it wrote last: OSError: cannot  [1mread config" in instances.render([row])


def test_one_that_a_release_has_replaced_says_so() -> None:
    for code in (because.Drained, because.DrainTimeout):
        assert sentences.sentence(code(release=3)).startswith("release 3 is rolled out")
        assert sentences.sentence(code()).startswith("it was not needed any more")


def test_what_is_no_name_of_a_secret_is_told_in_words() -> None:
    with pytest.raises(CliError, match="a secret's name is 1 to 64 small letters"):
        deploy._secrets(["A=B=C"])
