"""Accounting and limits where something begins or ends: hours, silence, windows, departments, configurations."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import BatchLimits, BatchPolicy, CloudConfig, Department
from services.domain.custody.rules import RULES
from services.monitor.core.accounting import SILENCE_MAX_MS, Accounting
from services.monitor.core.buckets import DAY_MS, HOUR_MS
from tests.support.world import batch, web
from tests.unit.test_custody_rules import QUOTA_0, Step, granted, host, job, placed
from tests.unit.test_monitor_core import ADOPTED, Desk
from tests.unit.test_monitor_levels import level
from tests.unit.test_usage import NOON, Office

NOON_MS = round(NOON * 1000)


def accounting(office: Office) -> Accounting:
    found = office.world.seats["monitor"].core.accounting
    assert isinstance(found, Accounting)
    return found


def adopted(*departments: Department) -> Step:
    config = CloudConfig(name="c", departments=departments)
    return "provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config)


def limited(cores_max: int | None) -> Step:
    policy = BatchPolicy(limits=BatchLimits(cores_max=cores_max))
    return adopted(Department(name="hpc", kind="batch", batch=policy))


# ------------------------------------------------------------------------------------------------------------------ hours


def test_what_comes_after_a_fact_on_the_full_hour_belongs_to_the_same_hour() -> None:
    office = Office()
    assert accounting(office).state.book.today == NOON_MS // DAY_MS
    assert accounting(office).state.at == NOON_MS  # a full hour
    office.world.submit()
    office.world.now += 1
    office.world.submit()
    assert accounting(office).news.hours == []
    assert accounting(office).state.book.kept == {}


@pytest.mark.parametrize(("more_ms", "buckets"), [(0, 60 * 24), (HOUR_MS, 58 + 2 * 24 + 14)])
def test_a_silence_that_is_too_long_is_measured_by_the_day_and_the_hour_before_as_it_was(
    more_ms: int, buckets: int
) -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    office.world.now += 3600
    office.world.submit()
    office.world.submit()  # of the hour that is told when the silence is over
    office.world.now += (SILENCE_MAX_MS + more_ms) / 1000
    office.world.submit()
    before, silence = accounting(office).news.hours
    assert list(before.kept) == [NOON_MS + HOUR_MS]
    assert len(silence.kept) == buckets
    assert sum(bucket.spans["hpc"].held for bucket in silence.kept.values()) == SILENCE_MAX_MS + more_ms


def test_hosts_are_counted_from_the_first_hour_there_is() -> None:
    desk = Desk().play(ADOPTED, *host("h1"), *host("h2"))  # a second each: it ends at 5 s
    assert desk.core.accounting.state.fresh.kept[0].site.hosts == 3000 + 1000


# -------------------------------------------------------------------------------------------------- windows, departments


@pytest.mark.parametrize(("after_s", "own"), [(-1.0, 4), (0.0, 2), (1799.0, 2), (1800.0, 4)])
def test_a_configuration_says_whose_hosts_are_from_the_moment_of_its_adoption(after_s: float, own: int) -> None:
    """Web owns two of four hosts from 12:30 to 13:00."""
    office = Office(batch("hpc"), web("web"))
    windowed = Department(name="web", kind="web", web=web().web, windows=("daily 12:30-13:00 guarantee 2",))
    office.world.now += 1800 + after_s
    config = CloudConfig(name="test", departments=(batch("hpc"), windowed))
    office.world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=1, config=config))
    assert accounting(office).state.levels["hpc"].own == own


def test_a_quota_may_come_before_anything_is_known_of_the_department() -> None:
    assert level(Desk().play(QUOTA_0)) == {}


def test_a_department_that_leaves_the_configuration_has_no_hosts_of_its_own() -> None:
    desk = Desk().play(ADOPTED, *granted())
    assert level(desk)["own"] == 1
    desk.play(adopted(Department(name="bio", kind="batch", batch=BatchPolicy())))
    assert "own" not in level(desk)
    assert level(desk, "bio")["own"] == 1


# ----------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("before", "after"), [(None, 6), (6, None), (6, 5)])
def test_with_another_configuration_all_that_had_or_have_a_limit_are_told_anew(
    before: int | None, after: int | None
) -> None:
    desk = Desk().play(limited(before), *granted(), job("1"), job("2", cores=5), placed("1"))
    causes, waiting = desk.core.causes, desk.core.causes.jobs["2"]
    causes.restated()
    desk.play(limited(after))
    assert (causes.limited.of(waiting) is None) == (after != 5)
    assert sorted(causes.limited.moved_jobs()) == ["1", "2"]
    assert causes.limited.moved_jobs() == {}
    desk.play(limited(4))
    assert sorted(causes.limited.moved_jobs()) == ["1", "2"]


def test_without_an_open_attempt_too_all_that_have_a_limit_are_told_anew() -> None:
    desk = Desk().play(limited(None), *granted(), job("1", cores=5))
    desk.core.causes.restated()
    desk.play(limited(4))
    assert desk.core.causes.restated() == ["1"]
