"""What people read: reasons as sentences, tables, names of output files."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from phoenix.cli import completion, events, history, parser, queue, show, story, submit, suggest, tables, waiting, why
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client, Response
from schemas import reasons as because
from schemas.reasons import Reason
from services.domain import text as sentences


@pytest.mark.parametrize("kind", [kind for kind in because.REASONS if kind is not because.Newer])
def test_every_reason_has_its_words(kind: because.Kind) -> None:
    assert sentences.short(kind())
    assert "?" not in sentences.sentence(kind())


def test_a_reason_is_told_with_its_numbers() -> None:
    needs = {
        "nodes": 2,
        "cores": 4,
        "memory_mb": 512,
        "held": 3,
        "held_by_others": 1,
        "free": 1,
        "short": 1,
        "ahead": 0,
    }
    assert sentences.sentence(because.WaitsForHosts(**needs)) == (
        "it needs 2 hosts with 4 cores and 512 MiB each; 1 of the 3 hosts that the department holds has free capacity for it "
        "(elsewhere: 1 held by other departments)"
    )
    gpus = sentences.sentence(because.WaitsForHosts(**needs, gpus=2))
    assert gpus.startswith("it needs 2 hosts with 4 cores, 512 MiB and 2 GPUs each; 1 of the 3 hosts ")
    whole = sentences.sentence(because.WaitsForHosts(**{**needs, "exclusive": 1}))
    assert whole.startswith("it needs 2 whole, empty hosts with 4 cores and 512 MiB each; 1 of")
    assert "gpus" not in because.fields(because.WaitsForHosts(**needs, gpus=0)), "not a byte where there are none"
    assert sentences.sentence(because.FirstFit(passed_over="122")).endswith("fitted (passed over job 122)")
    assert sentences.sentence(because.LostHost()) == "its host was lost"
    assert sentences.short({"code": "waits_behind", "params": {"job": "12"}}) == "waits behind 12"
    assert "afterok of job 3" in sentences.sentence(because.Dependency(job="3", condition="afterok"))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (because.Walltime(walltime_s=40.0), "it reached its time limit of 40s"),
        (because.Backfill(head="9", gap_s=59.35), "it fitted into a gap of 59s without delaying job 9"),
        (because.Backfill(head="9", spare=2), "it fitted beside the room that is kept for job 9"),
        (
            because.Backfill(reserved=2),
            "it fitted in without delaying the 2 jobs before it for which room is kept",
        ),
        (because.ShortestFirst(limit_s=90.0), "of the jobs that fitted it had the shortest time limit, 1m30s"),
        (because.Replacement(instances=3), "it replaces an instance that was lost"),
        (
            because.WebShare(departments=["shop"], demand=4, held=3, quota=2),
            "what is short for web is divided, and shop had less than its part",
        ),
        (
            because.BatchShare(department="hpc", held=3),
            "the shares of batch departments have changed, and hpc held 3",
        ),
    ],
)
def test_why_a_job_started_or_ended_and_why_a_department_keeps_fewer_is_a_plain_sentence(
    reason: Reason, told: str
) -> None:
    assert sentences.sentence(reason) == told


def test_load_and_silence_of_a_web_department_are_told_with_whose_they_are() -> None:
    asked = {"requests_per_s": 412.5, "requests_per_instance": 100.0}
    for reason, expected in (
        (
            because.UtilisationHigh(utilisation=1.1, instances=3, window_s=20.0, threshold=0.8, **asked),
            "utilisation was 110 % (412.5 requests/s, 100 for each) over 20 s with 3 instances; the threshold is 80 %",
        ),
        (
            because.UtilisationSteady(instances=3, **asked),
            "412.5 requests/s arrive, 100 are for each of 3 instances; the window is not full yet",
        ),
        (because.Claimed(instances=5, load=2), "a signal claims 5 instances; the load alone asks for 2"),
        (because.Claimed(instances=5), "a signal claims 5 instances"),
        (because.Claimed(instances=5, by="wim"), "5 instances are claimed by wim"),
        (because.ScaleUp(instances=1, by="wim"), "1 instance is claimed by wim"),
        (
            because.AtMaximum(maximum=4, by="wim", claimed=9),
            "the department is at its maximum of 4 instances; wim claims 9",
        ),
        (
            because.StepLimit(wanted=9, instances=2, allowed=4, limits=["2 in 60s"], by="wim"),
            "a claim of wim asks for 9 instead of 2, a step goes to 4: 2 in 60s",
        ),
        (
            because.SignalMissing(timeout_s=10.0, silent_s=75.0, signal="cpu", source="lb-1", instances=2),
            "no load signal has arrived for 1m15s; the last one was cpu of lb-1: "
            "the number of instances is held after 10 s",
        ),
        (
            because.SignalsDropped(signal="cpu", source="lb-1", why="future", count=7, off_s=3600.04),
            "7 cpu signals of lb-1 were dropped: its clock is 3600.0 s ahead",
        ),
        (
            because.RequestsQueued(requests=240, waited_s=12.0, utilisation=0.56, instances=1),
            "240 requests wait at the load balancer, for 12s with 1 instance; the rule sees 56 % CPU only",
        ),
        (
            because.RequestsRefused(rate=24.5, for_s=12.0, instances=4, most=5),
            "24.5 requests/s are turned away by the load balancer, for 12s: no instance has room for them, "
            "with 4 of at most 5 instances",
        ),
    ):
        assert sentences.sentence(reason) == expected


def test_numbers_of_instances_are_told_in_the_sentence_not_behind_it() -> None:
    for reason, expected in (
        (because.ScaleUp(instances=3), "the load asks for 3 instances"),
        (because.ScaleDown(instances=1), "the load asks for 1 instance"),
        (because.ScaledByPerson(instances=3), "a person set the number of instances to 3"),
        (
            because.ScaledByPerson(minimum=3, maximum=12),
            "a person set the number of instances: at least 3, at most 12",
        ),
        (because.AtMinimum(minimum=1), "the department is at its minimum of 1 instance"),
        (because.AtMaximum(maximum=4), "the department is at its maximum of 4 instances"),
        (
            because.Replacement(failures=3, wait_s=4.0),
            "3 instances failed one after another: the next one starts in 4s",
        ),
        (
            because.SignalMissing(timeout_s=10.0, instances=2),
            "no load signal has arrived for 10 s: their number is held",
        ),
        (because.NotNeeded(demand=1), "the department wants only 1 host"),
        (because.Queue(pending=0, running=0), "no job is there"),
    ):
        assert sentences.sentence(reason) == expected


def test_what_room_is_kept_for_is_told_by_time() -> None:
    kept = because.WaitsForHosts(nodes=2, cores=4, memory_mb=512, held=3, free=1, short=1, reserved_in_s=70)
    assert "; room is kept for it, so it starts in 1m10s at the latest" in sentences.sentence(kept)
    behind = because.WaitsBehind(ahead=1, job="7", gap_s=70)
    assert sentences.sentence(behind) == (
        "there is room for it, but it would still be there in 1m10s, when room is kept for job 7"
    )
    assert sentences.remedy(behind) == "a time limit of at most 1m10s would let it start now"
    assert "strictly in order" in sentences.sentence(because.WaitsBehind(ahead=1, job="7"))


@pytest.mark.parametrize(
    ("signal", "why", "expected"),
    [
        ("cpu", "late", "leaves `at` out"),
        ("cpu", "future", "leaves `at` out"),
        ("claim", "not_allowed", "claim as a manager of the department, or raise its claim_max_user"),
        ("cpu", "not_allowed", "name this one in balancers of the department"),
        ("cpu", "implausible", "repair the publisher, or stop it"),
        ("cpu", "out_of_order", "a `source` of its own"),
        ("cpu", "malformed", "publish what docs/reference/signals.md asks for"),
    ],
)
def test_what_would_make_dropped_signals_count_depends_on_why_they_do_not(signal: str, why: str, expected: str) -> None:
    told = sentences.remedy(because.SignalsDropped(signal=signal, why=why, count=5))
    assert told.endswith(expected) or told.startswith(expected)
    assert ("clock" in told) == (why in ("late", "future"))


def test_a_reservation_behind_others_and_a_sum_of_points_are_told() -> None:
    behind = because.WaitsBehind(ahead=2, job="7", reserved_in_s=70)
    assert sentences.sentence(behind) == (
        "there is room for it, but it would delay others, job 7 first of all; room is kept for it, so it starts in 1m10s as "
        "things are"
    )
    points: dict[str, float] = {"age": 12.0, "fair_share": 7071.1, "size": 1.0, "quality": 0.0}
    priority = because.Priority(priority=7084, user="ann", used=0.25, share=0.5, **points)
    assert sentences.sentence(priority) == (
        "its priority is 7084 points: 12.0 for its age, 7071.1 for fair share (ann has used 25.0% and is due 50.0%), "
        "1.0 for its size, 0.0 for quality of service"
    )


def test_what_would_unblock_it_is_told_with_numbers_and_in_grammar() -> None:
    needs = {
        "nodes": 2,
        "cores": 4,
        "memory_mb": 512,
        "held": 3,
        "free": 1,
        "short": 1,
        "web": ["web"],
        "held_by_web": 2,
    }
    reason = because.WaitsForHosts(ahead=4, **needs)
    assert "; 4 jobs go first" in sentences.sentence(reason)
    assert "; 1 job goes first" in sentences.sentence(because.WaitsForHosts(ahead=1, **needs))
    assert sentences.remedy(reason) == (
        "free capacity on 1 more host with 4 cores and 512 MiB (1 has it now); it comes when a running job of the "
        "department ends, or when the load of web falls: it gives its 2 hosts back then"
    )
    by_hand = because.WaitsForHosts(**needs, by_hand=["web"])
    assert "when the load of web counts again (`phoenix scale web --auto`: a person" in sentences.remedy(by_hand)
    none = because.NoHostsHeld(nodes=2, cores=1, memory_mb=512, web=["web"], held_by_web=1, held=0)
    assert sentences.remedy(none) == (
        "free capacity on 2 hosts with 1 core and 512 MiB each; it comes when the load of web falls: "
        "it gives its 1 host back then"
    )


def test_what_became_of_earlier_attempts_is_told() -> None:
    again = because.Reclaimed(unit="3", preempted=2, failed=0)
    assert sentences.sentence(again) == "it was preempted 2 times, last because its host had to be returned"
    suspended = because.Reclaimed(unit="3", preempted=1, failed=0, saved_s=65.0)
    goes_on = "; 1m05s of its work is saved, and it resumes from there"
    assert sentences.sentence(suspended) == f"it was preempted once, last because its host had to be returned{goes_on}"
    failed = because.EndedVm(unit="3", preempted=0, failed=1)
    assert sentences.sentence(failed) == "it failed to run once, last because its VM ended without a report"


def test_a_victim_is_told_which_rule_chose_it_and_what_the_number_is() -> None:
    why = because.Reclaimed(hosts=3, running_s=7.0, victims="widest-last")
    assert sentences.sentence(why) == (
        "the department had to return 3 hosts, and its order of victims (widest-last) chose this job; it had run for 7s"
    )
    more = because.Reclaimed(hosts=1, running_s=7.0, lost_s=2.0, asked="suspend", instead="requeue")
    assert sentences.sentence(more) == (
        "the department had to return 1 host; it had run for 7s, of which 2s are lost; suspend was requested, requeue was done"
    )
    assert sentences.sentence(because.Reclaimed(hosts=2)) == "the department had to return 2 hosts"
    assert sentences.sentence(because.Reclaimed()) == "its host had to be returned"


def test_a_reason_of_a_newer_version_is_told_all_the_same() -> None:
    assert sentences.sentence({"code": "moon_phase", "params": {"phase": 0.25}}) == "moon phase (phase 0.25)"
    assert sentences.remedy({"code": "moon_phase"}) == ""


@pytest.mark.parametrize(
    ("state", "before_s", "run_time"),
    [("running", 20.0, "run time:    50s"), ("suspended", 20.0, "run time:    20s"), ("pending", 0.0, None)],
)
def test_run_time_and_time_limit_are_of_one_clock(
    state: str, before_s: float, run_time: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show.time, "time", lambda: 1000.5)
    job = {"job": "3", "state": state, "ran_before_s": before_s}
    job["started_at"] = "1970-01-01T00:16:10.000Z" if state == "running" else None
    shown = show.render(show.normal({**job, "walltime_s": 600.0}, "3")).splitlines()
    assert "time limit:  10m00s" in shown
    assert [line for line in shown if line.startswith("run time")] == ([] if run_time is None else [run_time])


def test_what_a_guest_noted_is_shown() -> None:
    """A job that ran elsewhere than it had asked for has succeeded all the same."""
    note = "the directory /nonexist cannot be entered (No such file or directory): ran in the VM's own directory"
    job = {"job": "3", "state": "completed", "attempts": [{"attempt": 1, "note": note}]}
    assert f"note:   {note}" in show.render(job)
    twice = {**job, "attempts": [{"attempt": 1}, {"attempt": 2, "note": note}]}
    assert f"attempt 2: {note}" in show.render(twice)


def test_why_of_an_array_names_the_element_that_it_is_about() -> None:
    answer = {"job": "11", "unit": "11_2", "reasons": [{"code": "held", "params": {}}]}
    assert why.render(answer).startswith("job 11, its element 11_2 (each has reasons of its own):")
    assert why.render({**answer, "job": "11_2"}).startswith("job 11_2:")


def test_a_number_that_is_not_there_is_not_guessed_at() -> None:
    hosts = [f"host{number:03}" for number in range(1, 9)]
    assert suggest.hint("host099", hosts) == "there are host001 to host008, 8 in all"
    assert suggest.hint("node10", ["node9", "node11"]) == "there are node9 to node11, 2 in all"
    assert suggest.hint("hst003", hosts) == "did you mean 'host003'?"


def test_the_output_of_the_element_that_was_named_is_saved(tmp_path: Path) -> None:
    """The monitor calls an element's `job` the number of its array."""
    asked = []

    class Door(Client):
        def fetch(self, method: str, path: str, body: bytes | None = None) -> Response:
            asked.append(path)
            return Response(200, {}, b"done\n")

    job = show.normal({"job": "26", "unit": "26_6", "state": "completed", "units": [], "name": "x"}, "26_6")
    assert waiting.save(Door("http://127.0.0.1:1"), job, f"{tmp_path}/%A-%a.out", None) == [tmp_path / "26-6.out"]
    assert asked == ["/v1/jobs/26_6/output?stream=stdout"]


def test_a_dash_is_stdout_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    class Door(Client):
        def fetch(self, method: str, path: str, body: bytes | None = None) -> Response:
            return Response(200, {}, b"done\n")

    monkeypatch.chdir(tmp_path)
    job = show.normal({"job": "7", "unit": "7", "state": "completed", "units": [], "name": "x"}, "7")
    assert waiting.save(Door("http://127.0.0.1:1"), job, "-", "err") == [Path("err")]
    assert (capfdbinary.readouterr().out, [path.name for path in tmp_path.iterdir()]) == (b"done\n", ["err"])


def test_an_input_that_may_never_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", f"{tmp_path}/pipe"):
        with pytest.raises(CliError, match="is no regular file"):
            submit._input(f"big={path}")
    with pytest.raises(CliError, match="No such file"):
        submit._input(f"{tmp_path}/none")


def test_why_ranks_and_says_what_would_unblock() -> None:
    answer = {
        "job": "17",
        "state": "held",
        "reasons": [{"code": "held", "params": {}}, {"code": "no_hosts_held", "params": {}}],
    }
    told = why.render(answer)
    assert told.splitlines()[:3] == ["job 17 is held:", "  1. It is held.", "     To unblock it: phoenix release 17"]
    assert "  2. The department holds no host at all." in told


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (history, ["--limit", "0"]),
        (queue, ["--limit", "-1"]),
        (story, ["host1", "--last", "0"]),
        (events, ["--last", "-1"]),
    ],
)
def test_a_number_of_lines_that_cannot_be_is_refused(command: Any, words: list[str]) -> None:
    """None of them says that there is nothing: `queue --limit 0` said that no job waits or runs."""
    made = parser.make("queue")
    command.add_arguments(made)
    with pytest.raises(CliError, match="is not a number"):
        made.parse_args(words)


def test_queue_is_a_table_with_a_reason_on_each_line() -> None:
    waiting = [[str(i), "n", "hpc", "alice", "pending", 1, 1, None, {"code": "waits_for_hosts"}] for i in range(100)]
    lines = queue.render(waiting, 100).splitlines()
    assert len(lines) == 101
    assert lines[1].endswith("(waits for hosts)")


def test_queue_says_when_it_is_cut() -> None:
    job = ["1", "n", "d", "u", "running", 9, 1, 0.0, [f"h{i}" for i in range(9)]]
    assert "h0,h1,h2,… (9)" in queue.render([job], 7)
    assert queue.render([job], 7).endswith("… 1 of 7 shown")


def test_show_has_the_same_shape_whatever_the_monitor_leaves_out() -> None:
    bare = show.normal({"state": "pending"}, "17")
    assert (bare["job"], bare["state"], bare["attempts"], bare["exit_code"]) == ("17", "pending", [], None)
    done = show.normal(
        {
            "job": "17",
            "state": "failed",
            "attempts": [{"attempt": 1, "exit": 3, "placed_at": "1970-01-01T00:00:00.000Z"}],
        },
        "17",
    )
    assert done["exit_code"] == 3
    assert done["attempts"][0]["placed_at"] == "1970-01-01T00:00:00.000Z"
    members = [{"unit": "8_1", "exit": 0}, {"unit": "8_2", "exit": 2}]
    assert show.normal({"job": "8", "state": "failed", "units": members}, "8")["exit_code"] == 2


def test_patterns_of_output_files() -> None:
    assert waiting.expand("%x-%j.out", "17", {"name": "sweep"}) == "sweep-17.out"
    assert waiting.expand("%A_%a.%j", "18_3", {}) == "18_3.18_3"
    assert waiting.expand("%4a/%%/%z%", "18_3", {}) == "0003/%/%z%"
    ran = {"user": "ann", "hosts": [], "attempts": [{"hosts": ["h1"]}, {"hosts": ["h2", "h3"]}]}
    assert waiting.expand("%u-%N-%n-%t", "17", ran) == "ann-h2-0-0"
    assert waiting.expand("%N", "17", {**ran, "hosts": ["h9"]}) == "h9"
    assert waiting.expand("%N", "17", {"attempts": []}) == "none"  # it was cancelled before it had a host


def test_hosts_of_elements_are_asked_for_where_a_pattern_has_them(tmp_path: Path) -> None:
    class Door(Client):
        def fetch(self, method: str, path: str, body: bytes | None = None) -> Response:
            ran = {"state": "completed", "user": "ann", "attempts": [{"hosts": [f"h{path[-1]}"]}]}
            return Response(200, {}, b"done\n" if "output" in path else orjson.dumps(ran))

    units = [{"unit": "8_1"}, {"unit": "8_2"}]
    job = show.normal({"job": "8", "state": "completed", "units": units, "user": "ann"}, "8")
    written = waiting.save(Door("http://127.0.0.1:1"), job, f"{tmp_path}/%u-%N", None)
    assert [path.name for path in written] == ["ann-h1", "ann-h2"]


def test_tables_keep_every_character_when_they_are_no_terminal() -> None:
    text = tables.render(("A", "N"), [("x" * 300, "1"), ("y", "10")], right="N")
    assert text.splitlines()[2] == "y" + " " * 299 + "  10"


def test_an_event_is_a_line() -> None:
    event = {"v": 1, "id": "9.0", "position": 9, "index": 0, "at": 0.0, "kind": "host.granted", "department": "web"}
    event["fact"] = {
        "kind": "host.granted",
        "host": "h3",
        "dept": "web",
        "reason": {"code": "web_demand", "params": {}},
    }
    line = events.render(event)
    assert line.startswith("1970-01-01T00:00:00Z  host.granted       web")
    assert line.endswith("host=h3  (a web department wants more hosts than it holds)")


def test_times_in_an_event_are_times() -> None:
    fact = {"dept": "hpc", "hosts": 3, "by": 1795263007.291, "until": 1795263008.0, "utilisation": 0.5}
    line = events.render({"at": 1795263006.0, "kind": "quota.changed", "department": "hpc", "fact": fact})
    assert "by=2026-11-21T12:10:07Z until=2026-11-21T12:10:08Z utilisation=0.5" in line


def test_an_event_has_no_time_that_is_none() -> None:
    """A quarantine that is over has the end 0."""
    fact = {"kind": "host.quarantined", "host": "h2", "reason": "no longer late", "until": 0.0}
    line = events.render({"at": 1795263006.0, "kind": "host.quarantined", "fact": fact})
    assert "host=h2" in line
    assert "until" not in line


def test_show_names_the_element_that_was_asked_for() -> None:
    element = show.normal({"job": "3", "unit": "3_9", "state": "pending"}, "3_9")
    assert show.render(element).splitlines()[0].split() == ["job:", "3_9"]
    assert show.render(show.normal({"job": "3", "unit": "3", "state": "pending"}, "3")).split()[:2] == ["job:", "3"]


def test_completion_offers_commands_verbs_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOENIX_DATA", "/nowhere")
    assert {"submit", "queue", "why"} <= set(completion.candidates([]))
    assert {"cordon", "drain", "--reason"} <= set(completion.candidates(["hosts"]))
    assert {"--array", "--wrap", "--json"} <= set(completion.candidates(["submit"]))
    assert completion.candidates(["nonsense"]) == []


def test_completion_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in completion.SHELLS:
        assert completion.run(argparse.Namespace(words=False, shell=[shell])) == 0
        assert "phoenix completion --words" in capsys.readouterr().out


def test_shares_are_told_with_their_numbers() -> None:
    full = because.ShareFull(service="bof", share_pct=19.79, used_pct=12.5, with_it_pct=25.0)
    assert sentences.sentence(full) == (
        "it is of service bof, whose share is 19.79 % of what the department holds: 12.5 % is used, "
        "and with it that would be 25 %"
    )
    turn: dict[str, Any] = {"service": "bof", "used_pct": 12.5, "share_pct": 19.79}
    assert "turn of service bof, which has 12.5 % with it and may have 19.79 %" in sentences.sentence(
        because.ShareTurn(**turn)
    )
    assert "above its share of 19.79 %" in sentences.sentence(because.Borrows(**turn))
    moved = because.Balanced(host="h1", to="h2", used_pct=93.5, cost_s=4.0)
    assert sentences.sentence(moved) == "h1 really used 93.5 % of its cores, so the job moved to h2 while it ran"
    assert sentences.sentence(because.Balanced(from_hosts=["h1"])) == "it moved there from h1 while it ran"
    before = because.Preempted(unit="3", preempted=2, failed=0)
    assert sentences.sentence(before) == "it was preempted 2 times, last because its room was needed"
    assert "job 7 needed its room" in sentences.sentence(because.Preempted(job="7"))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (because.Unreachable(unreachable_s=10.0), "the load balancer has not reached it for 10 s"),
        (because.BootTimeout(limit="boot", boot_timeout_s=60.0), "its VMs did not start within 60 s"),
        (because.BestEffort(service="bof"), "it runs on what production leaves, in the turn of service bof"),
        (because.Starting(instances=2), "2 instances are being started"),
        (because.DepartmentRemoved(department="lab"), "department lab was removed from the configuration"),
        (
            because.UtilisationLow(threshold=0.5333, utilisation=0.4, instances=3, window_s=20.0),
            "utilisation was 40 % over 20 s with 3 instances; "
            "below 53 % one fewer is enough, at less than the threshold of 80 %",
        ),
    ],
)
def test_numbers_are_told_in_words(reason: Reason, told: str) -> None:
    assert sentences.sentence(reason) == told


def test_the_queue_says_when_the_first_ones_start_if_that_is_known() -> None:
    lines = [
        ["7", "wrap", "hpc", "ann", "running", 1, 4, 1_780_000_000.0, ["h1"]],
        ["8", "wrap", "hpc", "ann", "pending", 1, 4, None, {"code": "queue"}],
        ["9", "wrap", "hpc", "ann", "pending", 1, 4, None, {"code": "queue"}],
        ["10", "wrap", "hpc", "ann", "pending", 1, 4, None, {"code": "queue"}],
    ]
    at = queue.time.time() + 125.5
    word = {"start_at": queue.units.iso(at), "hosts": [], "because": {"code": "reserved"}}
    known = {
        "8": {**word, "sure": "planned"},
        "9": {**word, "sure": "by_walltimes"},
        "10": {**word, "start_at": None, "sure": "cannot_say"},
    }
    rows = [line.split() for line in queue.render(lines, 4, known).splitlines()]
    assert rows[0][-4:] == ["START", "HOSTS", "OR", "REASON"]
    assert rows[1][-1] == "h1"
    assert rows[2][7] in ("2m04s", "2m05s")
    assert rows[3][7] in ("~2m04s", "~2m05s")
    assert rows[4][7] == "(in"
    assert "START" not in queue.render(lines, 4)


def test_an_event_is_told_as_a_sentence() -> None:
    fact = {"kind": "host.granted", "host": "h3", "dept": "web", "reason": {"code": "guarantee"}}
    event = {"at": 1_780_000_000.0, "kind": "host.granted", "department": "web", "fact": fact}
    assert events.spoken(event) == (
        "2026-05-28T20:26:40Z  h3 is granted to web: it belongs to the department's guaranteed minimum"
    )


def test_the_history_has_the_columns_of_the_queue_and_times_with_their_zone() -> None:
    times = {
        "submitted_at": "2026-11-21T12:15:42.220Z",
        "started_at": "2026-11-21T12:15:44.000Z",
        "ended_at": None,
    }
    row = {"unit": "17", "name": "train", "department": "hpc", "user": "alice", "state": "failed", "lease_kind": None}
    more = {"wait_s": 2.0, "elapsed_s": 198.0, "attempt": 1, "nodes": 1, "cores": 4, "hosts": ["host003"]}
    head, line = history.render([{**row, **times, **more, "exit_code": 3, "reason": None}]).splitlines()
    assert head.split()[:5] == list(queue.HEAD[:5])
    assert line.split() == [
        *("17", "train", "hpc", "alice", "failed", "2026-11-21T12:15:42Z", "2026-11-21T12:15:44Z"),
        *("2s", "3m18s", "4", "host003", "3"),
    ]
