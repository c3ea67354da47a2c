"""What a core is: a deterministic state machine without I/O (DESIGN.md §1).

A core is made with the `Custody` fold that the shell has applied before it: it reads that fold and never changes it.  Its own
state changes in `apply` alone.  `decide` looks at the state, never at "the message that just came in": a lost or repeated
message cannot lose or repeat work.  The same facts give the same bytes on any machine.

A core that decides many things does it in stages: a list, made from the adopted configuration.  A feature that it does not name
is not in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from schemas.facts import Fact
from services.domain.custody.meta import Meta

NEVER: Final = float("inf")
FAR_S: Final = 86400.0  # a core that is woken later than that, or never, is checked as of then
EARLY_S: Final = 1e-3  # a moment may be rounded, and may come so much sooner
Handler = Callable[[Any, Meta], None]
Handlers = Mapping[type, Handler]  # by kind of fact: what a part of a core does with it
Said = TypeVar("Said")  # what a decision has to say so far
Stage: TypeAlias = Callable[[Said, float], bool]  # adds what it has to say at that time; True: the decision ends here


class Core(Protocol):
    def apply(self, fact: Fact, meta: Meta) -> None:
        """Fold one fact, void ones included (`meta.void`).  The only place where the core's state changes."""

    def decide(self, now: float) -> list[Fact]:
        """Facts that follow from the state at `now` (UTC seconds), with their reasons.  Changes nothing."""

    def wake_at(self) -> float:
        """When `decide` must run again even if no fact arrives (UTC seconds); `NEVER` if there is no such time."""

    def check(self) -> list[str]:
        """Every broken invariant as a sentence; empty if all hold."""

    def dump(self) -> bytes:
        """The state as bytes: equal histories give equal bytes."""

    def load(self, data: bytes) -> None:
        """Replace the state by one that `dump` wrote."""


def last_moment(now: float, wake_at: float) -> float:
    """The latest moment at which a core that rests until `wake_at` must have nothing to say; `now` if there is none later."""
    return max(now, min(wake_at, now + FAR_S) - EARLY_S)


def folding(*parts: Handlers) -> dict[type, tuple[Handler, ...]]:
    """Kind of fact -> what its parts do with it, in their order: a part costs nothing with facts that do not concern it."""
    kinds = dict.fromkeys(kind for part in parts for kind in part)
    return {kind: tuple(part[kind] for part in parts if kind in part) for kind in kinds}
