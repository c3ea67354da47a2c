"""What users have used, folded from the journal: core-seconds, of which half is forgotten in each half-life.  Memory and GPUs
count as many cores as the configuration has them worth.

Theory of operation
  An attempt holds its size from its placement until it is over.  It is worth c cores, and its user owes
  c · 2 ** -((T - t) / half-life) at a time T for each second t of it.  That integral has a closed form, so an attempt is
  credited once, when it is over, exactly; what is still open is added on reading, from custody.  Nothing runs in the
  background, nothing reads a clock.

Rules
  1. An attempt is either open, and then custody has since when, or it is credited.  Never both, never neither.
  2. Size of an attempt: what it has on all of its hosts; where it has whole hosts, all that they have.  Its worth is the sum
     over the dimensions, each by its weight (`Dimension.worth`; Slurm's TRESBillingWeights), those in force when it is credited
     or read, as the half-life.
  3. Preempted, lost, failed: what was held was used.
  4. An account is kept as of its last credit, and is decayed when it is read.  No half-life (0): nothing is ever forgotten.
  5. What all users had used at a *moment* (`policies/order_multi_factor`) is kept from the first credit after it until the next
     one.  So every reader of the journal can compute priorities as of that moment, however late.
  6. At most `ACCOUNTS_MAX` accounts; the smallest goes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from schemas.config import MultiFactor
from schemas.dimensions import DIMENSIONS
from schemas.size import Size

ACCOUNTS_MAX: Final = 20_000  # twice as many as users can be configured
LN2: Final = math.log(2.0)
Weights = list[tuple[int, float]]
_WORTH: Final = [(place, each.worth, each.worth_unit) for place, each in enumerate(DIMENSIONS)]


class Holding(NamedTuple):
    """An open attempt: whose, how many cores it is worth, since when."""

    user: str
    cores: float
    since: float


class Account(msgspec.Struct, array_like=True):
    core_s: float = 0.0
    at: float = 0.0


class Usage(msgspec.Struct, kw_only=True):
    """`standing`: core-seconds by user as of `moment`, if an attempt was credited since."""

    accounts: dict[str, Account] = {}
    moment: float = 0.0
    standing: dict[str, float] = {}

    def credit(self, holding: Holding, now: float, half_life_s: float) -> None:
        """The attempt is over."""
        account = self.accounts.get(holding.user)
        if account is None:
            if len(self.accounts) >= ACCOUNTS_MAX:
                del self.accounts[min(self.accounts, key=lambda name: (self._level(name, now, half_life_s), name))]
            account = self.accounts[holding.user] = Account()
        account.core_s = self._level(holding.user, now, half_life_s) + used(holding, now, half_life_s)
        account.at = now

    def remember(self, moment: float, holdings: Iterable[Holding], half_life_s: float) -> None:
        """Rule 5, before the first credit after `moment`; `holdings`: all that is still open, and what is about to be
        credited."""
        if moment > self.moment:
            self.moment, self.standing = moment, self.as_of(moment, holdings, half_life_s)

    def as_of(self, at: float, holdings: Iterable[Holding], half_life_s: float) -> dict[str, float]:
        """Core-seconds by user at a time not before the last credit; `holdings`: all that is open."""
        found = {name: self._level(name, at, half_life_s) for name in self.accounts}
        for holding in holdings:
            found[holding.user] = found.get(holding.user, 0.0) + used(holding, at, half_life_s)
        return found

    def _level(self, name: str, at: float, half_life_s: float) -> float:
        account = self.accounts[name]
        return account.core_s * 2.0 ** -(max(0.0, at - account.at) / half_life_s) if half_life_s else account.core_s


def weights(settings: MultiFactor) -> Weights:
    """Of each dimension that counts: its place in a size, and how many cores one of it is worth."""
    return [(place, worth / unit) for place, field, unit in _WORTH if (worth := getattr(settings, field))]


def worth(size: Size, weights_: Weights) -> float:
    """In cores (rule 2)."""
    found = 0.0
    for place, weight in weights_:  # no generator: it is asked for each attempt that is open
        found += size[place] * weight
    return found


def used(holding: Holding, at: float, half_life_s: float) -> float:
    """What the attempt has used by `at`, decayed to `at`, in core-seconds."""
    held_s = max(0.0, at - holding.since)
    if not half_life_s:
        return holding.cores * held_s
    return holding.cores * half_life_s / LN2 * -math.expm1(-LN2 * held_s / half_life_s)
