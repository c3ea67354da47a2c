"""What the experiment says of a recording, worked out by hand; its report, its table and its picture."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from phoenix.load.curve import Curve, constant
from phoenix.rush import __main__ as command
from phoenix.rush import flaps, levels, plot, report, setting, site, stages
from phoenix.rush import recording as recordings
from phoenix.rush.account import account
from phoenix.rush.setting import Setting, Variant
from phoenix.simulate import plots_style
from schemas.problems import problem
from services.runtime.config import file as config
from services.runtime.config.tables import OpenNebula
from services.runtime.http.answers import problem_answer
from tests.support.rush import BEGAN, recording


def test_all_vms_together_leave_half_of_the_machine() -> None:
    for cpus in (2, 8):
        chosen = Setting(cpus=cpus)
        assert chosen.hosts * chosen.cores * chosen.core_share == pytest.approx(cpus / 2)
        assert chosen.nominal_capacity * chosen.cpu_ms / 1000 == pytest.approx(chosen.instance_cpu)
    chosen = Setting(cpus=2)
    peak = constant(chosen.peak_rate(12.0), 1.0)
    assert setting.busy(peak, 12.0) == [(0.0, pytest.approx(8.0))]
    assert setting.ideal(peak, 12.0, chosen) == [(0.0, 10)]
    assert setting.ideal(constant(1e4, 1.0), 12.0, chosen) == [(0.0, chosen.instances_max)]
    assert setting.ideal(constant(0.0, 1.0), 12.0, chosen) == [(0.0, 1)]


@pytest.mark.parametrize("rule", ["target-tracking", "threshold"])
def test_the_configuration_is_one_that_phoenix_takes(rule: setting.Rule, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(site.configuration(Setting(cpus=2), Variant(name="x", rule=rule)))
    web = config.load(file, OpenNebula()).cloud.department("web")
    assert web is not None
    assert web.web is not None
    assert (web.web.rule, web.web.target, web.web.threshold, web.web.instances_max) == (rule, 0.8, 0.8, 12)


# --------------------------------------------------------------------------------------------------------------- the truth


def test_levels_are_those_of_the_load_s_own_time() -> None:
    one = recording()
    assert levels.needed(one) == [(0.0, 0.8), (10.0, 2.4), (20.0, 0.8)]
    assert levels.ideal(one) == [(0.0, 1.0), (10.0, 3.0), (20.0, 1.0)]
    assert levels.serving(one) == [(0.0, 1.0), (12.0, 2.0), (14.0, 3.0), (26.0, 1.0)]
    assert levels.wanted(one) == [(0.0, 1.0), (11.0, 2.0), (pytest.approx(13.504), 3.0), (pytest.approx(25.9), 1.0)]
    hosts = levels.holders(one)
    assert levels.at(hosts["web"], 13.0) == 2.0
    assert levels.at(hosts[levels.OTHER], 11.6) == 1.0
    assert all(sum(values) == 4 for _, _, values in levels.merged(*hosts.values(), until=30.0))


def test_over_short_and_overload_in_instance_seconds() -> None:
    found = account(recording())
    assert found.capacity.ideal == 50.0  # 10 + 30 + 10
    assert found.capacity.served == 56.0  # 12 + 4 + 36 + 4
    assert found.capacity.over == 12.0  # 20 to 26: two more than one
    assert found.capacity.short == 6.0  # 10 to 12: two of three; 12 to 14: one
    assert found.capacity.overload == pytest.approx(3.6)  # 2 s × 1.4, 2 s × 0.4
    assert (found.most, found.mean) == (3, pytest.approx(56 / 30, abs=0.01))
    assert (found.hosts_to_web, found.hosts_to_batch) == (2, 2)
    assert (found.rises.met, found.rises.missed, found.rises.p50, found.rises.max) == (2, 0, 2.0, 4.0)
    assert (found.machine_busy, found.machine_busy_s) == (pytest.approx(0.53), 1)


def test_a_rise_that_the_load_takes_back_is_not_met() -> None:
    one = recording()
    found = account(msgspec.structs.replace(one, seen=one.seen[:2]))  # the third never comes
    assert (found.rises.met, found.rises.missed) == (1, 1)
    assert found.capacity.short == 2 * 2.0 + 8 * 1.0


@pytest.mark.parametrize(("seconds", "missed"), [(2.0, 0), (4.0, 2)])
def test_a_rise_that_is_over_before_a_rule_can_know_is_none(seconds: float, missed: int) -> None:
    one = recording()
    curve = Curve((0.0, 10.0, 10.0 + seconds), (8.0, 24.0, 8.0), 30.0)
    found = account(msgspec.structs.replace(one, curve=curve, seen=one.seen[:1]))
    assert (found.rises.met, found.rises.missed) == (0, missed)


def test_stages_are_those_of_an_instance_whose_host_came_from_batch() -> None:
    one = recording()
    found = stages.starts(one)
    assert [(start.unit, start.whole) for start in found] == [("web.2", False), ("web.3", True)]
    told = {stage.mark: stage.p50_s for stage in stages.mechanism(found)}
    truth = {
        "observed": 0.002, "decided": 0.002, "released": 0.010, "cleared": 0.038, "granted": 0.003, "placed": 0.001,
        "allocated": 0.005, "started": 0.010, "began": 0.229, "serving": 0.2,
    }  # fmt: skip
    assert told == {mark: pytest.approx(seconds, abs=1e-6) for mark, seconds in truth.items()}
    assert sum(stage.share for stage in stages.mechanism(found)) == pytest.approx(1.0)
    assert stages.totals(found) == [pytest.approx(0.5)]
    assert stages.mechanism([]) == []


def with_event(one: recordings.Recording, at: float, kind: str, **fact: object) -> recordings.Recording:
    """The recording with one more event, in its place."""
    more = {"index": 0, "at": BEGAN + at, "kind": kind, "fact": fact}
    told = sorted([*one.events, more], key=lambda event: event["at"])
    events = tuple({**event, "position": place} for place, event in enumerate(told, start=1))
    return msgspec.structs.replace(one, events=events)


def test_what_another_department_wants_meanwhile_is_no_part_of_a_chain() -> None:
    one = recording()
    other = with_event(one, 13.51, "demand.changed", dept="shop", instances=9)
    other = with_event(other, 13.503, "load.observed", dept="shop", end=BEGAN + 13.503)
    assert stages.mechanism(stages.starts(other)) == stages.mechanism(stages.starts(one))


def test_a_host_that_was_let_go_before_anybody_wanted_it_has_no_whole_chain() -> None:
    one = recording()
    early = [event for event in one.events if event["kind"] != "host.released"]
    early = with_event(msgspec.structs.replace(one, events=tuple(early)), 12.5, "host.released", dept="hpc", host="h3")
    assert [start.whole for start in stages.starts(early)] == [False, False]
    fewer = with_event(one, 13.5, "demand.changed", dept="web", instances=5)  # so what followed was no rise
    assert [start.whole for start in stages.starts(fewer)] == [False, False]


def test_a_port_that_is_used_again_is_not_its_former_instance() -> None:
    one = recording()
    earlier = recordings.Seen(BEGAN - 3, ("127.0.0.1:1", "127.0.0.1:3"))
    found = stages.starts(msgspec.structs.replace(one, seen=(*one.seen[:1], earlier, *one.seen)))
    assert found[-1].at["serving"] == BEGAN + 14


# ---------------------------------------------------------------------------------------------------------------- for people


def test_the_report_has_every_variant_side_by_side() -> None:
    accounts = [account(recording()), account(recording("mean: 2 fixed", exact=2, fail=3))]
    told = report.text(recording().setting, 10.0, accounts)
    rows = {line[:32].strip(): line[32:].split("  ") for line in told.splitlines()}
    assert "3 (3 status-502)" in told
    assert [word.strip() for word in rows["requests"] if word.strip()] == ["400", "400"]
    assert "2.0 s, 4.0 s (0 of 2 not met)" in told
    assert "12 (2 attempts)" in told
    assert "the job's VM ends" in told
    assert "in all" in told
    assert "Doubtful" not in told
    assert "all VMs together may use 1 of the machine's 2 cores" in told
    assert "services 15%, balancer.web 20%" in told
    found = json.loads(report.json(accounts, recording().setting, 10.0))
    assert [one["load"]["failed"] for one in found["variants"]] == [0, 3]


def test_the_table_has_a_row_for_each_second() -> None:
    rows = list(csv.DictReader(io.StringIO(report.seconds_csv([recording()]))))
    assert len(rows) == 30
    assert rows[13] == {
        "variant": "adaptive", "at_s": "13", "due": "24", "failed": "0", "p50_s": "0.020000", "p99_s": "0.020000",
        "needed": "2.4", "ideal": "3", "wanted": "2", "serving": "2", "hosts_web": "2", "hosts_batch": "2",
    }  # fmt: skip


def test_the_picture_is_the_same_each_time_and_shows_failures(tmp_path: Path) -> None:
    both = [recording(), recording("mean: 2 fixed", exact=2, fail=3)]
    for name in ("one.svg", "two.svg"):
        plots_style.save(plot.figure(both, title="A rush", caption="by hand"), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_recording_is_told_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings.save(recording(), tmp_path / "0-adaptive.json")
    assert recordings.load(tmp_path / "0-adaptive.json") == recording()
    assert command.main(["--again", str(tmp_path)]) == 0
    assert "instance-seconds served" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} >= {"report.txt", "report.json", "seconds.csv", "rush.svg"}


def test_a_machine_that_was_full_makes_doubts() -> None:
    one = recording()
    full = tuple(recordings.Machine(BEGAN + second, 1.0) for second in range(1, 31))
    assert account(msgspec.structs.replace(one, machine=full)).doubts == []  # the balancer had its CPU all the same
    found = account(msgspec.structs.replace(one, machine=full, wait_s={"balancer.web": 3.002}))
    assert found.doubts == [
        "the machine was full for 30 of 30 s, and the load balancer waited for a CPU 10.0% of the time"
    ]
    assert "Doubtful, adaptive: the machine was full" in report.text(one.setting, 10.0, [found])


def test_events_that_are_not_kept_any_more_make_doubts_if_they_are_of_the_load() -> None:
    one = recording()
    assert account(msgspec.structs.replace(one, events_since=BEGAN - 1.0)).doubts == []
    (doubt,) = account(msgspec.structs.replace(one, events_since=BEGAN + 12.0)).doubts
    assert doubt.startswith("the monitor had kept no events of the first 12 of 30 s: ")


async def test_what_the_monitor_does_not_keep_any_more_is_left_out_and_told(tmp_path: Path) -> None:
    """It is asked from the beginning; while the answer is read, more is pushed out."""
    kept = [{"position": position, "index": 0, "at": 100.0 + position} for position in range(1, 21)]
    oldest = iter([0])

    async def events(request: web.Request) -> web.Response:
        after, gone = int(request.query["after"]), next(oldest)
        if after < gone:
            return problem_answer(problem("gone", "after: …", "after", oldest=gone))
        lines = [json.dumps(one) for one in kept if after < int(one["position"]) <= after + 3]
        return web.Response(text="\n".join(lines), content_type="application/x-ndjson")

    (tmp_path / "token").write_text("t")
    app = web.Application()
    app.router.add_get("/v1/events", events)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        status = {"http_url": str(server.make_url("")).rstrip("/"), "balancers": {"web": ""}}
        status["credentials"] = {"oscar": {"token": str(tmp_path / "token")}}
        here = site.Site(tmp_path, status, session)
        oldest = iter((5, 5, 9, 9, 9, 9, 9, 9))
        found, since = await here.events()
        assert [one["position"] for one in found] == list(range(10, 21))
        assert since == 110.0
        oldest = iter([0] * 9)
        found, since = await here.events()
        assert ([one["position"] for one in found], since) == (list(range(1, 21)), 0.0)


def test_a_failure_while_scaling_is_told_with_its_step(tmp_path: Path) -> None:
    rows = tmp_path / "short.csv"
    rows.write_text(
        "due_s,taken_s,sent_s,ended_s,outcome,status,connection,method\n"
        "1.0,1.0,1.0,1.1,answered,200,kept,GET\n4.0,4.0,4.0,4.5,status-502,502,fresh,POST\n"
        "9.5,9.5,9.5,9.6,closed,,kept,GET\n"
    )
    steps = [flaps.Step(BEGAN + 0.5, 3, 5, 0.7), flaps.Step(BEGAN + 3, 5, 4, 0.1), flaps.Step(BEGAN + 9, 4, 6, 0.4)]
    loads = {"short": recording(fail=1).load}
    failures = flaps.failures_of({"short": rows}, loads, steps)
    assert failures == [
        flaps.Failure(BEGAN + 4.0, BEGAN + 4.5, "status-502", "POST", "fresh", "short", 2),
        flaps.Failure(BEGAN + 9.5, BEGAN + 9.6, "closed", "GET", "kept", "short", 3),
    ]
    told = flaps.text(flaps.Flaps(setting=Setting(cpus=2), steps=tuple(steps), loads=loads, failures=tuple(failures)))
    assert "p50 400.0 ms, max 700.0 ms" in told
    assert "failed: short POST, fresh connection: status-502 at 1004.500, in step 2" in told


def test_what_is_mistyped_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--again", str(tmp_path)]) == 2
    assert "no recording is there" in capsys.readouterr().err
    for words in (["--variants", "best"], ["--seconds", "3"]):
        with pytest.raises(SystemExit):
            command.main(words)
