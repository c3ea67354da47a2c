"""From a record to a replay: what is learned of what happened, what comes again, and what another configuration changes."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import pytest

from phoenix.cli import whatif_replay
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client
from phoenix.cli.whatif_replay import notes, run
from phoenix.simulate.engine import Simulation
from phoenix.simulate.journal import Entry
from phoenix.simulate.verify import messages
from phoenix.simulate.workload import JobRecord, Latencies, Outcome, Scenario, WebInput, Work
from phoenix.whatif.compare import by_user, differences, fidelity, lending, values, waits_of_all
from phoenix.whatif.lives import Serving
from phoenix.whatif.past import Past
from phoenix.whatif.record import CutShort, Record
from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department, OnReclaim, WebPolicy
from schemas.facts import Fact
from services.domain.capabilities import ALL
from services.monitor.explain.record import line
from services.runtime.journal.archive import Archive, Broken
from services.runtime.journal.fold import Stored
from services.runtime.journal.trimmed import reaching
from tests.support.whatif import lines, record

WEB = Department(name="web", kind="web", web=WebPolicy(instances_min=1, instances_max=10))
END_S = 5000.0


def hpc(on_reclaim: OnReclaim = "requeue", **settings: object) -> Department:
    batch = msgspec.structs.replace(BatchPolicy(on_reclaim=on_reclaim), **settings)
    return Department(name="hpc", kind="batch", batch=batch)


def cloud(*departments: Department) -> CloudConfig:
    return CloudConfig(name="site", capabilities=ALL, departments=departments)


def job(number: int, submit_s: float, run_s: float, nodes: int = 1, walltime_s: float = 1000.0) -> Work:
    return Work(
        number=number, submit_s=submit_s, run_s=run_s, nodes=nodes, exclusive=True, walltime_s=walltime_s, user="ann"
    )


def lived(*works: Work, hosts: int = 4, config: CloudConfig | None = None, web: WebInput | None = None) -> list[Entry]:
    """The journal of a simulated cloud."""
    scenario = Scenario(
        label="lived",
        config=config or cloud(hpc()),
        hosts=hosts,
        jobs={"hpc": works},
        web={"web": web} if web else {},
        window_s=END_S,
    )
    simulation = Simulation(scenario, keep=True)
    simulation.run()
    assert simulation.journal.kept is not None
    return simulation.journal.kept


def said(journal: list[Entry], at: float, *facts: Fact, writer: str = "admission") -> list[Entry]:
    """The journal with an envelope more, in its place."""
    before = [entry for entry in journal if entry.at <= at]
    return [*before, Entry(writer, at, facts), *journal[len(before) :]]


def past(journal: list[Entry], since: float = 0.5, until: float = END_S) -> Past:
    return Past(record(journal, since), since, until)


def job_of(jobs: list[JobRecord], number: int) -> JobRecord:
    return next(each for each in jobs if each.number == number)


# -------------------------------------------------------------------------------------------------------------- the record


def test_a_record_that_is_cut_short_is_refused() -> None:
    whole = lines(lived(job(1, 10.0, 60.0)))
    with pytest.raises(CutShort, match="broke off"):
        list(Record(whole[:-1]).entries())
    with pytest.raises(CutShort, match="has no first line"):
        Record([])
    with pytest.raises(CutShort, match=r"has \d+ of \d+ envelopes"):
        list(Record([*whole[:-2], whole[-1]]).entries())
    with pytest.raises(CutShort, match="form 3"):
        Record([b'{"record":3,"cloud":"c","since":0,"until":1,"to":0}'])


def test_facts_that_are_not_known_are_left_out_and_counted() -> None:
    whole = lines(lived(job(1, 10.0, 60.0)))
    strange = b'{"position":9,"at":1.0,"writer":"admission","facts":[{"kind":"moon.landed"}]}'
    found = Record([*whole[:-1], strange, whole[-1]])
    with pytest.raises(CutShort):
        list(found.entries())
    assert found.unknown == 1


def test_what_the_monitor_sends_is_what_is_read() -> None:
    """Of the time before the period no measurement is sent but of the last hour; of everything else all."""
    load = WebInput(load=((0.0, 1.0),), end_s=END_S)
    simulation = Simulation(
        Scenario(
            label="sent", config=cloud(hpc(), WEB), hosts=3, jobs={"hpc": (job(1, 9.0, 50.0),)}, web={"web": load},
            window_s=END_S,
        ),
        keep=True,
    )  # fmt: skip
    simulation.run()
    stored = [m for m in messages(simulation) if m.position > 1]  # the first one waits for ever, which JSON cannot say
    sent = [msgspec.json.decode(text) for m in stored if (text := line(m, 4000.0, 4500.0)) is not None]
    kinds = [(envelope["at"], fact["kind"]) for envelope in sent for fact in envelope["facts"]]
    assert [kind for _, kind in kinds].count("job.submitted") == 1
    loads = [at for at, kind in kinds if kind == "load.observed"]
    assert (min(loads), max(loads)) == (400.0, 4500.0)
    assert max(at for at, _ in kinds) <= 4500.0


# ------------------------------------------------------------------------------------------------------------ what is learned


def test_run_times_are_of_jobs_that_ended_by_themselves() -> None:
    found = past(lived(job(1, 10.0, 60.0), job(2, 20.0, 3000.0), job(3, 30.0, 1e6, walltime_s=1e6)))
    assert found.lives.length_s("1", 0, "longest") == (60.0, 0, True)
    run_s, _, known = found.lives.length_s("2", 0, "longest")  # it ran into its limit: it would again
    assert known
    assert run_s > 1000.0
    assert found.lives.length_s("3", 0, "longest") == (1e6, 0, False)
    assert found.lives.length_s("3", 0, "shortest") == (END_S - 30.0, 0, False)


def test_a_job_that_fails_and_is_tried_again_has_a_run_time_for_each_attempt() -> None:
    journal = lived(job(1, 10.0, 500.0))
    facts: list[Fact] = [f.AttemptReported(unit="7", attempt=1, exit=3)]
    submitted = f.JobSubmitted(job="7", dept="hpc", user="ann", name="x", payload="", walltime_s=900.0, retries=1)
    journal = said(journal, 4000.0, submitted)
    placed = f.UnitPlaced(unit="7", attempt=1, hosts=("h00001",), cores=1, memory_mb=256)
    journal = said(journal, 4000.0, placed, writer="scheduler.hpc")
    journal = said(journal, 4000.0, f.AttemptBegan(unit="7", attempt=1))
    journal = said(journal, 4040.0, *facts)
    again = msgspec.structs.replace(placed, attempt=2)
    journal = said(journal, 4040.0, again, writer="scheduler.hpc")
    journal = said(journal, 4050.0, f.AttemptBegan(unit="7", attempt=2))
    journal = said(journal, 4150.0, f.AttemptReported(unit="7", attempt=2, exit=0))
    found = past(journal)
    assert found.lives.length_s("7", 0, "longest") == (40.0, 3, True)
    assert found.lives.length_s("7", 1, "longest") == (100.0, 0, True)
    found.pace = Latencies()
    again_job = job_of(found.play("again").outcome.jobs, 7)
    assert (again_job.end, again_job.end_s) == ("completed", 4140.0 - 0.5)


def test_a_run_that_goes_on_after_the_period_is_known_if_the_record_is_longer() -> None:
    journal = lived(job(1, 10.0, 600.0))
    found = past(journal, until=300.0)
    assert found.lives.length_s("1", 0, "longest") == (600.0, 0, True)
    assert job_of(found.what_happened().jobs, 1).end == "unfinished"
    assert found.play("again").assumed == 0


def test_load_is_measured_on_those_who_served_then() -> None:
    serving = Serving()
    serving.note("web", 2, 10.0)
    serving.note("web", 4, 15.0)
    assert serving.mean("web", 10.0, 20.0) == 3.0
    assert serving.mean("web", 12.0, 12.0) == 4.0
    assert serving.mean("web", 0.0, 20.0) == 1.5
    assert serving.mean("none", 0.0, 20.0) == 0.0


def test_paces_are_medians_of_the_period() -> None:
    scenario = Scenario(
        label="slow", config=cloud(hpc(), WEB), hosts=3,
        jobs={"hpc": tuple(job(n, 100.0 * n, 150.0, 2) for n in range(1, 9))},
        web={"web": WebInput(load=((0.0, 0.5), (300.0, 1.6), (900.0, 0.5)), end_s=END_S)},
        window_s=END_S, latencies=Latencies(boot_s=7.0, end_s=2.0),
    )  # fmt: skip
    simulation = Simulation(scenario, keep=True)
    simulation.run()
    found = past(simulation.journal.kept or [])
    assert (found.pace.boot_s, found.pace.end_s) == (7.0, 2.0)


# ---------------------------------------------------------------------------------------------------------- what comes again


def test_people_cancel_and_hold_again_at_the_same_time() -> None:
    journal = lived(*(job(n, 10.0 * n, 400.0, 4) for n in range(1, 5)))
    journal = said(journal, 100.0, f.JobCancelled(job="4", user="ann"))
    found = past(journal)
    again = found.play("again").outcome
    assert job_of(again.jobs, 4).end == "cancelled"
    assert job_of(again.jobs, 4).end_s == 99.5


def test_what_waited_and_ran_when_the_period_began_goes_on() -> None:
    journal = lived(*(job(n, 10.0 * n, 400.0, 4) for n in range(1, 5)))
    found = past(journal, since=500.0)
    again = found.play("again").outcome
    assert again.jobs == found.what_happened().jobs
    assert [each.number for each in again.jobs] == [2, 3, 4]  # the first one was over
    assert job_of(again.jobs, 2).start_s == 410.0 - 500.0


def test_load_rises_where_fewer_serve() -> None:
    """Two instances were half busy; where the configuration allows one, it is fully busy, and no more."""
    two = msgspec.structs.replace(WEB, web=WebPolicy(instances_min=2, instances_max=2))
    one = msgspec.structs.replace(WEB, web=WebPolicy(instances_min=1, instances_max=1))
    journal = lived(config=cloud(hpc(), two), web=WebInput(load=((0.0, 1.2),), end_s=END_S))
    found = past(journal)
    assert [served for *_, served in found.events if served][-1] == 2.0
    less = values(found.play("less", cloud(hpc(), one)).outcome)["web"]
    assert less["overload_instance_s"] == pytest.approx(0.2 * END_S, rel=0.01)
    same = values(found.play("same", cloud(hpc(), two)).outcome)["web"]
    assert same["overload_instance_s"] == 0.0


def test_the_rule_hears_the_load_of_those_who_serve_in_the_replay() -> None:
    """Four instances were half busy: that is work for three at 67 %, and for no fewer below 80 %."""
    four = msgspec.structs.replace(WEB, web=WebPolicy(instances_min=4, instances_max=10))
    found = past(lived(hosts=6, config=cloud(hpc(), four), web=WebInput(load=((0.0, 2.0),), end_s=END_S)))
    (web,) = found.play("fewer", cloud(hpc(), WEB)).outcome.web
    assert web.levels[-1][1:] == (3, 3)


def test_what_was_void_then_is_not_played() -> None:
    journal = lived(job(1, 10.0, 60.0))
    stray = said(journal, 20.0, f.AttemptReported(unit="99", attempt=1, exit=0))
    assert past(stray).stage.journal.void == past(journal).stage.journal.void == 0


# ----------------------------------------------------------------------------------------------------- another configuration


def test_another_order_is_compared() -> None:
    """A wide job first: with `fcfs` the short one behind it waits for it, with `first-fit` it does not."""
    works = (job(1, 10.0, 500.0, 3), job(2, 20.0, 500.0, 4), job(3, 30.0, 50.0))
    found = past(lived(*works, config=cloud(hpc(order="fcfs"))))
    present, new = found.play("present"), found.play("new", cloud(hpc(order="first-fit")))
    one, two = values(present.outcome), values(new.outcome)
    assert fidelity(values(found.what_happened()), one) == []
    change = differences(one, two)["hpc"]["mean_wait_s"]
    assert change is not None
    assert change < -300.0
    assert by_user(new.outcome)["hpc"]["ann"]["completed"] == 3


def test_how_far_the_replay_is_from_what_happened_is_told() -> None:
    happened = {"hpc": {"mean_wait_s": 5.0, "completed": 3.0, "p95_wait_s": 1.0, "mean_turnaround_s": None}}
    replayed = {"hpc": {"mean_wait_s": 7.0, "completed": 3.0, "p95_wait_s": 9.0, "mean_turnaround_s": 8.0}}
    row = {"department": "hpc", "metric": "mean_wait_s", "happened": 5.0, "replayed": 7.0, "difference": 2.0}
    assert fidelity(happened, replayed) == [row]


def test_more_hosts_and_fewer() -> None:
    works = tuple(job(n, 10.0, 400.0, 2) for n in range(1, 5))
    found = past(lived(*works))
    more, fewer = found.play("more", hosts=8), found.play("fewer", hosts=3)
    assert {each.start_s for each in more.outcome.jobs} == {9.5}
    assert values(fewer.outcome)["hpc"]["p95_turnaround_s"] == 1600.0
    assert (more.outcome.hosts, fewer.outcome.hosts) == (8, 3)


def test_what_the_door_would_refuse_is_refused_and_told() -> None:
    found = past(lived(job(1, 10.0, 60.0), job(2, 20.0, 60.0, walltime_s=500.0)))
    new = found.play("new", cloud(hpc(walltime_max_s=900.0, walltime_default_s=900.0)))
    assert job_of(new.outcome.jobs, 1).end == "refused"
    assert job_of(new.outcome.jobs, 2).end == "completed"
    told = notes(found, found.play("present"), new, cloud(hpc()))
    assert any("refused in the new replay, 1 job: walltime_s: 1000 s is more" in note for note in told)


def test_departments_that_come_and_go_are_told() -> None:
    found = past(lived(job(1, 10.0, 60.0)))
    other = cloud(msgspec.structs.replace(hpc(), name="lab"))
    new = found.play("new", other)
    assert job_of(new.outcome.jobs, 1).end == "refused"
    told = notes(found, found.play("present"), new, other)
    assert "lab is new: nothing was asked of it in the period" in told
    assert "hpc is not in the new configuration: its jobs end" in told


def test_the_period_begins_with_the_cloud() -> None:
    journal = [Entry(entry.writer, entry.at + 1000.0, entry.facts) for entry in lived(job(1, 10.0, 60.0))]
    found = past(journal, since=0.0, until=END_S + 1000.0)
    assert (found.late, found.since, found.hosts) == (True, 1000.0, 4)
    assert found.play("again").outcome.jobs == found.what_happened().jobs


def joining(*works: Work, hosts: int = 4, apart_s: float = 0.0, away: int = 0) -> list[Entry]:
    """The journal of a cloud whose hosts are seen one after the other, the last `away` never; web's first instance comes with
    the first host."""
    kept = lived(*works, hosts=hosts, config=cloud(hpc(), WEB), web=WebInput(load=((0.0, 0.5),), end_s=END_S))
    config = next(fact for entry in kept for fact in entry.facts if isinstance(fact, f.ConfigAdopted))
    described = [fact for entry in kept for fact in entry.facts if isinstance(fact, f.HostDescribed)]
    journal = [Entry("provisioner", 0.0, (config,)), Entry("executor", 0.0, tuple(described))]
    placed = f.UnitPlaced(unit="web.1", attempt=1, hosts=(described[0].host,), cores=1, memory_mb=256)
    for number, host in enumerate(described[: hosts - away]):
        at = number * apart_s
        journal.append(Entry("executor", at, (f.HostCleared(host=host.host),)))
        if not number:
            journal.append(Entry("provisioner", at, (f.HostGranted(host=host.host, dept="web"),)))
            journal.append(Entry("scheduler.web", at, (placed,)))
    submitted = [entry for entry in kept if any(isinstance(fact, f.JobSubmitted) for fact in entry.facts)]
    return sorted(journal + submitted, key=lambda entry: entry.at)


def hosts_at_once(outcome: Outcome) -> int:
    held: dict[str, int] = {}
    most = 0
    for _, dept, count in outcome.held:
        held[dept] = count
        most = max(most, sum(held.values()))
    return most


def test_the_period_begins_when_all_hosts_have_joined_though_work_has_begun() -> None:
    journal = joining(*(job(n, 20.0 + n, 400.0) for n in range(1, 8)), apart_s=0.5)
    found = past(journal, since=-1000.0)
    assert (found.late, found.since, found.hosts) == (True, 21.0, 4)
    assert found.play("fewer", hosts=2).outcome.hosts == 2


def test_a_host_that_never_comes_does_not_delay_the_period() -> None:
    found = past(joining(*(job(n, 20.0 * n, 400.0) for n in range(1, 8)), away=1), since=30.0)
    assert (found.late, found.since, found.hosts) == (False, 30.0, 3)


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 6])
def test_hosts_that_join_within_the_period_are_of_those_asked_for(hosts: int) -> None:
    """They come 10 s apart, so the period begins with the first of four."""
    journal = joining(*(job(n, 9.0 + n, 400.0) for n in range(1, 8)), apart_s=10.0)
    found = past(journal, since=0.0)
    assert found.since < 20.0
    played = found.play("other", hosts=hosts)
    assert hosts_at_once(played.outcome) <= hosts
    held = values(played.outcome)["(cloud)"]["held_utilisation"]
    assert held is not None
    assert held <= 1.0
    assert played.void == 0


def test_a_change_of_the_configuration_comes_again_unless_there_is_another() -> None:
    journal = lived(*(job(n, 10.0 * n, 400.0, 4) for n in range(1, 5)))
    closed = cloud(msgspec.structs.replace(hpc(), maximum=2))
    adopted = f.ConfigAdopted(cloud="simulation", custody_rules=2, config=closed)
    found = past(said(journal, 15.0, adopted, writer="provisioner"))
    assert found.configs == 1
    assert job_of(found.play("present").outcome.jobs, 3).end in ("refused", "unfinished")
    assert job_of(found.play("new", cloud(hpc())).outcome.jobs, 3).end == "completed"


def test_who_lent_is_counted_at_every_moment_and_by_hours() -> None:
    """Of four hosts two are web's own by guarantee, at night one; it held one for 1800 s, then three."""
    day = msgspec.structs.replace(WEB, guarantee=2, windows=("daily 00:30-24:00 guarantee 1",))
    outcome = Outcome(
        label="x",
        hosts=4,
        window_s=3600.0,
        host_cores=1,
        held=[(0.0, "hpc", 3), (0.0, "web", 1), (1800.0, "hpc", 1), (1800.0, "web", 3)],
    )
    found = lending(outcome, cloud(hpc(), day), 0.0)
    assert found["web"] == {"lent_host_h": 0.5, "borrowed_host_h": 1.0}  # one fewer than two; two more than one
    assert found["hpc"] == {"lent_host_h": 1.0, "borrowed_host_h": 0.5}


def test_who_still_waits_at_the_end_is_not_left_out_of_every_wait() -> None:
    quick = JobRecord(number=1, department="hpc", user="ann", submit_s=0.0, run_s=1.0, nodes=1, cores=1, start_s=2.0)
    stuck = JobRecord(number=2, department="hpc", user="ann", submit_s=10.0, run_s=1.0, nodes=1, cores=1)
    given_up = JobRecord(
        number=3, department="hpc", user="ann", submit_s=10.0, run_s=1.0, nodes=1, cores=1, end="cancelled", end_s=40.0
    )
    refused = JobRecord(
        number=4, department="hpc", user="ann", submit_s=0.0, run_s=1.0, nodes=1, cores=1, end="refused"
    )
    outcome = Outcome(label="x", hosts=1, window_s=100.0, host_cores=1, jobs=[quick, stuck, given_up, refused])
    assert waits_of_all(outcome) == {"hpc": (2.0 + 90.0 + 30.0) / 3}
    assert by_user(outcome)["hpc"]["ann"]["mean_wait_of_all_s"] == (2.0 + 90.0 + 30.0) / 3
    refusals = Outcome(label="x", hosts=1, window_s=100.0, host_cores=1, jobs=[refused])
    assert (waits_of_all(refusals), by_user(refusals)["hpc"]["ann"]["mean_wait_of_all_s"]) == ({}, None)


def test_what_is_to_come_cannot_be_played_again() -> None:
    asked = argparse.Namespace(config=None, since="24h", until="2999-01-01")
    with pytest.raises(CliError, match="--until is to come"):
        run(asked)


def test_a_period_that_ends_before_the_cloud_began_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = [Entry(entry.writer, entry.at + 1000.0, entry.facts) for entry in lived(job(1, 10.0, 60.0))]
    monkeypatch.setattr(whatif_replay, "_lines", lambda _client, _since: lines(journal))
    asked = argparse.Namespace(unknown=None, hosts=None)
    with pytest.raises(CliError, match=r"--until is before the cloud's beginning.*begins at 1970-01-01T00:16:40Z"):
        whatif_replay._played(Client("http://127.0.0.1:1"), 0.0, 500.0, None, asked)


def test_a_record_with_a_hole_between_archive_and_stream_is_not_sent(tmp_path: Path) -> None:
    Archive(tmp_path, "j").append([Stored(1, "s", b"x", 0.0), Stored(2, "s", b"y", 0.0)])
    assert reaching(tmp_path, "j", 2).end == 2
    for directory, mark in ((tmp_path, 3), (tmp_path / "nowhere", 1)):
        with pytest.raises(Broken, match=f"the journal was trimmed up to {mark}"):
            reaching(directory, "j", mark)
