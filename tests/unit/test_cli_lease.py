"""`phoenix lease` without a cloud: words become a request, and what the cloud says becomes text."""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec
import pytest

from phoenix.cli import events, lease, parser, queue, show, units
from phoenix.cli.__main__ import main
from phoenix.cli.completion import candidates
from phoenix.cli.errors import CliError
from phoenix.cli.http import Response, refusal
from schemas.problems import LeaseOffer, LeaseRefusal, problem
from schemas.times import exact
from services.domain.text import sentence

NOW = units.seconds("2026-02-03T12:00:00+00:00")
assert NOW is not None


def parse(*words: str) -> argparse.Namespace:
    made = parser.make("lease", lease.HELP)
    lease.add_arguments(made)
    return made.parse_args(lease.prepared(list(words)))


def request(*words: str) -> dict[str, Any]:
    args = parse("create", *words)
    return lease._request(args, list(args.words), NOW or 0.0)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("+10m", "2026-02-03T12:10:00Z"),
        ("+90s", "2026-02-03T12:01:30Z"),
        ("14:30", "2026-02-03T14:30:00Z"),
        ("9:00", "2026-02-04T09:00:00Z"),
        ("12:00", "2026-02-04T12:00:00Z"),
        ("2026-03-01T08:00:05Z", "2026-03-01T08:00:05Z"),
        ("2026-03-01T08:00", "2026-03-01T08:00:00Z"),
        ("2026-03-01 08:00+02:00", "2026-03-01T06:00:00Z"),
    ],
)
def test_instants_as_people_write_them(text: str, instant: str) -> None:
    assert units.iso(units.parse_instant(text, NOW or 0.0)) == instant


@pytest.mark.parametrize("text", ["soon", "+soon", "25:00", "2026-13-01", "", "9999-12-31T23:59:59.1Z"])
def test_what_is_no_instant_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        units.parse_instant(text, 0.0)


def test_a_lease_without_a_script() -> None:
    made = request("--nodes", "2", "--start", "+10m", "--duration", "45m", "--memory", "1G")
    assert (made["kind"], made["nodes"], made["cores"], made["memory_mb"]) == ("advance", 2, 1, 1024)
    assert (made["start_at"], made["duration_s"], made["deadline_at"]) == ("2026-02-03T12:10:00.000Z", 2700.0, None)
    assert (made["script"], made["environment"], made["name"]) == (None, {}, "lease")
    assert made["request"] != request("--immediate", "--duration", "1m")["request"]


def test_options_may_stand_before_the_script(tmp_path: Any) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    made = request("--best-effort", "-t", "1h", str(script), "--", "-x", "y")
    assert (made["kind"], made["name"], made["script"]) == ("best-effort", "job.sh", "#!/bin/sh\ntrue\n")
    assert made["argv"] == ["-x", "y"]
    assert request(str(script), "-t", "1h", "--deadline", "18:00", "--start", "13:00")["kind"] == "deadline"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "--start", "+1m"], "how long?"),
        (["create", "-t", "1m"], "when?"),
        (["create", "-t", "1m", "--immediate", "--start", "+1m"], "one of them"),
        (["create", "-t", "1m", "--start", "soon"], "--start: 'soon' is no time"),
        (["create", "-t", "1m", "--start", "-10m"], "--start: '-10m' has passed"),
        (["create", "-t", "-5m", "--immediate"], "'-5m' is no time"),
        (["extend", "3", "--until", "00:00"], "--until: 00:00 has passed today (UTC)"),
        (["create", "-t", "0", "--immediate"], "above 0"),
        (["create", "-t", "1m", "--immediate", "nowhere.sh"], "nowhere.sh"),
        (["extend", "3"], "how much longer?"),
        (["extend", "--by", "1m"], "extend which lease?"),
        (["show", "x"], "is no job"),
        (["cancle", "3"], "did you mean 'cancel'?"),
        (["list", "3"], "list takes no '3'"),
        ([], "lease what?"),
    ],
)
def test_mistakes_are_explained(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lease", *words]) == 2
    assert told in capsys.readouterr().err


LEASE: dict[str, Any] = {
    "lease": "17",
    "name": "lecture",
    "department": "hpc",
    "user": "ann",
    "kind": "advance",
    "start_at": "2026-02-03T14:00:00.000Z",
    "end_at": "2026-02-03T15:00:00.000Z",
    "deadline_at": None,
    "state": "reserved",
    "duration_s": 3600.0,
    "nodes": 2,
    "cores": 4,
    "memory_mb": 512,
    "hosts": [],
    "submitted_at": "2026-02-03T13:00:00.000Z",
    "began_at": None,
    "ended_at": None,
    "ending": None,
    "preempted": 0,
    "core_s_reserved": 28800.0,
    "core_s_used": 0.0,
    "reason": {"code": "queue"},
}


def test_the_list_and_one_lease() -> None:
    waiting = {**LEASE, "lease": "18", "kind": "best-effort", "start_at": None, "end_at": None, "state": "waiting"}
    ended = {**LEASE, "lease": "19", "state": "ended", "ending": "stopped", "ended_at": "2026-02-03T14:59:59.999Z"}
    running = {**LEASE, "lease": "20", "state": "running", "hosts": ["h1", "h2"]}
    lines = lease.render([LEASE, waiting, ended, running]).splitlines()
    assert lines[1].split() == ["17", "lecture", "hpc", "ann", "advance", "reserved", "2026-02-03T14:00:00Z",
                                "2026-02-03T15:00:00Z", "2", "4"]  # fmt: skip
    assert lines[2].endswith("(in the queue)")
    assert lines[3].endswith("(stopped)")
    assert lines[4].endswith("h1,h2")
    assert lease.render([]) == "no leases"
    told = dict(lease.pairs({**running, "core_s_used": 7200.0, "preempted": 1}))
    assert told["core hours"] == "2.00 used of 8.00"
    assert "GPU hours" not in told
    with_gpus = {**running, "gpus": 1, "gpu_s_reserved": 7200.0, "gpu_s_used": 1800.0}
    assert dict(lease.pairs(with_gpus))["GPU hours"] == "0.50 used of 2.00"
    assert (told["made way"], told["hosts"], told["start"]) == ("1 time", "h1, h2", "2026-02-03T14:00:00Z")


def test_queue_show_and_events_name_a_lease() -> None:
    reason = {"code": "queue"}
    line = ["17", "lecture", "hpc", "ann", "pending", 2, 4, None, reason, "advance"]
    assert "lecture (advance lease)" in queue.render([line], 1)
    times = {key: LEASE[key] for key in ("kind", "start_at", "end_at", "deadline_at")}
    job = {"job": "17", "state": "pending", "attempts": [], "lease": times}
    assert "advance, from 2026-02-03T14:00:00.000Z to" in show.render(show.normal(job, "17"))
    told = events.render(
        {"kind": "job.submitted", "fact": {"job": "17", "lease": {"kind": "advance", "start_at": 60.0}}}
    )
    assert "lease=advance" in told
    assert "start_at=1970-01-01T00:01:00Z" in told


def test_the_queue_says_that_a_lease_is_late() -> None:
    def shown(starts_at: float, ends_at: float) -> str:
        reason = {"code": "lease_starts_at", "starts_at": exact(starts_at), "ends_at": exact(ends_at)}
        return queue.render([["17", "lecture", "hpc", "ann", "pending", 2, 4, None, reason, "advance"]], 1)

    now = time.time()
    assert "(at its time)" in shown(now + 60, now + 90)
    assert "(late)" in shown(now - 60, now + 90)
    assert "(missed)" in shown(now - 60, now - 1)


def test_a_lease_that_was_cancelled_before_its_time_has_no_end() -> None:
    gone = {**LEASE, "state": "ended", "ending": "cancelled", "ended_at": "2026-02-03T13:59:00.000Z"}
    line = lease.render([gone]).splitlines()[1]
    assert line.split()[6:8] == ["2026-02-03T14:00:00Z", "-"]
    assert line.endswith("(cancelled 2026-02-03T13:59:00Z)")


def test_its_beginning_and_its_end_as_sentences() -> None:
    begun = {"code": "lease_starts", "ends_at": "1970-01-01T00:01:00.500Z", "late_s": 1.5}
    assert sentence(begun) == "its time had begun, 1.5 s late; it lasts until 1970-01-01T00:01:00Z"
    assert sentence({"code": "lease_ended", "walltime_s": 90.0}) == "its time of 1m30s was over, as agreed"


def test_a_refusal_brings_its_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    offer = LeaseOffer(nodes=1, start_at=exact(120.0), end_at=exact(180.0))
    refused = problem("conflict", "start_at: no", "start_at", lease=LeaseRefusal(at=exact(60.0), earliest=offer))
    found = refusal(Response(409, {}, msgspec.json.encode(refused)))
    assert (found.code, found.message) == (1, "start_at: no")
    assert found.answer is not None
    assert found.answer["lease"]["earliest"]["start_at"] == "1970-01-01T00:02:00.000Z"
    assert isinstance(found.__reduce__()[0](*found.__reduce__()[1]), CliError)


def test_completion_knows_its_words() -> None:
    assert {"create", "list", "extend", "--duration", "--deadline"} <= set(candidates(["lease"]))


def test_a_lease_of_gpus() -> None:
    assert request("--immediate", "--duration", "1h", "--nodes", "2", "--gpus-per-node", "4")["gpus"] == 4
    assert request("--immediate", "--duration", "1h")["gpus"] == 0
