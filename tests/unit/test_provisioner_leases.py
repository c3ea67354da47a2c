"""Which accepted leases another configuration would not keep, and that it is not adopted unless that is accepted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas import requests as r
from schemas.config import BatchPolicy, CloudConfig, Department
from schemas.facts import Fact
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.provisioner.core.provisioner import ProvisionerCore
from services.provisioner.edge import told
from tests.support.closing import closing


def cloud(**fields: Any) -> CloudConfig:
    policy = BatchPolicy(order=fields.pop("order", "leases"))
    return CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", batch=policy, **fields),))


BEFORE = cloud(guarantee=8, maximum=8)
GONE = CloudConfig(name="c", departments=())
WEB = CloudConfig(name="c", departments=(Department(name="hpc", kind="web"),))


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2026-02-03T{clock}:00").replace(tzinfo=UTC).timestamp()


class Journal:
    """A provisioner's core that folds what others write."""

    def __init__(self, config: CloudConfig = BEFORE) -> None:
        self.core = ProvisionerCore(Custody())
        self.position, self.now = 0, at("09:00")
        self.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
        for n in range(8):
            self.write("executor", f.HostDescribed(host=f"h{n}", one_id=n, cores=2, memory_mb=1000))
            self.write("executor", f.HostCleared(host=f"h{n}"))

    def write(self, writer: str, fact: Fact) -> None:
        self.position += 1
        void = fold_fact(self.core.custody, fact, self.position, 0, writer, self.now)
        assert void is None
        self.core.apply(fact, Meta(position=self.position, index=0, writer=writer, at=self.now))

    def lease(self, name: str, start: str, end: str, nodes: int = 2) -> None:
        kind = "advance" if start else "best-effort"
        lease = f.Lease(kind=kind, start_at=at(start) if start else 0.0)
        walltime_s = at(end) - (at(start) if start else self.now)
        job = f.JobSubmitted(
            job=name,
            dept="hpc",
            user="ann",
            name="",
            payload="p",
            nodes=nodes,
            cores=2,
            memory_mb=100,
            tasks=nodes,
            walltime_s=walltime_s,
            lease=lease,
            best_effort=not start,
        )
        self.write("admission", job)

    def place(self, name: str, *hosts: str) -> None:
        for host in hosts:
            self.write("provisioner", f.HostGranted(host=host, dept="hpc"))
        self.write("scheduler.hpc", f.UnitPlaced(unit=name, attempt=1, hosts=hosts, cores=2, memory_mb=100))

    def late(self, config: CloudConfig) -> list[str]:
        return [told(late) for late in self.core.late_leases(config, self.now)]


@pytest.fixture
def journal() -> Journal:
    return filled(BEFORE)


def filled(config: CloudConfig) -> Journal:
    """Leases have 4 hosts together from 10:00 on, 6 from 10:30, 4 from 12:00."""
    found = Journal(config)
    found.lease("1", "09:00", "12:00")
    found.place("1", "h1", "h2")
    for name, start, end, nodes in (("2", "10:00", "11:00", 2), ("3", "10:30", "12:00", 2), ("4", "12:00", "13:00", 4)):
        found.lease(name, start, end, nodes)
    found.lease("5", "", "11:00")
    return found


@pytest.mark.parametrize(
    ("after", "names", "why"),
    [
        (BEFORE, [], ""),
        (cloud(guarantee=9, maximum=None), [], ""),
        (cloud(guarantee=6, maximum=6), [], ""),
        (cloud(order="easy", guarantee=8, maximum=8), ["2", "3", "4"], 'order = "easy" keeps no time for it'),
        (GONE, ["1", "2", "3", "4"], "hpc would be gone, and the lease with it"),
        (WEB, ["1", "2", "3", "4"], "hpc would be gone, and the lease with it"),
        (cloud(guarantee=0, maximum=5), ["3"], "hpc may then hold 5 hosts, and leases have 6 at that time"),
        (cloud(guarantee=3, maximum=8), ["2", "3", "4"], "3 hosts are then guaranteed to hpc, and leases have "),
        (cloud(guarantee=8, windows=("daily 08:00-18:00 maximum 3",)), ["2", "3", "4"], "hpc may then hold 3 hosts"),
    ],
    ids=["nothing", "more", "as many as they have", "order", "removed", "kind", "maximum", "guarantee", "window"],
)
def test_each_lease_that_would_not_be_kept_is_named(
    journal: Journal, after: CloudConfig, names: list[str], why: str
) -> None:
    found = journal.late(after)
    assert [line.split()[1] for line in found if why in line] == names
    assert [line for line in found if "would be gone" in line or line.split()[1] != "1"] == found


@pytest.mark.parametrize(("before", "after", "names"), [(6, 5, ["3"]), (5, 4, []), (5, 3, ["2", "4"])])
def test_what_was_too_much_before_is_not_this_configurations_doing(before: int, after: int, names: list[str]) -> None:
    found = filled(cloud(maximum=before)).late(cloud(maximum=after))
    assert [line.split()[1] for line in found] == names


def test_a_line_says_whose_it_is_and_when(journal: Journal) -> None:
    why = 'order = "fcfs" keeps no time for it: it would begin when there is room'
    expected = f"lease 2 of ann, from 2026-02-03T10:00:00Z to 2026-02-03T11:00:00Z: {why}"
    assert journal.late(cloud(order="fcfs"))[0] == expected


def test_where_no_times_are_kept_now_nothing_is_lost() -> None:
    journal = Journal(cloud(order="easy"))
    journal.lease("1", "10:00", "11:00")
    assert journal.late(GONE) == []


def test_what_is_over_or_cancelled_is_nobodys_and_what_is_extended_lasts_longer(journal: Journal) -> None:
    journal.write("admission", f.JobCancelled(job="2", user="ann"))
    journal.write(
        "scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.TIMEOUT, why=because.Walltime())
    )
    journal.write("admission", f.LeaseExtended(job="3", user="ann", walltime_s=2 * 3600.0))
    lines = journal.late(GONE)
    assert [line.split()[1] for line in lines] == ["3", "4"]
    assert "from 2026-02-03T10:30:00Z to 2026-02-03T12:30:00Z" in lines[0]
    journal.now = at("12:40")
    assert [line.split()[1] for line in journal.late(GONE)] == ["4"]
    for step in closing(journal.core.custody, "hpc"):
        journal.write(*step)
    assert journal.late(GONE) == []


def test_a_snapshot_knows_the_leases(journal: Journal) -> None:
    other = ProvisionerCore(journal.core.custody)
    other.load(journal.core.dump())
    assert other.late_leases(GONE, journal.now) == journal.core.late_leases(GONE, journal.now) != []


def test_the_flags_are_fields_of_the_request() -> None:
    plain: r.ConfigApply = r.decode("config.apply", msgspec.json.encode({"config": BEFORE}))
    assert (plain.accept_late_leases, plain.dry_run) == (False, False)
    asked = r.ConfigApply(config=BEFORE, accept_late_leases=True, dry_run=True)
    assert r.decode("config.apply", r.encode(asked)) == asked
