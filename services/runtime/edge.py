"""What a service adds to the shell: its edges to the outside, and what it proposes to the journal.

Rules
  1. An edge never changes core or custody state; it proposes facts and sees them come back.
  2. `applied` and `settled` are called from the fold, so they must be short and must not raise.
  3. A proposal is a function, not a list of facts: it looks at the state at the moment when the envelope is drafted, so
     that it cannot be based on a state that has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from schemas.facts import Fact
from services.domain.custody.meta import Meta
from services.domain.refusal import Refused

if TYPE_CHECKING:
    from services.runtime.service import Service

__all__ = ["Compose", "Edge", "Outcome", "Proposal", "Refused"]

# (now, facts that earlier proposals have drafted into this envelope) -> facts.  May raise `Refused`.
Compose: TypeAlias = Callable[[float, Sequence[Fact]], list[Fact]]


@dataclass(slots=True)
class Outcome:
    """What became of a proposal: its facts as they came back through the journal, void ones included (`meta.void`)."""

    facts: list[tuple[Fact, Meta]]
    position: int


@dataclass(slots=True, eq=False)
class Proposal:
    """One waiting caller of `Service.propose`."""

    compose: Compose
    cause: str
    answer: asyncio.Future[Outcome]
    facts: list[tuple[Fact, Meta]] = field(default_factory=list)


class Edge:
    """The service's side to the outside world.  Every method does nothing."""

    async def connected(self, service: Service) -> None:
        """Before anything is folded: learn what the outside already has."""

    def follow(self, service: Service) -> None:
        """Before the first catch-up: spawn what stores beside the fold, so that snapshots can be saved on the way."""

    async def start(self, service: Service) -> None:
        """After the first catch-up: open listeners and subscriptions."""

    def continues(self) -> str:
        """A snapshot has been loaded.  Why what this edge keeps beside it does not continue from there: then the journal is
        folded from its beginning.  Empty: it does."""
        return ""

    async def secured(self, _position: int) -> bool:
        """Before a snapshot of that position is saved: whether what this edge keeps beside it is stored up to there."""
        return True

    async def lead(self) -> None:
        """This replica became leader: its `leader.started` has come back."""

    async def close(self) -> None:
        """Stop: no more calls after this returns (`leader.stopped` follows, X8).  Proposals are still taken meanwhile."""

    def ailing(self) -> list[str]:
        """What an operator should check, in sentences; returned by `GET /healthz`."""
        return []

    def applied(self, fact: Fact, meta: Meta) -> None:
        """After each apply, but not during the first catch-up."""

    def settled(self) -> None:
        """After a batch of applies, and once after the first catch-up: the state is consistent."""
