"""What an edge proposes to the journal, and what became of it.

Rules
  1. A proposal is a function, not a list of facts: it looks at the state at the moment when the envelope is drafted, so
     that it cannot be based on a state that has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.facts import Fact
from services.domain.custody.meta import Meta

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
