"""Sessions of browsers: a random id in a cookie stands for a token that was shown once.

Rules
  1. A session is as good as its token: if that is revoked, or its user is gone, the session is over with the next request.
  2. Ids and codes are kept as hashes: what is here opens nothing, in memory or on file (`session_store`).
  3. A session lasts `SESSION_S` by the clock, also across a restart of the monitor; a code `CODE_S`, and once, and is forgotten
     with the process.
  4. A user has `PER_USER_MAX` sessions and codes, the newest; all together `SESSIONS_MAX`, the oldest of all go first.
  5. After `FAILED_BURST` failures from one address further ones have to wait, and are in no record.  Only failures are
     counted, and what is right is let in: many people share an address, and a token is not guessed, however many tries.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from schemas.config import CloudConfig
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities, Identity
from services.runtime.clock import Clock, system_clock
from services.runtime.token_bucket import Bucket

SESSION_S: Final = 12 * 3600.0  # a working day
CODE_S: Final = 60.0  # from the terminal to the browser
ID_BYTES: Final = 32  # 256 bits: not to be guessed however many tries
PER_USER_MAX: Final = 20
SESSIONS_MAX: Final = 2_000  # some hundred bytes each
FAILED_PER_S: Final = 0.5
FAILED_BURST: Final = 10.0  # a person mistypes less often
PEERS_MAX: Final = 1_000  # an idle one's bucket is full again: forgetting it changes nothing


class Pass(msgspec.Struct, frozen=True):
    token: str  # its hash
    user: str
    until: float  # by the clock of its `Passes`


class Passes:
    """Random ids, each for one token, for a time.  `changes` counts what was made and dropped."""

    def __init__(self, lasts_s: float, now: Callable[[], float]) -> None:
        self._lasts_s, self._now = lasts_s, now
        self.kept: OrderedDict[str, Pass] = OrderedDict()  # hash of the id -> what it is good for; the oldest first
        self.changes = 0

    def make(self, token: str, user: str) -> str:
        mine = [key for key, one in self.kept.items() if one.user == user]
        for key in mine[: max(0, len(mine) + 1 - PER_USER_MAX)]:
            del self.kept[key]
        if len(self.kept) >= SESSIONS_MAX:
            self.kept.popitem(last=False)
        made = secrets.token_urlsafe(ID_BYTES)
        self.kept[digest(made)] = Pass(token, user, self._now() + self._lasts_s)
        self.changes += 1
        return made

    def find(self, made: str) -> Pass | None:
        """What it is good for; None if for nothing (any more)."""
        found = self.kept.get(digest(made))
        if found is None or self._now() < found.until:
            return found
        self.drop(made)
        return None

    def drop(self, made: str) -> None:
        if self.kept.pop(digest(made), None) is not None:
            self.changes += 1

    def restore(self, told: Mapping[str, Pass], is_good: Callable[[Pass], bool]) -> None:
        """Take over what an earlier process kept, as far as it has not ended and `is_good`.  One that would last longer than a
        new one was written by another clock."""
        now = self._now()
        good = [(k, p) for k, p in told.items() if now < p.until <= now + self._lasts_s and is_good(p)]
        self.kept = OrderedDict(sorted(good, key=lambda one: (one[1].until, one[0]))[-SESSIONS_MAX:])

    def __len__(self) -> int:
        return len(self.kept)


class Sessions:
    """`clock`: of sessions, which outlive the process; `monotonic`: of codes and failures."""

    def __init__(
        self,
        identities: Identities,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Clock = system_clock,
    ) -> None:
        self.identities, self._now = identities, monotonic
        self.passes = Passes(SESSION_S, clock)
        self.codes = Passes(CODE_S, monotonic)
        self._failed: OrderedDict[str, Bucket] = OrderedDict()

    def wait_s(self, peer: str) -> float:
        """Rule 5.  In how many seconds `peer` may try again; above 0: it has failed too often of late."""
        bucket = self._failed.get(peer)
        return 0.0 if bucket is None else bucket.wait_s(self._now())

    def failed(self, peer: str) -> None:
        bucket = self._failed.setdefault(peer, Bucket(FAILED_PER_S, FAILED_BURST, self._now()))
        self._failed.move_to_end(peer)
        bucket.take(self._now())
        if len(self._failed) > PEERS_MAX:
            self._failed.popitem(last=False)

    def redeem(self, code: str) -> str | None:
        """The hash of the token that made the code, once."""
        found = self.codes.find(code)
        self.codes.drop(code)
        return None if found is None else found.token

    def who(self, made: str, cloud: CloudConfig | None) -> Identity | None:
        """Rule 1."""
        found = self.passes.find(made)
        who = None if found is None else self.owner(found, cloud)
        if found is not None and who is None:
            self.passes.drop(made)
        return who

    def owner(self, one: Pass, cloud: CloudConfig | None) -> Identity | None:
        """Who it stands for, if the token is still that user's."""
        who = self.identities.by_digest(one.token, cloud)
        return who if who is not None and who.user == one.user else None

    def restore(self, told: Mapping[str, Pass], cloud: CloudConfig | None) -> None:
        """Rules 1 and 3: sessions of an earlier process."""
        self.passes.restore(told, lambda one: self.owner(one, cloud) is not None)
