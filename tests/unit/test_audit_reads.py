"""Who may read the audit, and how `phoenix audit` tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from phoenix.cli import audit as command
from schemas import examples
from schemas.audit import AuditRecord
from services.monitor.http.audit_reads import YEAR_9999, AuditReads, Wanted, moment
from services.monitor.http.audit_routes import AuditRoutes
from tests.support.page import CLOUD, House, adopted, bearer


class Stream:
    """An AUDIT stream whose broker does not answer who subscribes; `test_admission_nats` reads a real one."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def stream_info(self, _name: str) -> Any:
        return SimpleNamespace(state=SimpleNamespace(last_seq=1))

    async def subscribe(self, subject: str, **_how: Any) -> Any:
        self.read.append(subject)
        raise TimeoutError


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
async def house(tmp_path: Path, stream: Stream) -> AsyncIterator[House]:
    house = House(tmp_path, more=lambda access: AuditRoutes(access, AuditReads(stream)).routes())  # type: ignore[arg-type]
    users = (*CLOUD.users, msgspec.structs.replace(CLOUD.users[0], name="mona", role="manager"))
    house.desk.play(adopted(msgspec.structs.replace(CLOUD, users=users)))
    house.write_tokens({f"t-{user.name}": user.name for user in users})
    await house.start()
    yield house
    await house.close()


@pytest.mark.parametrize(
    ("user", "query", "status"),
    [
        ("oscar", "", 503),  # allowed; the broker does not answer
        ("oscar", "?department=hpc&user=alice&kind=job.&outcome=refused&since=1970-01-01T00:00:05Z", 503),
        ("oscar", "?department=operators", 503),
        ("oscar", "?department=site", 503),
        ("oscar", "?department=hcp", 404),
        ("oscar", "?outcome=denied", 400),
        ("oscar", "?since=nan", 400),
        ("oscar", "?after=x", 400),
        ("mona", "", 503),
        ("mona", "?department=hpc", 503),
        ("mona", "?department=web", 403),
        ("mona", "?department=operators", 403),
        ("alice", "", 403),
        ("nobody", "", 401),
    ],
)
async def test_who_may_read_the_audit(house: House, user: str, query: str, status: int) -> None:
    assert await house.get(f"/v1/audit{query}", **bearer(user)) == status


async def test_a_manager_reads_the_departments_and_an_operator_everything(house: House, stream: Stream) -> None:
    for user, query in (
        ("mona", ""),
        ("oscar", ""),
        ("oscar", "?department=web&outcome=granted"),
        ("mona", "?since=1970-01-01T00:00:05Z"),
    ):
        await house.get(f"/v1/audit{query}", **bearer(user))
    assert stream.read == [
        "phoenix.audit.hpc.*",
        "phoenix.audit.*.*",
        "phoenix.audit.web.granted",
        "phoenix.audit.hpc.*",
    ]


@pytest.mark.parametrize(
    ("wanted", "subject"),
    [
        (Wanted(None), "phoenix.audit.*.*"),
        (Wanted("hpc"), "phoenix.audit.hpc.*"),
        (Wanted("hpc", "refused"), "phoenix.audit.hpc.refused"),
    ],
)
def test_only_what_is_wanted_for_is_read(wanted: Wanted, subject: str) -> None:
    assert wanted.subject == subject


def test_a_kind_is_one_or_all_of_a_noun() -> None:
    record = AuditRecord(at=7.0, kind="job.submit", outcome="granted", via="http", user="ann")
    takes = [Wanted(None, kind=kind).takes(record) for kind in ("", "job.submit", "job.", "job", "job.sub", "lease.")]
    assert takes == [True, True, True, False, False, False]
    assert [Wanted(None, since=since).takes(record) for since in (6.9, 7.0, 7.1)] == [True, True, False]
    assert [Wanted(None, user=user).takes(record) for user in ("ann", "an", "bob")] == [True, False, False]


def test_a_record_is_told_in_one_line() -> None:
    lines = [command.render(msgspec.to_builtins(record)) for record in examples.AUDIT.records]
    assert [line.split("  ", 1)[1] for line in lines] == [
        "ann (hpc user)  job.submit 17  from http 10.1.2.3: granted, position 1203",
        "ann (hpc user)  host.drain h1  from nats 10.1.2.3: refused (denied): only operators may drain hosts",
    ]
    many = AuditRecord(at=7.0, kind="POST /v1/jobs", outcome="refused", via="http", more=3, left_out=4, code="denied")
    assert command.render(msgspec.to_builtins(many)).split("  ", 1)[1] == (
        "(unknown)  POST /v1/jobs and 3 more  from http: refused (denied): ; 4 more refusals were not recorded"
    )


@pytest.mark.parametrize("since", [-1e14, -1.0, 1e12, 1e14])
def test_a_time_that_no_calendar_has_is_before_or_behind_everything(since: float) -> None:
    assert moment(since).timestamp() == (0.0 if since < 0 else YEAR_9999)
