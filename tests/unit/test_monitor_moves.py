"""The last that was decided of each host is kept for `why`, and no more of it than that."""

from __future__ import annotations

from schemas import facts as f
from services.monitor.core.host_history import STEPS_MAX
from tests.support.closing import closing
from tests.unit.test_custody_rules import granted
from tests.unit.test_monitor_core import ADOPTED, Desk


def test_of_a_host_its_last_steps_are_kept_until_it_is_removed() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"))
    for number in range(STEPS_MAX + 3):
        desk.play(("executor", f.HostQuarantined(host="h1", reason=f"{number}", until=1e9)))
    kept = desk.core.state.moves.hosts["h1"]
    assert [step.fact.reason for step in kept if isinstance(step.fact, f.HostQuarantined)] == [
        str(number) for number in range(3, STEPS_MAX + 3)
    ]
    desk.play(("scheduler.hpc", f.HostReleased(host="h1")), ("executor", f.HostCleared(host="h1")))
    desk.play(("executor", f.HostRemoved(host="h1")))
    assert desk.core.state.moves.hosts == {}


def test_demand_and_quota_of_a_department_are_kept_until_it_is_closed() -> None:
    desk = Desk().play(ADOPTED)
    for hosts in (1, 2):
        desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=hosts, instances=hosts)))
        desk.play(("provisioner", f.QuotaChanged(dept="web", hosts=hosts, by=0.0)))
    kept = desk.core.state.moves
    assert [step.fact.hosts for step in (kept.demands["web"], kept.quotas["web"])] == [2, 2]  # type: ignore[union-attr]
    desk.play(*closing(desk.core.custody, "web"))
    assert (kept.demands, kept.quotas) == ({}, {})
