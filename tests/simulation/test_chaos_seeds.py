"""Hundreds of small clouds under every fault at once (`chaos`); and proof that they would notice if something were wrong.

A seed that fails prints the command that tells its story.  PHOENIX_CHAOS_SEEDS=5000 runs more of them.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.custody import Custody
from schemas.meta import Void
from services.executor.core import ExecutorCore
from services.executor.hosts import HostDesk
from services.executor.ledger import Ledger, LedgerState
from services.provisioner.core import ProvisionerCore
from services.scheduler.batch import BatchCore
from services.scheduler.limits import Limits
from tests.simulation.chaos import Chaos
from tests.support.world import World, batch, cloud

SEEDS = int(os.environ.get("PHOENIX_CHAOS_SEEDS", "200"))
BLOCK = 25  # seeds of one test: a few seconds
MUTANT_SEEDS = 60  # within which a mutant must be caught; most are within ten

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_whatever_happens_nothing_runs_twice_and_everything_ends(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        Chaos(seed).run()


def test_the_stories_are_worth_something() -> None:
    """Chaos reaches what it is about: late facts, zombies, requeues, lost hosts, and jobs that end in every way."""
    kinds: Counter[str] = Counter()
    for seed in range(30):
        story: list[str] = []
        chaos = Chaos(seed, story.append)
        chaos.run()
        text = "\n".join(story)
        kinds.update(word for word in ("is killed", "VOID", "host.lost", "host.seized", "requeue") if word in text)
        kinds.update(unit.final or "" for unit in chaos.truth.custody.state.units.values())
    for word in ("is killed", "VOID", "host.lost", "requeue", "completed", "failed", "timeout", "cancelled", "stopped"):
        assert kinds[word], f"{word}: {kinds}"


def test_the_same_seed_tells_the_same_story() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        Chaos(7, story.append).run()
    assert stories[0] == stories[1]


# --------------------------------------------------------------------------------------------------------------- mutants


def _forgets_what_is_doomed(core: ExecutorCore) -> bytes:
    return msgspec.msgpack.encode(LedgerState(rooms=core.ledger.state.rooms))


def _seizes_within_quota(custody: Custody, fact: f.HostSeized, _writer: str) -> Void | None:
    return custody._not_held(fact.host, fact.dept)


def _clears_at_once(_desk: HostDesk, host: Any, _now: float) -> list[f.Fact]:
    return [f.HostCleared(host=host.name)]


def _seizes_what_is_not_due(core: ProvisionerCore, name: str, _now: float) -> list[f.Fact]:
    return [f.HostSeized(host=host, dept=name) for host in list(core.custody.index.held.get(name, ()))[:1]]


_closings = BatchCore._closings


def _forgets_broken_attempts(core: BatchCore, now: float) -> list[f.AttemptClosed]:
    broken = core.custody.index.broken.get(core.dept, {})
    return [fact for fact in _closings(core, now) if fact.unit not in broken]


MUTANTS: dict[str, list[tuple[type, str, Any]]] = {
    "a unit is placed on hosts that are not held": [(Custody, "_no_place", lambda *_: None)],
    "a department is seized within its quota": [
        (Custody, "_void_host_seized", _seizes_within_quota),
        (ProvisionerCore, "_seize", _seizes_what_is_not_due),
    ],
    "a host is cleared before its VMs are gone": [(HostDesk, "_clear", _clears_at_once)],
    "an attempt starts beside its predecessor": [(Ledger, "older_open", lambda *_: False)],
    "a victim is forgotten": [(BatchCore, "_closings", _forgets_broken_attempts)],
    "walltime is ignored": [(Limits, "overdue", lambda *_: [])],
    "a snapshot forgets which VMs must end": [(ExecutorCore, "dump", _forgets_what_is_doomed)],
    "the broker does not fence": [(Chaos, "fenced", False)],
    "wide jobs of two departments share the idle hosts": [(ProvisionerCore, "_first", lambda *_: "")],
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, wrong in MUTANTS[mutant]:
        monkeypatch.setattr(owner, name, wrong)
    for seed in range(MUTANT_SEEDS):
        try:
            Chaos(seed).run()
        except Exception as caught:  # `Wrong`, or a core that stumbles over what cannot be
            print(f"seed {seed}: {str(caught)[:200]}")
            return
    raise AssertionError(f"{MUTANT_SEEDS} seeds do not notice that {mutant}")


# --------------------------------------------------------------------------------------------- what chaos has found so far


@pytest.mark.parametrize("free", [4, 5])
def test_wide_jobs_of_two_departments_do_not_share_the_hosts_for_ever(free: int) -> None:
    """Each job needs more than half: by weight each department would hold a half, idle, for ever."""
    world = World(cloud(batch("bio"), batch("hpc")))
    for name in ("bio", "hpc"):
        world.seat(f"scheduler.{name}", partial(BatchCore, dept=name))
    world.seat("provisioner", ProvisionerCore)
    world.executor()
    world.guests(run_s=5.0)
    jobs = [world.submit(dept, nodes=3, cores=4) for dept in ("bio", "hpc", "bio", "hpc")]
    world.hosts(free)
    world.advance(300.0)
    assert [world.unit(job).final for job in jobs] == ["completed"] * 4
