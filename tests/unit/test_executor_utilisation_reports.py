"""What hosts really use becomes a fact seldom: when it has been in another band for a minute and two samples."""

from __future__ import annotations

import itertools
from itertools import pairwise

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance, BatchPolicy, CloudConfig, Department
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.executor.core.calls import Sample
from services.executor.core.ledger import Ledger
from services.executor.core.utilisation_reports import DEFAULTS, HOLD_S, UtilisationReports, edges
from tests.support.executor_bench import Bench, held

STEP_S = 20.0  # between two samples here


class Site:
    """A bench whose hosts have 4 cores and 4 GiB, sampled every STEP_S."""

    def __init__(self, *hosts: str, step_s: float = STEP_S) -> None:
        self.step_s = step_s
        self.bench: Bench = held(*hosts)
        self.stamps = itertools.count(1000, 20)

    def sample(self, *cpu: float, times: int = 1, fresh: bool = True) -> list[tuple[str, float]]:
        """Each host in turn uses so much of its cores; what the executor has told by then."""
        for _ in range(times):
            self.bench.now += self.step_s
            stamp = next(self.stamps) if fresh else 1000
            ids = [self.bench.host(name).one_id for name in self.bench.hosts]
            cores = self.bench.host(next(iter(self.bench.hosts))).size.cores
            self.bench.samples = {
                number: Sample(stamp, round(use * 100 * cores), 1024 * 1024)
                for number, use in zip(ids, cpu, strict=False)
            }
            self.bench.see_hosts()
            self.bench.settle()
        return self.told()

    def told(self) -> list[tuple[str, float]]:
        return [(fact.host, fact.cpu) for fact in self.bench.written if isinstance(fact, f.HostObserved)]


def test_a_lasting_band_is_told_once() -> None:
    site = Site("h0")
    assert site.sample(0.9, times=3) == []
    assert site.sample(0.9) == [("h0", 0.9)]
    assert site.sample(0.8, times=10) == [("h0", 0.9)]
    assert site.sample(0.3, times=2) == [("h0", 0.9)]
    assert site.sample(0.3) == [("h0", 0.9), ("h0", 0.3)]


def test_what_comes_and_goes_is_not_told() -> None:
    site = Site("h0")
    site.sample(0.1, times=4)
    for _ in range(5):
        site.sample(0.9)
        site.sample(0.1, times=2)
    assert site.told() == [("h0", 0.1)]


def test_a_host_that_swings_around_an_edge_is_told_all_the_same_and_once() -> None:
    """As a busy one does: each sample says what a few seconds were like."""
    site = Site("h0")
    for use in (0.31, 0.22, 0.28, 0.2, 0.33, 0.24, 0.26, 0.19, 0.3, 0.23) * 6:
        site.sample(use)
    assert len(site.told()) == 1
    assert 0.2 < site.told()[0][1] < 0.32


def test_a_host_that_goes_slowly_back_and_forth_over_an_edge_is_told_once() -> None:
    site = Site("h0")
    for _ in range(4):
        site.sample(0.26, times=6)
        site.sample(0.24, times=6)
    assert len(site.told()) == 1


def test_a_host_is_told_once_a_minute_at_most() -> None:
    site = Site("h0", step_s=5.0)
    told_at: list[float] = []
    for place in range(120):
        count = len(site.told())
        if len(site.sample(0.1 if place // 8 % 2 else 0.9)) > count:
            told_at.append(site.bench.now)
    assert len(told_at) > 3
    assert all(later - earlier >= HOLD_S for earlier, later in pairwise(told_at))


def test_of_two_samples_a_minute_both_have_to_say_it() -> None:
    site = Site("h0")
    site.sample(0.1, times=4)
    for use in (0.9, 0.1, 0.9, 0.1):
        site.bench.now += 120.0
        site.sample(use)
    assert site.told() == [("h0", 0.1)]
    site.bench.now += 120.0
    site.sample(0.9)
    site.bench.now += 120.0
    assert site.sample(0.9)[1:] == [("h0", 0.9)]


@pytest.mark.parametrize(
    "use", [*DEFAULTS, *(edge - 0.0004 for edge in DEFAULTS), *(edge + 0.0004 for edge in DEFAULTS)]
)
def test_a_host_at_an_edge_is_told_once(use: float) -> None:
    assert len(Site("h0").sample(use, times=20)) == 1


@pytest.mark.parametrize("use", [0.74984, 0.75016, 0.24984, 0.6004])
def test_a_large_host_at_an_edge_is_told_once(use: float) -> None:
    """What is told is rounded; the band is that of what is told."""
    bands, custody = UtilisationReports(Ledger(Custody())), f.HostDescribed(host="h0", one_id=0, cores=64, memory_mb=1)
    fold_fact(bands.ledger.custody, custody, 1, 0, "executor", 0.0)
    told = []
    for stamp in range(20):
        if bands.sampled("h0", use, 0.1, stamp, 60.0 * stamp):
            fact = bands.fact("h0", 60.0 * stamp)
            assert fact is not None
            bands.ledger.apply(fact, Meta(position=2, index=0, writer="executor", at=60.0 * stamp))
            told.append(fact)
    assert [fact.cpu for fact in told] == [round(use, 3)]


def test_one_sample_seen_again_and_again_is_one() -> None:
    assert Site("h0").sample(0.9, times=10, fresh=False) == []


def test_after_a_move_both_hosts_are_told_anew_from_samples_of_later() -> None:
    site = Site("h0", "h1", "h2")
    site.sample(0.9, 0.1, 0.1, times=8)
    assert len(site.told()) == 3
    bench = site.bench
    bench.run("1", "h0")
    bench.write(
        "scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.MIGRATE, why=because.Balanced())
    )
    came, size = because.Balanced(from_hosts=["h0"]), {"cores": 1, "memory_mb": 256}
    moved = f.UnitPlaced(unit="1", attempt=2, hosts=("h1",), **size, moved_from=("h0",), reason=came)
    bench.write("scheduler.hpc", moved)
    assert set(bench.core.ledger.state.told) == {"h2"}
    site.sample(0.9, 0.1, 0.1, times=3)
    assert len(site.told()) == 3
    assert site.sample(0.9, 0.1, 0.1)[3:] == [("h0", 0.9), ("h1", 0.1)]


def test_a_new_leader_tells_nothing_twice() -> None:
    site = Site("h0")
    site.sample(0.9, times=4)
    site.bench.core.load(site.bench.core.dump())
    site.bench.core.take_over(site.bench.now)
    assert len(site.sample(0.9, times=10)) == 1
    assert site.sample(0.1, times=4)[1:] == [("h0", 0.1)]


def test_a_host_that_was_lost_and_cleared_is_told_anew() -> None:
    site = Site("h0")
    site.sample(0.9, times=4)
    site.bench.write("executor", f.HostLost(host="h0", reason="test"))
    assert site.bench.core.ledger.state.told == {}


def test_edges_are_the_settings_of_those_who_balance() -> None:
    def cloud(balance: Balance) -> CloudConfig:
        return CloudConfig(
            name="x", departments=(Department(name="hpc", kind="batch", batch=BatchPolicy(balance=balance)),)
        )

    assert edges(None) == edges(cloud(Balance(high=0.9))) == DEFAULTS
    assert edges(cloud(Balance(enabled=True, high=0.9, low=0.1))) == (0.1, *DEFAULTS, 0.9)
    assert HOLD_S == 60.0


def test_what_is_told_is_part_of_a_snapshot() -> None:
    site = Site("h0")
    site.sample(0.9, times=4)
    state = msgspec.msgpack.decode(site.bench.core.dump())
    assert state["told"] == {"h0": 0.9}


class Told:
    """Samples of h0, each later than the one before by half of the time that they must span."""

    def __init__(self) -> None:
        self.utilisation = UtilisationReports(Ledger(Custody()))
        custody = self.utilisation.ledger.custody
        fold_fact(custody, f.HostDescribed(host="h0", one_id=0, cores=64, memory_mb=1), 1, 0, "executor", 0.0)
        self.now = 0.0

    def sample(self, *cpu: float) -> f.HostObserved | None:
        fact = None
        for use in cpu:
            self.now += HOLD_S / 2
            self.utilisation.sampled("h0", use, use / 2, int(self.now), self.now)
            fact = self.utilisation.fact("h0", self.now)
        return fact

    def tell(self, *cpu: float) -> float | None:
        """What is told is folded."""
        fact = self.sample(*cpu)
        if fact is not None:
            self.utilisation.ledger.apply(fact, Meta(position=2, index=0, writer="executor", at=self.now))
        return None if fact is None else fact.cpu


def test_what_is_told_is_rounded_whatever_was_told_before() -> None:
    told = Told()
    assert told.tell(0.12345, 0.12345, 0.12345) == 0.123
    assert told.tell(0.98765, 0.98765, 0.98765) == 0.988
    assert told.tell(0.12345, 0.12345, 0.12345) == 0.123
    assert told.sample(0.98765, 0.98765, 0.98765) == f.HostObserved(host="h0", cpu=0.988, memory=0.494)


def test_crossing_one_edge_is_enough_either_way() -> None:
    told = Told()
    assert [told.tell(use, use, use) for use in (0.4, 0.65, 0.4, 0.45)] == [0.4, 0.65, 0.4, None]


def test_of_a_host_that_is_gone_and_comes_back_nothing_is_known() -> None:
    told = Told()
    told.sample(0.9, 0.9)
    told.utilisation.forget("h0")
    told.utilisation.forget("h0")
    assert told.sample(0.9, 0.9) is None
    assert told.sample(0.9) is not None
