"""Which instances are ready, as reported by those who watch them: folded from `instance.reported` by each service that needs
it.

An instance serves when it has begun, does not drain, and no watcher reports it as not ready.  Its guest watches
it, and so does every load balancer of its department.

Rules
  1. A word is a level: the last one of each watcher counts.  Since when: since the watcher's first word that it is not ready
     after one that it is; what it answers: as said last.
  2. An instance that begins has just answered its guest: what was said of its start is over.
  3. Old journals: `unreachable` meant that checks had failed for the department's `unreachable_s`, and any load balancer took
     it back with `reachable`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.facts_instances import InstanceReported

GUEST: Final = ""  # a watcher that is no user; load balancers are called as their users
_ANY: Final = "*"  # rule 3; no user is called so


class Unready(msgspec.Struct, frozen=True, array_like=True):
    """A watcher's word: not ready since `at`, with its last answer."""

    at: float
    why: str


Watchers = dict[str, Unready]
Readiness = dict[str, Watchers]  # instance -> those who report it as not ready; without any it has no entry


def watcher(fact: InstanceReported) -> str:
    return GUEST if fact.by == "guest" else fact.user


def reported(book: Readiness, fact: InstanceReported, at: float, unreachable_s: float) -> bool:
    """Folds one word; True if it was one on readiness."""
    if fact.state in ("drained", "ended"):
        return False
    who = _ANY if fact.state in ("unreachable", "reachable") else watcher(fact)
    found = book.setdefault(fact.unit, {})
    if fact.state in ("unready", "unreachable"):
        since = at if fact.state == "unready" else at - unreachable_s
        found[who] = Unready(found[who].at if who in found else since, fact.why)
    else:
        found.pop(who, None)
    if not found:
        del book[fact.unit]
    return True


def began(book: Readiness, unit: str) -> None:
    """Rule 2."""
    book.pop(unit, None)


def since(watchers: Watchers) -> float:
    return min(one.at for one in watchers.values())


def answer(watchers: Watchers) -> str:
    """The guest's word, which stands nearest to the program; else the one that has been said for longest (a name is
    unique)."""
    guest = watchers.get(GUEST)
    return guest.why if guest is not None else min((one.at, who, one.why) for who, one in watchers.items())[2]
