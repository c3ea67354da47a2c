"""The timeline: points are exact means, at every resolution, bounded, and the same from a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.monitor.core import series
from services.monitor.core.monitor import MonitorCore
from services.monitor.core.series import STEPS

T0 = 1_750_000_000.0 // 600 * 600  # a whole step of every resolution
CONFIG = CloudConfig(
    name="c",
    departments=(
        Department(name="hpc", kind="batch", batch=BatchPolicy()),
        Department(name="web", kind="web", web=WebPolicy()),
    ),
)


class Fold:
    """Facts at times of the test's choice (seconds after T0).  `wanted`: instances, before there are hosts."""

    def __init__(self, hosts_at: float = 0, wanted: int = 0) -> None:
        self.custody = Custody()
        self.core = MonitorCore(self.custody)
        self.position = 0
        self.at(0, "provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CONFIG))
        if wanted:
            self.at(0, "scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=wanted))
        for name in ("h1", "h2"):
            self.at(hosts_at, "executor", f.HostDescribed(host=name, one_id=1, cores=4, memory_mb=1024))
            self.at(hosts_at, "executor", f.HostCleared(host=name))

    def at(self, seconds: float, writer: str, fact: f.Fact) -> None:
        self.position += 1
        void = fold_fact(self.custody, fact, self.position, 0, writer, T0 + seconds)
        broken = tuple(self.custody.newly_broken)
        meta = Meta(position=self.position, index=0, writer=writer, at=T0 + seconds, void=void, broken=broken)
        self.core.apply(fact, meta)
        assert void is None
        assert self.core.check() == []

    def grant(self, seconds: float, host: str = "h1", dept: str = "hpc") -> None:
        self.at(seconds, "provisioner", f.HostGranted(host=host, dept=dept))

    def hear(self, seconds: float, utilisation: float | None, requests_per_s: float | None = None) -> None:
        end = T0 + seconds
        fact = f.LoadObserved(
            dept="web", start=end - 1, end=end, samples=1, utilisation=utilisation, requests_per_s=requests_per_s
        )
        self.at(seconds, "scheduler.web", fact)

    def timeline(self, since: float, now: float, points: int = 2016) -> dict[str, Any]:
        return self.core.series.timeline(T0 + since, points, T0 + now)


def test_before_the_first_step_is_over_there_is_no_point_and_no_failure() -> None:
    found = Fold().timeline(-3600, 2)
    assert found["at"] == []
    assert all(column == [] for column in found["owners"].values())


def test_the_first_point_is_of_what_was_there_not_of_the_time_before() -> None:
    fold = Fold(hosts_at=3)
    fold.at(3, "scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=4))
    found = fold.timeline(0, 10)
    assert found["owners"] == {"(free)": [2.0, 2.0]}
    assert found["load"]["web"]["wanted"] == [4.0, 4.0]


def test_what_was_wanted_before_there_were_hosts_counts_from_the_first_host_on() -> None:
    fold = Fold(hosts_at=7, wanted=4)
    found = fold.timeline(0, 15)
    assert found["at"] == [T0 + 10, T0 + 15]
    assert (found["owners"], found["load"]["web"]["wanted"]) == ({"(free)": [2.0, 2.0]}, [4.0, 4.0])


def test_a_point_is_the_mean_of_its_step() -> None:
    fold = Fold()
    fold.grant(6)  # held for 4 of the 5 seconds of the second step
    found = fold.timeline(0, 15)
    assert found["step_s"] == 5
    assert found["at"] == [T0 + 5, T0 + 10, T0 + 15]
    assert found["owners"] == {"(free)": [2.0, 1.2, 1.0], "hpc": [0.0, 0.8, 1.0]}


def test_owners_of_a_step_add_up_to_the_hosts() -> None:
    fold = Fold()
    for i in range(40):
        fold.grant(i * 3 + 1, "h1", "hpc")
        fold.at(i * 3 + 2, "scheduler.hpc", f.HostReleased(host="h1"))
        fold.at(i * 3 + 3, "executor", f.HostCleared(host="h1"))
    for now, points in ((120, 2016), (121, 7), (125, 1)):
        owners = fold.timeline(0, now, points)["owners"]
        assert all(sum(values) == pytest.approx(2, abs=0.003) for values in zip(*owners.values(), strict=True))


def test_of_a_step_in_which_nobody_said_anything_nothing_is_known() -> None:
    fold = Fold()
    fold.hear(0, 0.5, 100.0)
    fold.hear(2.5, 1.0)  # … and nothing of requests, whose word counts on
    load = fold.timeline(0, 30)["load"]["web"]
    assert load["utilisation"] == [0.75, 1.0, 1.0, None, None, None]  # 10 s after the last word
    assert load["requests_per_s"] == [100.0, 100.0, None, None, None, None]
    assert load["wanted"] == [0.0] * 6


def test_no_load_is_told_as_zero_not_as_unknown() -> None:
    fold = Fold()
    fold.hear(0, 0.0)
    assert fold.timeline(0, 5)["load"]["web"]["utilisation"] == [0.0]


def test_wanted_and_serving_instances_are_told() -> None:
    fold = Fold()
    fold.grant(0, "h1", "web")
    fold.at(0, "scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=3))
    fold.at(0, "scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=1))
    fold.at(5, "admission", f.AttemptBegan(unit="web.1", attempt=1))
    load = fold.timeline(0, 10)["load"]["web"]
    assert (load["wanted"], load["serving"]) == ([3.0, 3.0], [0.0, 1.0])


@pytest.mark.parametrize(
    ("back_s", "step_s"), [(60, 5), (3600, 5), (3601, 60), (86_400, 60), (86_401, 600), (9_000_000, 600)]
)
def test_the_finest_resolution_that_reaches_back_is_told(back_s: float, step_s: float) -> None:
    fold = Fold()
    now = STEPS[-1][0] / 1000 * STEPS[-1][1]
    fold.grant(now)
    assert fold.timeline(now - back_s, now)["step_s"] == step_s


def test_points_are_bounded_and_old_ones_forgotten() -> None:
    fold = Fold()
    fold.grant(1)
    for i in range(1, 4):
        fold.grant(i * 3600.0, "h2") if i == 1 else fold.hear(i * 3600.0, 0.1)
    for (step, most), tier in zip(STEPS, fold.core.state.series.tiers, strict=True):
        assert tier.length == min(most, round(3 * 3600_000 / step))
        assert tier.end == round((T0 + 3 * 3600) * 1000)
    assert fold.timeline(0, 3 * 3600)["owners"]["hpc"][-1] == 2.0
    assert len(fold.timeline(2 * 3600, 3 * 3600)["at"]) == 720


def test_fewer_points_are_means_of_neighbours_that_stay_together() -> None:
    fold = Fold()
    fold.grant(5)
    four = fold.timeline(0, 20, points=2)
    assert four["step_s"] == 10
    assert four["at"] == [T0 + 10, T0 + 20]
    assert four["owners"]["hpc"] == [0.5, 1.0]
    five = fold.timeline(0, 25, points=3)  # the group of the first two points is the same as before
    assert (five["at"][:2], five["owners"]["hpc"][:2]) == (four["at"], [0.5, 1.0])


def test_asking_changes_nothing() -> None:
    fold = Fold()
    fold.grant(6)
    before = fold.core.dump()
    fold.timeline(0, 1_000_000)
    fold.core.series.newest(T0 + 500)
    assert fold.core.dump() == before


def test_a_long_silence_costs_no_more_than_what_is_kept() -> None:
    fold = Fold()
    fold.grant(1)
    fold.grant(40 * 86_400.0, "h2")  # nobody wrote for forty days
    for (_, most), tier in zip(STEPS, fold.core.state.series.tiers, strict=True):
        assert tier.length == most
    found = fold.timeline(40 * 86_400 - 100, 40 * 86_400 + 5)
    assert set(found["owners"]["hpc"][:-1]) == {1.0}
    assert found["owners"]["hpc"][-1] == 2.0


def test_what_is_gone_for_two_weeks_is_forgotten() -> None:
    fold = Fold()
    fold.grant(1)
    fold.at(2, "scheduler.hpc", f.HostReleased(host="h1"))
    fold.at(3, "executor", f.HostCleared(host="h1"))
    fold.hear(3, 0.5)
    for day in range(1, 15):
        fold.grant(day * 86_400.0, "h2", "web") if day == 1 else fold.at(
            day * 86_400.0, "scheduler.web", f.DemandChanged(dept="web", hosts=day, instances=day)
        )
    assert "owner/hpc" in fold.core.state.series.gauges
    fold.at(14 * 86_400.0 + 1200, "scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1))
    state = fold.core.state.series
    assert not [key for key in ("owner/hpc", "utilisation/web") if key in state.gauges]
    assert not [key for tier in state.tiers for key in tier.marks if key == "owner/hpc"]
    fold.grant(14 * 86_400.0 + 1200)
    assert fold.timeline(14 * 86_400 + 1200, 14 * 86_400 + 1205)["owners"]["hpc"] == [1.0]


def steps() -> Iterator[tuple[float, f.Fact, str]]:
    yield 1, f.HostGranted(host="h1", dept="hpc"), "provisioner"
    yield 7, f.HostReleased(host="h1"), "scheduler.hpc"
    yield 64, f.HostCleared(host="h1"), "executor"
    yield 700, f.HostGranted(host="h1", dept="web"), "provisioner"


def test_from_a_snapshot_the_same_points_follow() -> None:
    one, two = Fold(), Fold()
    for seconds, fact, writer in steps():
        one.at(seconds, writer, fact)
        two.at(seconds, writer, fact)
        two.core.load(two.core.dump())
    assert one.core.dump() == two.core.dump()
    assert one.timeline(0, 1300) == two.timeline(0, 1300)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one.core.state.series), type=series.State)
