"""What a service tells about itself: for its edges, its metrics and its supervisor.  Reading only."""

from __future__ import annotations

from nats.aio.client import Client

from services.domain.core import Core
from services.domain.custody.custody import Custody
from services.domain.custody.state import Leader
from services.runtime.edge import Edge
from services.runtime.engine import Engine, Phase
from services.runtime.journal.fold import Fold
from services.runtime.journal.headroom import Room
from services.runtime.journal.leader import Lease
from services.runtime.journal.reader import Reader
from services.runtime.journal.snapshots import Keeper


class Status:
    """The readable side of `Service`."""

    name: str
    instance: str
    fold: Fold
    nc: Client
    caught_up: bool
    edges: tuple[Edge, ...]
    _engine: Engine
    _keeper: Keeper
    _reader: Reader | None
    _lease: Lease | None
    _reaped: frozenset[str]

    @property
    def custody(self) -> Custody:
        return self.fold.custody

    @property
    def core(self) -> Core:
        return self.fold.core

    @property
    def is_leader(self) -> bool:
        """True from the return of `leader.started` on, until the orderly end begins."""
        return self._engine.phase is Phase.LEADING

    @property
    def position(self) -> int:
        """The last journal position folded."""
        return self.fold.position

    @property
    def epoch(self) -> int:
        """How many leaders this writer has had, as folded; the own number while leading."""
        return self._engine.epoch

    @property
    def journal_full(self) -> bool:
        return self._engine.full

    @property
    def room(self) -> Room:
        """Of the journal."""
        return self._engine.room

    @property
    def snapshot_position(self) -> int:
        return self._keeper.position if hasattr(self, "_keeper") else 0

    @property
    def proposals_waiting(self) -> int:
        return self._engine.proposals_waiting

    @property
    def reader_renewed(self) -> int:
        return self._reader.recreated if self._reader else 0

    @property
    def reader_lag(self) -> int:
        """Messages of the journal that are not folded yet, by what the broker said with the last message, or to the watchdog,
        which asks every few seconds while nothing comes."""
        return max(0, self._reader.end_seen - self.position) if self._reader else 0

    @property
    def connected(self) -> bool:
        return hasattr(self, "nc") and self.nc.is_connected

    @property
    def predecessor(self) -> Leader | None:
        """The last leader before this one took over, as the journal told it then; None if there was none (X8)."""
        return self._engine.predecessor

    @property
    def reaped(self) -> frozenset[str]:
        """Instances that the supervisor has seen dead (X8)."""
        return self._reaped

    def now(self) -> float:
        """UTC seconds for decisions: max(own clock, fold time) (S6)."""
        return self._engine.now()

    def lease_left_s(self) -> float:
        """Seconds for which surely nobody else leads; a caller of the outside stops below its call timeout (X8)."""
        return self._lease.left_s() if self._lease else 0.0

    def health(self) -> dict[str, object]:
        return {
            "service": self.name,
            "instance": self.instance,
            "caught_up": self.caught_up,
            "leader": self.is_leader,
            "epoch": self.epoch,
            "position": self.position,
            "journal_full": self.journal_full,
            "journal_reserved": self.room.scarce,
            "connected": self.connected,
            "ailing": [sentence for edge in self.edges for sentence in edge.ailing()],
        }
