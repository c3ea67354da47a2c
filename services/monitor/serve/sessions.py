"""Sessions of browsers: a random id in a cookie stands for a token that was shown once.

Rules
  1. A session is as good as its token: if that is revoked, or its user is gone, the session is over with the next request.
  2. Ids and codes are kept as hashes: what is in memory here opens nothing.  All are forgotten with the process.
  3. A session lasts `SESSION_S`; a code `CODE_S`, and once.
  4. A user has `PER_USER_MAX` sessions and codes, the newest; all together `SESSIONS_MAX`, the oldest of all go first.
  5. Whoever fails `FAILED_BURST` times in a row waits; only failures are counted, and each caller's by themselves.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from schemas.config import CloudConfig
from services.runtime.bucket import Bucket
from services.runtime.credentials import digest
from services.runtime.identity import Identities, Identity

SESSION_S: Final = 12 * 3600.0  # a working day
CODE_S: Final = 60.0  # from the terminal to the browser
ID_BYTES: Final = 32  # 256 bits: not to be guessed however many tries
PER_USER_MAX: Final = 20
SESSIONS_MAX: Final = 2_000  # some hundred bytes each
FAILED_PER_S: Final = 0.5
FAILED_BURST: Final = 10.0  # a person mistypes less often
PEERS_MAX: Final = 1_000  # an idle one's bucket is full again: forgetting it changes nothing


class _Pass(msgspec.Struct, frozen=True):
    token: str  # its hash
    user: str
    until: float  # monotonic


class Passes:
    """Random ids, each for one token, for a time."""

    def __init__(self, lasts_s: float, now: Callable[[], float]) -> None:
        self._lasts_s, self._now = lasts_s, now
        self._kept: OrderedDict[str, _Pass] = OrderedDict()  # hash of the id -> what it is good for; the oldest first

    def make(self, token: str, user: str) -> str:
        mine = [key for key, one in self._kept.items() if one.user == user]
        for key in mine[: max(0, len(mine) + 1 - PER_USER_MAX)]:
            del self._kept[key]
        if len(self._kept) >= SESSIONS_MAX:
            self._kept.popitem(last=False)
        made = secrets.token_urlsafe(ID_BYTES)
        self._kept[digest(made)] = _Pass(token, user, self._now() + self._lasts_s)
        return made

    def token(self, made: str) -> str | None:
        """The hash of the token that it stands for; None if it stands for none (any more)."""
        found = self._kept.get(digest(made))
        if found is None or self._now() < found.until:
            return None if found is None else found.token
        self.drop(made)
        return None

    def drop(self, made: str) -> None:
        self._kept.pop(digest(made), None)

    def __len__(self) -> int:
        return len(self._kept)


class Sessions:
    def __init__(self, identities: Identities, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.identities, self._now = identities, monotonic
        self.passes = Passes(SESSION_S, monotonic)
        self.codes = Passes(CODE_S, monotonic)
        self._failed: OrderedDict[str, Bucket] = OrderedDict()

    def may_try(self, peer: str) -> bool:
        """Rule 5.  False: `peer` has failed too often of late."""
        bucket = self._failed.get(peer)
        return bucket is None or bucket.has(self._now())

    def failed(self, peer: str) -> None:
        bucket = self._failed.setdefault(peer, Bucket(FAILED_PER_S, FAILED_BURST, self._now()))
        self._failed.move_to_end(peer)
        bucket.take(self._now())
        if len(self._failed) > PEERS_MAX:
            self._failed.popitem(last=False)

    def redeem(self, code: str) -> str | None:
        """The hash of the token that made the code, once."""
        token = self.codes.token(code)
        self.codes.drop(code)
        return token

    def who(self, made: str, cloud: CloudConfig | None) -> Identity | None:
        """Rule 1."""
        token = self.passes.token(made)
        who = None if token is None else self.identities.by_digest(token, cloud)
        if token is not None and who is None:
            self.passes.drop(made)
        return who
