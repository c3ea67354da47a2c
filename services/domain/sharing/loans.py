"""Which hosts are lent by whom to whom: numbers of hosts, from whose they are and who holds them.

Theory of operation
  Hosts of one cloud are alike, so loans are numbers.  Whose hosts a department holds is a flow from owners to holders: its own
  need no contract, which bounds what passes between a pair, and what has no owner (`""`) is lent to anybody.  So who holds more
  than its own borrows the difference, and who holds fewer lends it.  A batch department may do both: web goes before it, and
  weights divide its own as any other hosts; what others leave idle, and it may have, stands in for them.

Rules
  1. `fit` finds a flow within the limits that serves the holders in the order given, each as far as that is possible beside
     the ones before it (augmenting paths: Ford and Fulkerson 1956), and no department's own are taken without others for them.
  2. Who is served from whom is the same for the same numbers: its own first, hosts without an owner, then lenders by name.
  3. A web department's own are its guarantee: it lends only those that it does not hold.
  4. `loans` tells what is lent now: within the limits as far as they reach, what is beyond (on its way back) after that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from schemas.config import CloudConfig
from services.domain.sharing.lending import UNLIMITED, limit

NOBODY: Final = ""
Limit = Callable[[str, str], int]  # lender, borrower -> hosts at most
Pair = tuple[str, str]


class Loan(NamedTuple):
    """`hosts` of `lender`'s own are with `borrower`.  `over`: of them, those beyond what the contract allows now."""

    lender: str
    borrower: str
    hosts: int
    over: int = 0


class Fit(NamedTuple):
    """Hosts: `lent` (lender, borrower), `left` of each owner's, and those of each holder that no department may lend it."""

    lent: dict[Pair, int]
    left: dict[str, int]
    unmet: dict[str, int]


def fit(held: Mapping[str, int], own: Mapping[str, int], usable: int, most: Limit, web: Collection[str] = ()) -> Fit:
    """The flow of rule 1, for holders in the order of `held`."""
    residual, unmet = _graph(held, own, usable, most, web), {}
    for holder, need in held.items():
        kept = min(need, own.get(holder, 0))
        _push(residual, [_SOURCE, (_OWNER, holder), (_HOLDER, holder)], kept)
    for holder, need in held.items():
        need -= min(need, own.get(holder, 0))
        while need > 0:
            path = _path(residual, (_HOLDER, holder))
            if not path:
                unmet[holder] = need
                break
            amount = min([need, *(residual[a][b] for a, b in pairwise(path))])
            _push(residual, path, amount)
            need -= amount
    lent = {
        (lender, name): hosts
        for kind, name in residual
        if kind == _HOLDER
        for (_, lender), hosts in residual[kind, name].items()
        if hosts and lender != name
    }
    return Fit(lent, {name: residual[_SOURCE][_OWNER, name] for name in (NOBODY, *own)}, unmet)


# What is owned passes from the source to owners, and from them to holders; web's to others as far as it is a lender (rule 3).
_Node = tuple[str, str]
_OWNER, _LENDER, _HOLDER = "owner", "lender", "holder"
_SOURCE: Final = ("source", "")


def _graph(
    held: Mapping[str, int], own: Mapping[str, int], usable: int, most: Limit, web: Collection[str]
) -> dict[_Node, dict[_Node, int]]:
    """Node -> what may pass to others from there; nothing does yet.  Hosts without an owner come first, then lenders by
    name."""
    found: dict[_Node, dict[_Node, int]] = {_SOURCE: {}, **{(_HOLDER, name): {} for name in held}}
    owners = {NOBODY: max(0, usable - sum(own.values())), **{name: own[name] for name in sorted(own)}}
    for owner, hosts in owners.items():
        found[_SOURCE][_OWNER, owner] = hosts
        lends = {(_HOLDER, name): UNLIMITED if owner in (name, NOBODY) else most(owner, name) for name in held}
        found[_OWNER, owner] = lends
        if owner in web:
            spare = hosts - min(hosts, held.get(owner, 0))
            itself = {node: room for node, room in lends.items() if node[1] == owner}
            found[_OWNER, owner] = {**itself, (_LENDER, owner): spare}
            found[_LENDER, owner] = {node: room for node, room in lends.items() if node[1] != owner}
    return found


def _path(residual: Mapping[_Node, Mapping[_Node, int]], holder: _Node) -> list[_Node]:
    """The shortest way from the source, perhaps by moving others to other lenders; empty if there is none."""
    came: dict[_Node, _Node] = {_SOURCE: _SOURCE}
    line = [_SOURCE]
    for node in line:  # grows
        for other, room in residual[node].items():
            if room > 0 and other not in came:
                came[other] = node
                line.append(other)
        if holder in came:
            path = [holder]
            while path[-1] != _SOURCE:
                path.append(came[path[-1]])
            return path[::-1]
    return []


def _push(residual: dict[_Node, dict[_Node, int]], path: list[_Node], hosts: int) -> None:
    if hosts:
        for one, other in pairwise(path):
            residual[one][other] -= hosts
            residual[other][one] = residual[other].get(one, 0) + hosts


def limits(config: CloudConfig, at: float) -> Limit:
    """The contracts in force at `at`, each pair looked up once."""
    known: dict[Pair, int] = {}

    def most(lender: str, borrower: str) -> int:
        if not config.lending:
            return UNLIMITED
        pair = (lender, borrower)
        if pair not in known:
            known[pair] = limit(config, lender, borrower, at)
        return known[pair]

    return most


def kept_from_web(lender: str, own: int, wants: Mapping[str, int], most: Limit) -> int:
    """Of its `own` hosts, those that no demand of web departments (`wants`) takes from `lender`, by its contracts with them; 0
    if none binds."""
    lent = {name: most(lender, name) for name in wants}
    if all(lent[name] >= hosts for name, hosts in wants.items()):
        return 0
    return max(0, own - sum(min(lent[name], hosts) for name, hosts in wants.items()))


def loans(config: CloudConfig, at: float, own: Mapping[str, int], held: Mapping[str, int], usable: int) -> list[Loan]:
    """What is lent at `at` (rule 3), by lender and borrower.  `held`: usable hosts that each department holds."""
    web = [d.name for d in config.departments if d.kind == "web"]
    held = {name: held[name] for name in sorted(held)}
    lent, left, unmet = fit(held, own, usable, limits(config, at), web)
    over = {}
    if unmet:
        over = fit(unmet, left, sum(left.values()), lambda _lender, _borrower: UNLIMITED).lent
    pairs = sorted({**lent, **over})
    return [Loan(*pair, lent.get(pair, 0) + over.get(pair, 0), over.get(pair, 0)) for pair in pairs]
