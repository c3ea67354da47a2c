"""Leases in the read model: their states over time, what they used, and who may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas import facts as f
from schemas import reasons as because
from services.domain.text import sentence
from services.monitor.history import reads as history_reads
from services.monitor.parts import at_once
from tests.unit.test_custody_rules import Step, closed, granted, job, placed
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk
from tests.unit.test_monitor_http import House

LOCAL = f.Lease(kind="advance", start_at=100.0)


def lease(number: str = "1", kind: f.Lease = LOCAL, **fields: Any) -> Step:
    return job(number, lease=kind, nodes=1, cores=4, **{"walltime_s": 50.0, **fields})


def view(desk: Desk, now: float, name: str = "1") -> dict[str, Any]:
    found = desk.views.lease(name, now)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("steps", "now", "state", "ending"),
    [
        ([], 99.0, "reserved", None),
        ([], 101.0, "waiting", None),
        ([], 150.0, "ended", "missed"),
        ([placed()], 101.0, "running", None),
        ([placed(), BEGAN], 160.0, "running", None),
        ([placed(), BEGAN, closed(disposal=f.Disposal.SUSPEND)], 120.0, "suspended", None),
        ([placed(), BEGAN, closed(disposal=f.Disposal.STOPPED)], 120.0, "ended", "stopped"),
        ([("admission", f.JobCancelled(job="1", user="a"))], 20.0, "ended", "cancelled"),
    ],
)
def test_states_over_time(steps: list[Step], now: float, state: str, ending: str | None) -> None:
    desk = Desk().play(ADOPTED, *granted(), lease(), *steps)
    found = view(desk, now)
    assert (found["state"], found["ending"]) == (state, ending)
    listed = desk.views.leases(None, now)["leases"]
    assert [x["lease"] for x in listed] == ([] if state == "ended" else ["1"])
    assert desk.views.leases(None, now, ended=True)["leases"] == [found]
    assert desk.views.leases("web", now, ended=True)["leases"] == []


def test_one_that_waited_until_its_time_had_passed_was_missed() -> None:
    desk = Desk().play(ADOPTED, lease(kind=f.Lease(kind="advance", start_at=1.0), walltime_s=1.0))
    desk.play(("admission", f.JobCancelled(job="1", user="")))
    assert (view(desk, 9.0)["state"], view(desk, 9.0)["ending"]) == ("ended", "missed")


def test_a_late_lease_says_so() -> None:
    desk = Desk().play(ADOPTED, lease())
    assert [view(desk, now)["reason"]["code"] for now in (99.0, 101.0)] == ["lease_starts_at", "lease_late"]
    assert " late for want of room" in sentence(view(desk, 101.0)["reason"])
    assert view(desk, 150.0)["reason"]["code"] == "lease_over"


def test_only_who_made_way_has_made_way() -> None:
    ended = f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.REQUEUE, why=because.EndedVm())
    desk = Desk().play(ADOPTED, *granted(), lease(), placed(), BEGAN, ("scheduler.hpc", ended))
    assert view(desk, 120.0)["preempted"] == 0


def test_best_effort_has_no_times_and_waits() -> None:
    desk = Desk().play(ADOPTED, lease(kind=f.Lease(kind="best-effort"), best_effort=True), job("2"))
    found = view(desk, 50.0)
    assert (found["state"], found["start_at"], found["end_at"]) == ("waiting", None, None)
    assert desk.views.lease("2", 0.0) is None  # a job is none
    assert desk.views.lease("3", 0.0) is None


def test_a_lease_waits_for_its_time_and_for_nothing_else() -> None:
    desk = Desk().play(ADOPTED, lease(), lease("2", f.Lease(kind="best-effort")), lease("3", held=True))
    reasons = [row["reason"] for row in desk.queue()]
    slot = {"starts_at": "1970-01-01T00:01:40.000Z", "ends_at": "1970-01-01T00:02:30.000Z"}
    assert reasons[0] == {"code": "lease_starts_at", **slot}
    assert sentence(reasons[0]) == "its time is from 1970-01-01T00:01:40Z to 1970-01-01T00:02:30Z"
    assert [reason["code"] for reason in reasons[1:]] == ["queue", "held"]


def test_an_extension_is_seen_everywhere() -> None:
    desk = Desk().play(ADOPTED, lease())
    assert desk.queue()[0]["lease"]["end_at"] == "1970-01-01T00:02:30.000Z"
    desk.play(("admission", f.LeaseExtended(job="1", walltime_s=90.0, user="ann")))
    assert desk.queue()[0]["lease"]["end_at"] == view(desk, 5.0)["end_at"] == "1970-01-01T00:03:10.000Z"
    assert view(desk, 5.0)["core_s_reserved"] == 360.0
    line = orjson.loads(at_once(desk.views.queue(None, None, short=True)))["lines"][0]
    assert line[-1] == "advance"
    assert [entry.kind for entry in desk.publisher.ring if entry.department == "hpc"][-1] == "lease.extended"


def test_what_was_used_counts_from_placement_to_the_end_of_each_attempt() -> None:
    first = [*granted(), lease(gpus=2), placed(), BEGAN]  # each step is a second
    desk = Desk().play(ADOPTED, *first)
    begun = desk.custody.state.at
    assert (view(desk, begun)["gpu_s_used"], view(desk, begun)["gpu_s_reserved"]) == (2.0, 100.0)
    assert view(desk, begun)["core_s_used"] == 4.0  # placed a second before
    desk.play(closed())
    assert view(desk, begun + 100)["core_s_used"] == 8.0
    assert view(desk, begun + 100)["preempted"] == 1
    desk.play(placed(attempt=2))
    again = desk.custody.state.at
    assert view(desk, again + 10)["core_s_used"] == 8.0 + 40.0


async def test_the_history_knows_how_long_it_lasted(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "h.sqlite")
    desk.play(ADOPTED, lease(), ("admission", f.LeaseExtended(job="1", walltime_s=90.0)))
    assert desk.history is not None
    found = await desk.history.ask(history_reads.job, "1", 0)
    await desk.history.close()
    assert found is not None
    assert found["walltime_s"] == 90.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    house.desk.play(lease("7"))
    await house.client.start_server()
    yield house
    await house.client.close()
    assert house.desk.history is not None
    await house.desk.history.close()


async def test_who_may_see_them(house: House) -> None:
    paths = ("/v1/leases", "/v1/leases?all=1", "/v1/leases/7", "/v1/leases/99", "/v1/leases?department=hpc")
    answers = [[(await house.get(path, user))[0] for path in paths] for user in ("alice", "wendy", "oscar", "nobody")]
    assert answers == [[200, 200, 200, 404, 200], [200, 200, 404, 404, 403], [200, 200, 200, 404, 200], [401] * 5]
    listed = [orjson.loads((await house.get("/v1/leases?all=1", user))[1])["leases"] for user in ("alice", "wendy")]
    assert [len(leases) for leases in listed] == [1, 0]
    assert listed[0][0]["ending"] == "missed"  # its time was in 1970
    assert orjson.loads((await house.get("/v1/leases"))[1])["leases"] == []
