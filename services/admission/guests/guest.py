"""A guest that calls, as the calls about it see it."""

from __future__ import annotations

import msgspec

from services.domain.custody.state import Unit
from services.runtime.request_queue import Turn


class Guest(msgspec.Struct, frozen=True):
    """Who calls, once the token is checked."""

    unit: str
    attempt: int
    rank: int
    known: Unit
    named: int  # the attempt in its own name; another one than `attempt` after a resume
    body: bytes
    turn: Turn

    @property
    def ranks(self) -> int:
        return len(self.known.hosts) or self.known.nodes

    @property
    def key(self) -> tuple[str, int]:
        return self.unit, self.attempt

    @property
    def life(self) -> tuple[str, int]:
        """What it hands in, and what it has launched, stands under its own name."""
        return self.unit, self.named
