"""Small worlds in the test command: every order of events on the real cores; and proof that a broken rule is found there.

`make worlds` explores the larger ones, and those of `BEGUN` beyond their first steps.
"""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from services.domain.custody import effects, fold, preconditions
from services.executor.core.host_reconciler import HostReconciler
from services.executor.core.ledger import Ledger
from services.provisioner.core.provisioner import ProvisionerCore, Said
from services.scheduler.core.batch.close_ended import CloseEnded
from tests.simulation.worlds import Setting, World, setting
from tests.simulation.worlds_explore import ONE, SMALL, WORLDS, Search
from tests.simulation.worlds_lands import Violation
from tests.support.mutants import without_precondition

SECONDS_MAX = 220.0  # each takes some ten on a machine that does nothing else; the watchdog of a test has 240
# Every order of so many first steps; all of them in `make worlds`.
BEGUN = {"1-crash": 25, "p2-two-batch": 20, "p2-serving-spike": 18}
LEAST_STATES = 5000  # fewer would mean that an action is never possible any more


@pytest.mark.parametrize("name", [pytest.param("1-spike", marks=pytest.mark.long), "2-cancel"])
def test_every_order_is_safe_and_ends(name: str) -> None:
    search = Search(World(WORLDS[name]), stories=False)
    whole = search.run(SECONDS_MAX)
    print(f"{name}: {search.report(0.0)}")
    assert whole
    assert len(search.seen) > LEAST_STATES


@pytest.mark.long
@pytest.mark.parametrize("name", BEGUN)
def test_every_order_of_the_first_steps_is_safe_and_can_end(name: str) -> None:
    search = Search(World(WORLDS[name]), stories=False)
    search.run(SECONDS_MAX, depth=BEGUN[name])
    print(f"{name}: {search.report(0.0)}")
    assert search.depth == BEGUN[name]
    assert len(search.seen) > LEAST_STATES


def test_who_reads_late_reaches_what_the_prompt_one_reaches() -> None:
    """D5: whatever the journal may say in a prompt world it may say in the other, too."""
    journals = []
    for prompt in (True, False):
        search = Search(World(setting(1, ONE, web=None, cancel=1, prompt=prompt)), stories=False)
        assert search.run(SECONDS_MAX)
        lands = [search.world.lands[number] for number in {state.land for state in search.seen}]
        journals.append({(land.custody, land.cores) for land in lands})
    assert journals[0] <= journals[1]
    assert len(journals[0]) > 10


def test_the_crash_of_a_service_is_a_decision_never_taken() -> None:
    """D2: to drop an envelope that was drafted leads to no state that is not reached otherwise."""
    search = Search(World(setting(1, ONE, web=None, cancel=1, prompt=True)), stories=False)
    assert search.run(SECONDS_MAX)
    reached = {state._replace(budget=()) for state in search.seen}
    me = search.world.me
    for state in search.seen:
        for place, message in enumerate(state.parked):
            if message is not None and place != me:
                parked = (*state.parked[:place], None, *state.parked[place + 1 :])
                assert state._replace(parked=parked, budget=()) in reached


# --------------------------------------------------------------------------------------------------------------- mutants

_closings, _grant = CloseEnded._closings, ProvisionerCore._grant


def _forgets_broken_attempts(stage: CloseEnded, now: float) -> list[f.AttemptClosed]:
    broken = stage.view.custody.index.broken.get(stage.view.dept, {})
    return [fact for fact in _closings(stage, now) if fact.unit not in broken]


def _grants_what_drains(core: ProvisionerCore, said: Said, now: float) -> bool:
    states = core.custody.index.by_state
    free = states["free"]
    states["free"] = {**free, **states["draining"]}
    try:
        return _grant(core, said, now)
    finally:
        states["free"] = free


SPIKE = setting(1, ONE, web=0, spike=1, prompt=True)
MUTANTS: dict[str, tuple[Setting, list[tuple[Any, str, Any]]]] = {
    "a host is granted before it is released": (
        SPIKE,
        [(ProvisionerCore, "_grant", _grants_what_drains), (fold, "TABLE", without_precondition(f.HostGranted))],
    ),
    "a victim is forgotten": (
        setting(2, ONE, web=None, loss=1, prompt=True),
        [(CloseEnded, "_closings", _forgets_broken_attempts)],
    ),
    "a host is cleared before its VMs are gone": (
        SPIKE,
        [(HostReconciler, "_clear", lambda _desk, host, _now: [f.HostCleared(host=host.name)])],
    ),
    "a unit is placed on hosts that are not held": (
        setting(1, ONE, web=None, loss=1, prompt=True),
        [(preconditions, "_no_place", lambda *_: None)],
    ),
    "a VM starts where another one is ending": (
        setting(1, SMALL, ONE, web=None, cancel=1, prompt=True),
        [(Ledger, "has_room", lambda *_: True)],
    ),
    "an attempt starts beside its predecessor": (
        setting(2, ("hpc", 2, 1), web=None, die=1, prompt=True),
        [(Ledger, "older_open", lambda *_: False)],
    ),
    "an end breaks no attempt": (
        setting(1, ONE, web=None, die=1, prompt=True),
        [(effects, "_break", lambda *_: None)],
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, changes = MUTANTS[mutant]
    search = Search(World(made))
    for owner, name, wrong in changes:
        monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(Exception) as caught:  # a `Violation`, or a core that stumbles over what cannot be
        search.run(SECONDS_MAX)
    print(f"{search.report(0.0)}: {caught.value}")
    assert not isinstance(caught.value, NotImplementedError | NameError | TypeError)
    assert isinstance(caught.value, Violation | AssertionError | KeyError)
