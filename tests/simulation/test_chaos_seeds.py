"""A hundred small clouds under every fault at once (`chaos`); and proof that they would notice if something were wrong.

A seed that fails prints the command that tells its story.  `make chaos SEEDS=100000` runs more of them, on all cores.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import partial

import msgspec
import pytest

from schemas.config import Lending
from services.domain.capabilities import ALL
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import order_multi_factor
from services.scheduler.core.policies.registry import ORDERS, VICTIMS
from tests.simulation.chaos import Chaos
from tests.simulation.chaos_mutants import MUTANTS
from tests.simulation.chaos_policies import Draw
from tests.simulation.chaos_run import live
from tests.support.world import World, batch, cloud

SEEDS = int(os.environ.get("PHOENIX_CHAOS_SEEDS", "100"))
STORIES = 30  # the first seeds, which are lived through with their stories
BLOCK = 25  # seeds of one test: a few seconds
WORDS = (
    *("is killed", "VOID", "host.lost", "host.seized", "requeue", "many grants", "partly void", "department.closed"),
    *("completed", "failed", "timeout", "cancelled", "stopped", "suspend"),
    *("lease stopped", "lease cancelled", "lease.extended", "instance.draining", "instance.reported"),
    *(
        "release.changed",
        "killed",
        "stale leader",
        "message sent twice",
        "message lost",
        "broker restarted",
        "clock set",
    ),
    *(
        "configuration changed",
        "host lost",
        "VM dies",
        "boot fails",
        "boot hangs",
        "deploy refused",
        "allocate refused",
    ),
    *("saved", "resumed", "next job", "exit 0 after SIGTERM", "ended_early"),
    *("answer lost: allocate", "answer lost: deploy", "call unanswered", "poll heard twice", "deaf guest", "stuck VM"),
)
TOLD = (
    "department.closed",
    "lease.extended",
    "instance.draining",
    "instance.reported",
    "release.changed",
)  # facts of the story
MUTANT_SEEDS = 100  # within which a mutant must be caught; most are within two
LATE = {  # where the search begins for those that most seeds do not notice: it only saves time
    "a unit is placed on hosts that are not held": 81,
    "the provisioner rests though something has happened": 18,
    "a removed department is not closed": 7,
    "exit 0 after SIGTERM is a success": 19,
    "nobody is seized, though a removed department's scheduler is gone": 85,
    "X3: an attempt starts beside its predecessor": 49,
    "X4: a VM that will not die is waited for": 36,
    "X6: what is ours and unknown is left": 4,
    "S9: a snapshot forgets which VMs must end": 21,
}

pytestmark = pytest.mark.timeout(300)


@pytest.mark.long
@pytest.mark.parametrize("first", range(STORIES, SEEDS, BLOCK))
def test_whatever_happens_nothing_runs_twice_and_everything_ends(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        Chaos(seed).run()


def test_a_department_that_is_back_before_it_was_closed_goes_on() -> None:
    """Admission had read only the configuration without it: closed for ever, what waited there never began."""
    Chaos(20156).run()


@pytest.mark.long
def test_the_stories_are_worth_something() -> None:
    """… and chaos reaches what it is about: every fault, late facts, zombies, requeues, and jobs that end in every way."""
    kinds: Counter[str] = Counter()
    for seed in range(STORIES):
        story: list[str] = []
        chaos = Chaos(seed, story.append)
        chaos.run()
        text = "\n".join(story)
        kinds.update(word for word in ("is killed", "VOID", "host.lost", "host.seized", "requeue") if word in text)
        kinds.update("many grants" for line in story if line.count("host.granted") > 1)
        kinds.update("partly void" for line in story if " VOID " in line and line.count(" VOID ") < line.count("("))
        kinds.update(host.lost or "" for host in chaos.truth.custody.state.hosts.values())
        kinds.update(unit.end or "" for unit in chaos.truth.custody.state.units.values())
        kinds.update(word for word in ALL if word in text)
        kinds.update(dict(chaos.faults))
        kinds.update(word for word in TOLD if word in text)
        units = chaos.truth.custody.state.units
        kinds.update(f"lease {units[lease].final}" for lease in chaos.people.slots if lease in units)
    for word in WORDS:
        assert kinds[word], f"{word}: {kinds}"
    print(kinds)


def test_draws_reach_every_order_and_every_order_of_victims() -> None:
    """… and each of the kinds of settings, within the seeds that are lived through."""
    configs = [config for seed in range(1, SEEDS, 2) for config in Draw(seed).configs]
    departments = [department for config in configs for department in config.departments]
    policies = [department.batch for department in departments if department.batch is not None]
    assert {policy.order for policy in policies} >= {*ORDERS, order_multi_factor.NAME}
    assert {policy.victims for policy in policies} >= set(VICTIMS)
    assert {policy.on_reclaim for policy in policies} == {"requeue", "suspend", "migrate", "kill"}
    assert {department.web.rule for department in departments if department.web is not None} >= {
        "threshold",
        "target-tracking",
    }
    assert any(config.lending for config in configs)
    assert any(config.capabilities for config in configs)
    for name in ("limits", "quality", "min_run_s", "preemptions_max", "preemptions_per_hour_max"):
        assert len({repr(getattr(policy, name)) for policy in policies}) > 1, name


def test_a_failing_seed_prints_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chaos, "verify", lambda chaos: (_ for _ in ()).throw(chaos.wrong("nothing, this is a test")))
    wrong = live(3).wrong
    assert re.search(r"reproduce: git checkout [0-9a-f]{40} && make chaos SEEDS=1 FIRST=3", wrong) or "COMMIT" in wrong


def test_the_same_seed_tells_the_same_story() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        Chaos(7, story.append).run()
    assert stories[0] == stories[1]


# --------------------------------------------------------------------------------------------------------------- mutants


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, wrong in MUTANTS[mutant]:
        monkeypatch.setattr(owner, name, wrong)
    seeds = ((LATE.get(mutant, 0) + n) % MUTANT_SEEDS for n in range(MUTANT_SEEDS))
    caught = next((wrong for wrong in map(_lives_and_fails, seeds) if wrong is not None), None)
    print(str(caught)[:300])
    assert caught is not None, f"{MUTANT_SEEDS} seeds do not notice that {mutant}"
    assert not isinstance(caught, NameError | TypeError | AttributeError), "the mutant itself is broken"


def _lives_and_fails(seed: int) -> Exception | None:
    try:
        Chaos(seed).run()
    except Exception as wrong:  # `Wrong`, or a core that stumbles over what cannot be
        return wrong
    return None


# --------------------------------------------------------------------------------------------- what chaos has found so far


@pytest.mark.parametrize("lent", [(), (Lending(lender="hpc", borrower="bio"), Lending(lender="bio", borrower="hpc"))])
@pytest.mark.parametrize("free", [4, 5])
def test_wide_jobs_of_two_departments_do_not_share_the_hosts_for_ever(free: int, lent: tuple[Lending, ...]) -> None:
    """Each job needs more than half: by weight each department would hold a half, idle, for ever.  So it would where hosts are
    each department's own, and it has them back when it wants them (seed 53)."""
    world = World(msgspec.structs.replace(cloud(batch("bio"), batch("hpc")), lending=lent))
    for name in ("bio", "hpc"):
        world.seat(f"scheduler.{name}", partial(BatchCore, dept=name))
    world.seat("provisioner", ProvisionerCore)
    world.executor()
    world.guests(run_s=5.0)
    jobs = [world.submit(dept, nodes=3, cores=4) for dept in ("bio", "hpc", "bio", "hpc")]
    world.hosts(free)
    world.advance(300.0)
    assert [world.unit(job).final for job in jobs] == ["completed"] * 4
