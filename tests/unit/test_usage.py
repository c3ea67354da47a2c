"""Accounting by hand: who had how many hosts, what was lost to whom, shares of services, and how sums grow old."""

from __future__ import annotations

from typing import Any

import pytest

from phoenix.cli import usage as command
from schemas import facts as f
from schemas import reasons as because
from schemas import upgrade
from schemas.config import CloudConfig, Department
from schemas.facts import Disposal
from schemas.units import exact
from services.monitor.core import buckets
from services.monitor.core.buckets import DAY_MS, DAYS, HOUR_MS, OTHERS, Buckets, key
from services.monitor.core.monitor import MonitorCore
from services.monitor.views.usage import EVER, usage
from tests.support.closing import close
from tests.support.world import World, batch, cloud, web

NOON = 20_000 * 86_400.0 + 43_200.0
WEIGHTS = {"jivarod": 65.0, "bof": 19.0, "third": 12.0}


class Office:
    """A cloud whose facts are written by hand, and its monitor."""

    def __init__(self, *departments: Department, hosts: int = 4, cores: int = 4, memory_mb: int = 8192) -> None:
        self.world = World(cloud(*(departments or (batch("hpc"), web("web")))), now=NOON)
        self.world.seat("monitor", MonitorCore)
        self.hosts = self.world.hosts(hosts, cores=cores, memory_mb=memory_mb)

    def ask(
        self, by: Any = "department", department: str | None = None, since: float = 0.0, until: float = EVER
    ) -> dict[str, Any]:
        return usage(self.world.seats["monitor"].core.accounting, by, department, since, until, self.world.now)

    def of(self, department: str = "hpc") -> dict[str, Any]:
        return next(one for one in self.ask()["departments"] if one["department"] == department)

    def place(self, job: str, *hosts: str, cores: int = 4, dept: str = "hpc", begin: bool = True) -> None:
        attempt = self.world.unit(job).attempt + 1
        fact = f.UnitPlaced(unit=job, attempt=attempt, hosts=hosts, cores=cores, memory_mb=64)
        self.world.write(f"scheduler.{dept}", fact)
        if begin:
            self.world.begin(job)

    def close(self, job: str, disposal: Disposal, code: because.Kind = because.Reclaimed) -> None:
        attempt = self.world.unit(job).attempt
        fact = f.AttemptClosed(unit=job, attempt=attempt, disposal=disposal, why=code())
        self.world.write("scheduler.hpc", fact)

    def notice(
        self, hosts: int, code: because.Kind = because.WebDemand, claimants: tuple[str, ...] = (), **params: str
    ) -> None:
        by, why = self.world.now + 0.3, code(**params)
        self.world.write("provisioner", f.QuotaChanged(dept="hpc", hosts=hosts, by=by, claimants=claimants, reason=why))


def running(office: Office, cores: int = 4) -> str:
    """A job that has run for ten seconds on h1."""
    office.world.grant("hpc", "h1")
    job = office.world.submit()
    office.place(job, "h1", cores=cores)
    office.world.now += 10
    return job


def test_gpus_are_counted_beside_cores() -> None:
    office = Office()
    office.world.write("executor", f.HostDescribed(host="h1", one_id=1, cores=8, memory_mb=8192, gpus=4))
    office.world.grant("hpc", "h1")
    job = office.world.submit()
    office.world.write("scheduler.hpc", f.UnitPlaced(unit=job, attempt=1, hosts=("h1",), cores=2, memory_mb=64, gpus=3))
    office.world.begin(job)
    office.world.now += 10
    one = office.of()
    assert (one["used_core_s"], one["used_gpu_s"], one["held_gpu_s"]) == (20.0, 30.0, 40.0)
    assert office.ask("user")["rows"][0]["used_gpu_s"] == 30.0
    assert "GPU-HOURS" in command.render(office.ask())
    without = Office()
    running(without)
    assert "OF CORE-HOURS" in command.render(without.ask())
    assert "GPU" not in command.render(without.ask())


def test_a_preempted_job_loses_its_work_to_whom_the_notice_names() -> None:
    office = Office()
    job = running(office, cores=3)
    office.notice(0, claimants=("web",))
    office.close(job, Disposal.REQUEUE)
    office.world.write("scheduler.hpc", f.HostReleased(host="h1"))
    office.world.now += 5
    one = office.of()
    assert (one["lost_core_s"], one["lost_to"], one["preempted"]) == (30.0, {"web": 30.0}, 1)
    assert (one["hosts_given_back"], one["hosts_seized"], one["draining_s"]) == (1, 0, 5.0)
    assert one["used_core_s"] == 30.0


@pytest.mark.parametrize(
    ("closing", "notice", "to"),
    [
        (because.Preempted, because.WebDemand, {"(production)": 40.0}),
        (because.Reclaimed, because.Cordoned, {"(no claimant)": 40.0}),
        (because.HostTaken, because.BatchShare, {"(no claimant)": 40.0}),
        (because.Walltime, because.WebDemand, {}),
        (because.EndedVm, because.WebDemand, {}),
    ],
)
def test_to_whom_it_was_lost_if_nobody_is_named(
    closing: because.Kind, notice: because.Kind, to: dict[str, float]
) -> None:
    office = Office()
    job = running(office)
    office.notice(0, notice)
    office.close(job, Disposal.REQUEUE, closing)
    assert office.of()["lost_to"] == to
    assert office.of()["failed_core_s"] == (40.0 if closing is because.EndedVm else 0.0)


@pytest.mark.parametrize(
    ("code", "params", "to"),
    [
        ("web_demand", {"department": "shop"}, {"shop": 40.0}),
        ("web_share", {"department": "shop, web"}, {"shop": 20.0, "web": 20.0}),
        ("lending", {"lender": "bio", "borrower": "hpc"}, {"bio": 40.0}),
        ("batch_share", {"department": "hpc"}, {"(no claimant)": 40.0}),
    ],
)
def test_to_whom_it_was_lost_as_old_journals_say(code: str, params: dict[str, str], to: dict[str, float]) -> None:
    """They named whom in the reason, and nowhere else."""
    office = Office()
    job = running(office)
    old = {"kind": "quota.changed", "dept": "hpc", "hosts": 0, "by": office.world.now + 1}
    office.world.write("provisioner", upgrade.fact(old | {"reason": {"code": code, "params": params}}, 1))
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_to"] == to


def test_what_several_claim_is_lost_to_each_in_equal_parts() -> None:
    office = Office()
    job = running(office)
    office.notice(0, claimants=("shop", "web", "blog"))
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_to"] == {"blog": 13.333, "shop": 13.334, "web": 13.333}
    assert office.of()["lost_core_s"] == 40.0
    office.world.report(job)
    assert (office.of()["lost_to"], office.of()["lost_core_s"]) == ({}, 0.0)


def test_a_late_success_takes_back_what_was_lost_and_counts_once() -> None:
    office = Office()
    job = running(office)
    office.notice(0, department="web")
    office.close(job, Disposal.REQUEUE)
    office.world.now += 2
    office.world.report(job)
    office.world.report(job)  # void
    one = office.of()
    assert (one["lost_core_s"], one["recovered_core_s"], one["lost_to"]) == (0.0, 40.0, {})
    assert (one["ended"], one["used_core_s"]) == ({"completed": 1}, 40.0)
    totals = office.world.seats["monitor"].core.accounting.totals(round(office.world.now * 1000))
    assert totals["hpc"].lost + totals["hpc"].recovered == 40_000  # a counter does not fall


def test_what_was_suspended_is_lost_only_with_the_attempt_that_goes_on_from_it() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.SUSPEND)
    assert office.of()["lost_core_s"] == 0.0
    office.place(job, "h1")
    office.world.now += 5
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 60.0
    office.place(job, "h1")
    office.world.now += 1
    office.close(job, Disposal.KILL)
    assert office.of()["lost_core_s"] == 64.0


def checkpoint(office: Office, job: str, attempt: int) -> None:
    office.world.write("admission", f.CheckpointReported(unit=job, attempt=attempt))


def test_a_checkpoint_saves_what_came_before_unless_the_job_is_killed() -> None:
    office = Office()
    job = running(office)
    checkpoint(office, job, 1)
    office.world.now += 3
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 12.0
    office.place(job, "h1")
    office.world.now += 2
    checkpoint(office, job, 1)  # too late: the next attempt has begun
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 20.0
    office.place(job, "h1")
    office.world.now += 1
    office.close(job, Disposal.KILL)
    assert office.of()["lost_core_s"] == 20.0 + 4.0 + 40.0  # and what the checkpoint had kept


def test_a_checkpoint_in_the_grace_time_saves_all() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 40.0
    checkpoint(office, job, 1)
    checkpoint(office, job, 1)
    assert (office.of()["lost_core_s"], office.of()["recovered_core_s"]) == (0.0, 40.0)
    office.place(job, "h1")
    office.world.now += 1
    office.close(job, Disposal.KILL)
    assert office.of()["lost_core_s"] == 44.0


def test_a_checkpoint_in_the_grace_time_counts_until_the_next_attempt_begins() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    office.world.grant("hpc", "h2")
    office.place(job, "h2", begin=False)
    checkpoint(office, job, 1)
    assert (office.of()["lost_core_s"], office.of()["recovered_core_s"]) == (0.0, 40.0)
    office.world.begin(job)
    office.world.now += 2
    checkpoint(office, job, 1)  # too late
    office.close(job, Disposal.KILL)
    assert office.of()["lost_core_s"] == 48.0  # and what was kept


def test_a_loss_is_not_taken_back_by_a_later_attempt() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    office.place(job, "h1", begin=False)
    office.world.report(job)
    assert (office.of()["lost_core_s"], office.of()["recovered_core_s"]) == (40.0, 0.0)
    other = running(office)
    office.close(other, Disposal.REQUEUE)
    office.place(other, "h1", begin=False)
    office.close(other, Disposal.REQUEUE, because.Walltime)
    office.world.report(other)
    assert (office.of()["lost_core_s"], office.of()["recovered_core_s"]) == (80.0, 0.0)
    third = running(office)
    office.close(third, Disposal.REQUEUE)
    office.place(third, "h1")
    checkpoint(office, third, 2)
    assert (office.of()["lost_core_s"], office.of()["recovered_core_s"]) == (120.0, 0.0)


def test_a_suspended_job_that_saves_in_its_grace_time_risks_no_more() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.SUSPEND)
    checkpoint(office, job, 1)
    office.place(job, "h1")
    office.world.now += 1
    office.close(job, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 4.0


def test_a_broken_attempt_loses_no_more_while_it_is_not_closed() -> None:
    office = Office()
    job = running(office)
    office.world.lose("h1")
    office.world.now += 100
    office.close(job, Disposal.REQUEUE, because.LostHost)
    one = office.of()
    assert (one["failed_core_s"], one["used_core_s"]) == (40.0, 440.0)
    assert office.ask()["site"]["lost_s"] == 100.0


def test_waiting_is_from_submission_to_the_first_attempt() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    first, second = office.world.submit(user="ann"), office.world.submit(user="bob")
    office.world.now += 6
    office.place(first, "h1", cores=1)
    office.world.now += 2
    office.close(first, Disposal.REQUEUE)
    office.place(first, "h1", cores=1)
    office.place(second, "h1", cores=1)
    rows = {row["user"]: row["mean_wait_s"] for row in office.ask("user")["rows"]}
    assert rows == {"ann": 6.0, "bob": 8.0}


def test_lent_and_borrowed_follow_the_clock_without_any_fact() -> None:
    """Web owns two hosts from 12:30 to 13:00, and holds none; hpc holds all four."""
    office = Office(batch("hpc"), web("web"))
    windowed = Department(name="web", kind="web", web=web().web, windows=("daily 12:30-13:00 guarantee 2",))
    config = CloudConfig(name="test", departments=(batch("hpc"), windowed))
    office.world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=1, config=config))
    office.world.grant("hpc", *office.hosts)
    office.world.now += 2700  # 12:45
    assert (office.of("web")["lent_s"], office.of("hpc")["borrowed_s"]) == (1800.0, 1800.0)
    office.world.now += 86_400
    office.world.submit()
    assert (office.of("web")["own_s"], office.of("web")["lent_s"]) == (5400.0, 5400.0)
    assert office.of("hpc")["own_s"] == 4 * (2700 + 86_400) - 5400


def test_a_whole_host_is_used_whole() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    job = office.world.submit(exclusive=True)
    fact = f.UnitPlaced(unit=job, attempt=1, hosts=("h1",), cores=1, memory_mb=1, exclusive=True)
    office.world.write("scheduler.hpc", fact)
    office.world.now += 10
    assert office.of()["used_core_s"] == 40.0


def test_a_closed_department_ends_each_of_its_units_once() -> None:
    office = Office()
    running(office)
    office.world.submit(array=(1, 2, 3))
    office.world.cancel("2_1")
    close(office.world, "hpc")
    assert [office.of()[key] for key in ("ended", "used_core_s", "lost_core_s")] == [{"cancelled": 4}, 40.0, 0.0]


def test_a_lease_has_a_row_of_its_own() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    lease = office.world.submit(lease=f.Lease(kind="advance", start_at=NOON))
    plain = office.world.submit()
    office.place(lease, "h1", cores=1)
    office.place(plain, "h1", cores=2)
    office.world.now += 10
    rows = {row["lease"]: row["used_core_s"] for row in office.ask("lease")["rows"]}
    assert rows == {lease: 10.0, "": 20.0}


def test_a_lease_waits_from_its_own_time_on_and_is_missed_not_cancelled() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    slot = f.Lease(kind="advance", start_at=NOON + 100)
    late, missed, ended = (office.world.submit(lease=slot, walltime_s=50.0) for _ in range(3))
    office.world.cancel(ended)
    office.world.now += 104
    office.place(late, "h1", cores=1)
    office.world.now += 50
    office.world.write("admission", f.JobCancelled(job=missed, user=""))
    [row] = office.ask("user")["rows"]
    assert (row["mean_wait_s"], row["ended"]) == (4.0, {"cancelled": 1, "missed": 1})


# ---------------------------------------------------------------------------------------------------------------- services


def test_services_of_figure_6_3() -> None:
    """8 hosts, 64 cores, 196,529 MiB: jivarod uses 40 cores, bof 8, best-effort of third 4; all the time."""
    office = Office(batch("hpc", order="svmsched", services=WEIGHTS), hosts=8, cores=8, memory_mb=24_566)
    office.world.grant("hpc", *office.hosts)
    for service, cores, host, best_effort in (
        *(("jivarod", 8, f"h{n}", False) for n in range(1, 6)),
        ("bof", 8, "h6", False),
        ("third", 4, "h7", True),
    ):
        job = office.world.submit(user="ann", service=service, best_effort=best_effort)
        office.place(job, host, cores=cores)
    office.world.now += 3600
    rows = {row["service"]: row for row in office.ask("service")["rows"]}
    assert {name: row["granted_pct"] for name, row in rows.items()} == {"jivarod": 67.71, "bof": 19.79, "third": 12.5}
    assert {name: row["usage_pct"] for name, row in rows.items()} == {"jivarod": 62.5, "bof": 12.5, "third": 0.0}
    assert sum(row["lent_pct"] for row in rows.values()) == pytest.approx(100 * 4 / 64, abs=0.02)
    assert sum(row["borrowed_pct"] for row in rows.values()) == 0.0
    text = command.render(office.ask("service"))
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert lines["jivarod"] == ["67.71", "62.50", "1.30", "0.00"]
    assert lines["total"] == ["100.00", "75.00", "6.24", "0.00"]


def test_usage_counts_memory_where_the_shares_do() -> None:
    """Figure 6.3 again, by memory: jivarod uses 2,560 of 196,529 MiB, for the second half of an hour."""
    office = Office(batch("hpc", services=WEIGHTS, w_cpu=0.0, w_mem=1.0), hosts=1, cores=64, memory_mb=196_529)
    office.world.grant("hpc", "h1")
    job = office.world.submit(service="jivarod")
    office.world.now += 1800
    fact = f.UnitPlaced(unit=job, attempt=1, hosts=("h1",), cores=40, memory_mb=2560)
    office.world.write("scheduler.hpc", fact)
    assert office.ask("service")["rows"][0]["usage_pct"] == 0.0
    office.world.now += 1800
    assert office.ask("service")["rows"][0]["usage_pct"] == 0.65


def test_what_one_service_borrows_others_lend() -> None:
    office = Office(batch("hpc", order="svmsched", services={"a": 1.0, "b": 1.0, "c": 2.0}))
    office.world.grant("hpc", *office.hosts)
    job = office.world.submit(service="a", nodes=2)
    office.place(job, "h1", "h2")
    office.world.now += 60
    rows = {
        row["service"]: (row["usage_pct"], row["lent_pct"], row["borrowed_pct"])
        for row in office.ask("service")["rows"]
    }
    assert rows == {"a": (50.0, 0.0, 25.0), "b": (0.0, 8.33, 0.0), "c": (0.0, 16.67, 0.0)}


# ----------------------------------------------------------------------------------------------------------------- periods


def test_a_period_begins_and_ends_at_the_edges_of_buckets() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    office.world.now += 3 * 3600 + 600
    found = office.ask(since=NOON + 4000, until=NOON + 7300)
    assert (found["since"], found["until"]) == (exact(NOON + 3600), exact(NOON + 3 * 3600))
    assert found["departments"][0]["held_s"] == 2 * 3600
    whole = office.ask()
    assert (whole["since"], whole["until"], whole["departments"][0]["held_s"]) == (
        exact(NOON),
        exact(NOON + 11_400),
        11_400,
    )


def test_hours_become_days_and_old_days_live_on_in_the_counters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "DAYS", 40)
    office = Office()
    office.world.grant("hpc", "h1")
    job = office.world.submit()
    office.place(job, "h1")
    for _ in range(60):
        office.world.now += 86_400
        office.world.write("scheduler.hpc", f.DemandChanged(dept="hpc", hosts=1))
    office.close(job, Disposal.REQUEUE)
    accounting = office.world.seats["monitor"].core.accounting
    now = round(office.world.now * 1000)
    assert office.of()["held_s"] == 39 * 86_400 + 43_200
    assert office.of()["used_core_s"] == 4 * office.of()["held_s"]
    totals = accounting.totals(now)["hpc"]
    assert (totals.held, totals.used) == (60 * DAY_MS, 240 * DAY_MS)
    book = accounting.state.book
    assert len(book.kept) <= 40 + 72


def test_merged_hours_are_the_sum_and_the_same_hours() -> None:
    book = Buckets()
    book.turn(10 * DAY_MS)
    for hour in range(24):
        book.span(book.begin(10 * DAY_MS + hour * HOUR_MS), "hpc").held += hour
        book.row(book.begin(10 * DAY_MS + hour * HOUR_MS), key("hpc", "ann", "", "")).used += 1
    assert (len(book.kept), book.rows) == (24, 24)
    book.turn(13 * DAY_MS)
    assert (len(book.kept), book.rows) == (1, 1)
    assert book.kept[10 * DAY_MS].spans["hpc"].held == sum(range(24))
    assert list(book.pieces(11 * DAY_MS - 5, 11 * DAY_MS + 7)) == [(10 * DAY_MS, 5), (11 * DAY_MS, 7)]
    book.turn(13 * DAY_MS + DAYS * DAY_MS)
    assert (book.kept, book.rows, book.before["hpc"].held) == ({}, 0, sum(range(24)))


def test_names_go_and_sums_stay_when_there_are_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "ROWS_MAX", 20)
    book = Buckets()
    book.turn(10 * DAY_MS)
    for number in range(100):
        begin = book.begin(10 * DAY_MS + number // 5 * 2 * HOUR_MS % DAY_MS)
        book.row(begin, key("hpc", f"u{number}", "", "")).used += 1
        assert book.rows == sum(len(bucket.rows) for bucket in book.kept.values()) <= 20
    rows = [(name, row) for bucket in book.kept.values() for name, row in bucket.rows.items()]
    assert sum(row.used for _, row in rows) == 100
    assert {name for name, row in rows if row.used > 1} == {key("hpc", OTHERS, "", "")}


# ----------------------------------------------------------------------------------------------------------------- command


def test_the_table_adds_up_for_people_too() -> None:
    office = Office()
    job = running(office)
    office.notice(0, claimants=("web",))
    office.close(job, Disposal.REQUEUE)
    office.world.write("scheduler.hpc", f.HostReleased(host="h1"))
    office.world.now += 3590
    text = command.render(office.ask())
    assert text.startswith("2024-10-04T12:00:00Z to 2024-10-04T13:00:00Z (1h00m): 4 hosts with 16 cores on average, ")
    assert "4.000 host-hours and 16.000 core-hours" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert lines["(free)"][1:3] == ["3.000", "75.0"]
    assert lines["(draining)"][1:3] == ["0.997", "24.9"]
    assert "hpc lost 0.011 core-hours of work to web." in text
    total = next(line for line in text.splitlines() if line.startswith("total"))
    assert total.split()[1:4] == ["4.000", "4.000", "100.0"]


def test_absent_and_lost_hosts_are_in_no_total_and_named_below_it() -> None:
    """The sentence's host-hours, the total and its parts are the same hosts."""
    office = Office()
    running(office)
    office.world.write("executor", f.HostDescribed(host="h9", one_id=9, cores=4, memory_mb=8192))  # never cleared
    office.world.lose("h4")
    office.world.write("scheduler.hpc", f.HostReleased(host="h1"))
    office.world.now += 3600
    answer = office.ask()
    site, departments = answer["site"], answer["departments"]
    held = sum(one["held_s"] + one["draining_s"] for one in departments)
    assert held + site["free_s"] == pytest.approx(site["hosts_s"] - site["lost_s"] - site["absent_s"])
    lines = [line.split() for line in command.render(answer).splitlines() if line]
    names = [line[0] for line in lines]
    total = lines[names.index("total")]
    assert " ".join(lines[0]).endswith(f"{total[2]} host-hours and {site['cores_s'] / 3600:.3f} core-hours.")
    parts = [line for line in lines[: names.index("total")] if line[0] in ("(draining)", "(free)")]
    assert sum(float(line[1]) for line in parts) + held_by(lines) == pytest.approx(float(total[2]), abs=0.002)
    assert (total[3], names[names.index("total") + 1 :][:2]) == ("100.0", ["(lost)", "(absent)"])


def held_by(lines: list[list[str]]) -> float:
    """HELD of the departments, as the first table has it."""
    return sum(
        float(line[2]) for line in lines[: [line[0] for line in lines].index("total")] if line[0] in ("hpc", "web")
    )


def test_who_wants_the_hosts_of_a_share_is_named_and_else_it_is_told_in_words() -> None:
    for claimants, to in ((("bio",), "bio"), ((), "(no claimant)")):
        office = Office(batch("hpc"), batch("bio"), batch("phys"))
        job = running(office)
        office.notice(0, because.BatchShare, claimants, department="hpc")
        office.close(job, Disposal.REQUEUE)
        assert office.of()["lost_to"] == {to: 40.0}
        said = (
            "to bio."
            if to == "bio"
            else "to no department: a window, hosts taken out of use, or a changed configuration."
        )
        assert said in command.render(office.ask())


def test_a_period_that_is_longer_than_the_one_asked_for_is_noted() -> None:
    answer = {"since": NOON, "until": NOON + 7200.0}
    assert command._rounded(answer, NOON, NOON + 7200.0) == command._rounded(answer, None, None) == ""
    assert command._rounded(answer, NOON - 60, None) == ""  # nothing is known of what was before
    assert command._rounded(answer, NOON + 300, NOON + 3600).endswith(
        "this begins at 2024-10-04T12:00:00Z, not at 2024-10-04T12:05:00Z and ends at 2024-10-04T14:00:00Z, "
        "not at 2024-10-04T13:00:00Z"
    )


def test_of_an_unknown_time_nothing_is_shown() -> None:
    office = Office()
    assert command.render(office.ask(since=NOON + 1e6)) == "there is no data for that time"
