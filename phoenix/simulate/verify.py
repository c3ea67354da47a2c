"""Proof that a simulated run is what the services would have lived through: its facts, replayed apart, give the same bytes.

Theory of operation
  The run is made once more with its journal kept.  Each envelope is encoded as it would be on the wire, and a fold of its own
  for every writer (`services.runtime.journal.fold`, the code that a service starts with) reads them all from the
  beginning.  At the end custody and core of each must dump the same bytes as the live ones, and the run itself must be the one
  that is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from phoenix.simulate.engine import Seat, Simulation
from phoenix.simulate.workload import Outcome, Scenario
from schemas.envelope import Envelope, encode
from schemas.subjects import journal as subject
from services.runtime.journal.fold import Fold, Stored


def verify(scenario: Scenario, reported: Outcome | None = None) -> list[str]:
    """Every difference as a sentence; empty if there is none.  `reported`: the outcome that is to be confirmed."""
    simulation = Simulation(scenario, keep=True)
    again = simulation.recorder.outcome(simulation.run())
    found = [problem for seat in simulation.seats for problem in _replay(simulation, seat)]
    if reported is not None and _told(reported) != _told(again):
        found.append(f"{scenario.label}: the same scenario has another outcome now")
    return found


def _told(outcome: Outcome) -> tuple[object, ...]:
    """All of an outcome but how long it took to make, and how much was written."""
    return outcome.window_s, outcome.jobs, outcome.web, outcome.held, outcome.running, outcome.refused


def _replay(simulation: Simulation, seat: Seat) -> list[str]:
    fold = Fold(seat.writer, seat.factory)
    for message in messages(simulation):
        envelope, _ = fold.feed(message)
        if envelope is None:
            return [f"{seat.writer}: position {message.position} is garbage on the wire"]
    found = list(seat.core.check())
    if fold.custody.dump() != simulation.journal.custody.dump():
        found.append("custody differs from the replay")
    if fold.core.dump() != seat.core.dump():
        found.append("the core differs from the replay")
    return [f"{simulation.scenario.label}: {seat.writer}: {problem}" for problem in found]


def messages(simulation: Simulation) -> Iterator[Stored]:
    """The kept journal as the broker would have stored it."""
    for position, entry in enumerate(simulation.journal.kept or (), start=1):
        envelope = Envelope(id=f"s{position}", writer=entry.writer, epoch=1, at=entry.at, facts=entry.facts)
        yield Stored(position, subject(entry.writer), encode(envelope), entry.at)
