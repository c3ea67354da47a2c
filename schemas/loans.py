"""Which hosts are lent by whom to whom: numbers of hosts, from whose they are and who holds them.

Theory of operation
  Hosts of one cloud are alike, so loans are numbers: who holds more than its own borrows the difference, who holds fewer lends
  it.  Which lender a borrower's hosts come from is a flow from lenders to borrowers; a contract bounds what passes between a
  pair.  What has no owner (`""`) is lent to anybody.

Rules
  1. `fit` finds a flow within the limits that serves the borrowers in the order given, each as far as that is possible beside
     the ones before it (augmenting paths: Ford and Fulkerson 1956).
  2. Who is served from whom is the same for the same numbers: lenders in the order given, what nobody owns first.
  3. `loans` tells what is lent now: within the limits as far as they reach, what is beyond (on its way back) after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from schemas.config import CloudConfig
from schemas.lending import UNLIMITED, limit

NOBODY: Final = ""
Limit = Callable[[str, str], int]  # lender, borrower -> hosts at most
Pair = tuple[str, str]


class Loan(NamedTuple):
    """`hosts` of `lender`'s own are with `borrower`.  `over`: of them, those beyond what the contract allows now."""

    lender: str
    borrower: str
    hosts: int
    over: int = 0


def split(own: Mapping[str, int], held: Mapping[str, int], usable: int) -> tuple[dict[str, int], dict[str, int]]:
    """Borrower -> hosts beyond its own, and lender -> own hosts that it does not hold, both by name; `NOBODY` first."""
    names = sorted({**own, **held})
    excess = {n: held.get(n, 0) - own.get(n, 0) for n in names if held.get(n, 0) > own.get(n, 0)}
    spare = {n: own.get(n, 0) - held.get(n, 0) for n in names if own.get(n, 0) > held.get(n, 0)}
    return excess, {NOBODY: max(0, usable - sum(own.values())), **spare}


def fit(excess: Mapping[str, int], spare: Mapping[str, int], most: Limit) -> tuple[dict[Pair, int], dict[str, int]]:
    """The flow of rule 1, (lender, borrower) -> hosts, and borrower -> hosts that nobody may lend it."""
    lent: dict[Pair, int] = {}
    left, unmet = dict(spare), {}
    for borrower, need in excess.items():
        while need > 0:
            path = _path(borrower, lent, left, most)
            if path is None:
                unmet[borrower] = need
                break
            more, less = path
            rooms = [most(*pair) - lent.get(pair, 0) for pair in more]
            amount = min([need, left[more[-1][0]], *rooms, *(lent[pair] for pair in less)])
            for pair in more:
                lent[pair] = lent.get(pair, 0) + amount
            for pair in less:
                lent[pair] -= amount
            left[more[-1][0]] -= amount
            need -= amount
    return {pair: hosts for pair, hosts in lent.items() if hosts}, unmet


def _path(
    borrower: str, lent: Mapping[Pair, int], left: Mapping[str, int], most: Limit
) -> tuple[list[Pair], list[Pair]] | None:
    """The shortest way to a lender with hosts left, perhaps by moving other borrowers to other lenders: the pairs that lend
    more, the last one of which takes from what is left, and those that lend less."""
    asked: dict[str, str] = {}  # lender -> the borrower that asks it
    moved_off: dict[str, str] = {}  # borrower -> the lender that it would leave
    line = [borrower]
    for one in line:  # grows
        for lender in left:
            if lender in asked or lender == one or most(lender, one) <= lent.get((lender, one), 0):
                continue
            asked[lender] = one
            if left[lender] > 0:
                return _way(lender, asked, moved_off)
            for (other, served), hosts in lent.items():
                if other == lender and hosts > 0 and served not in moved_off and served != borrower:
                    moved_off[served] = lender
                    line.append(served)
    return None


def _way(last: str, asked: Mapping[str, str], moved_off: Mapping[str, str]) -> tuple[list[Pair], list[Pair]]:
    more: list[Pair] = []
    less: list[Pair] = []
    lender = last
    while True:
        one = asked[lender]
        more.append((lender, one))
        if one not in moved_off:
            return more[::-1], less
        lender = moved_off[one]
        less.append((lender, one))


def limits(config: CloudConfig, at: float) -> Limit:
    """The contracts in force at `at`, each pair looked up once."""
    known: dict[Pair, int] = {}

    def most(lender: str, borrower: str) -> int:
        if lender == NOBODY or not config.lending:
            return UNLIMITED
        pair = (lender, borrower)
        if pair not in known:
            known[pair] = limit(config, lender, borrower, at)
        return known[pair]

    return most


def loans(config: CloudConfig, at: float, own: Mapping[str, int], held: Mapping[str, int], usable: int) -> list[Loan]:
    """What is lent at `at` (rule 3), by lender and borrower.  `held`: usable hosts that each department holds."""
    excess, spare = split(own, held, usable)
    lent, unmet = fit(excess, spare, limits(config, at))
    left = {lender: hosts - sum(n for (one, _), n in lent.items() if one == lender) for lender, hosts in spare.items()}
    over, _ = fit(unmet, left, lambda _lender, _borrower: UNLIMITED) if unmet else ({}, {})
    pairs = sorted({**lent, **over})
    return [Loan(*pair, lent.get(pair, 0) + over.get(pair, 0), over.get(pair, 0)) for pair in pairs]
