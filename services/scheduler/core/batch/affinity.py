"""Which of several equal hosts a start gets: one where a parked VM waits for such a job, or where its work was suspended.

Theory of operation
  An order decides how many hosts of which class a start takes.  Hosts with equal free capacity are interchangeable to it, and
  it names the first ones.  This module exchanges names within a class, throughout the plan: if h1 and h7 are equal, whatever
  was planned on h1 may run on h7 and vice versa, and the plan is the same.  So it works under every order, and no order depends
  on it.

Rules
  1. Names are exchanged only between hosts with equal free capacity.  Where the order looks ahead, or time slots are booked,
     only between empty hosts: what else runs on a host is then part of the plan.
  2. The first start that is planned on a host settles its name; later starts planned there follow it.
  3. A suspended unit prefers its old hosts, rank by rank.  A job of one node prefers a host with a parked VM of its size and
     department (and of its user, if `warm.share` says so).  That settles the host (rule 2), so a parked VM serves one start.
  4. Otherwise a host without parked VMs is preferred: a VM parked there is not for this job, and would have to end first.
  5. A unit whose last attempt ended without a report, or whose attempts have failed to begin since one last did, avoids all
     hosts of those attempts if there is an equal one; else it gets the one that failed longest ago.
  6. Hosts of a start that preempts other units stay as they are.
  7. Where nothing is parked, saved or has failed, this costs one lookup per start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from schemas.config import Warm
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Start

ANYBODY: Final = ""  # instead of a user, where any user of the department may take its machines


class Wish(NamedTuple):
    """The job that a parked VM can take: its size, and its user or `ANYBODY`."""

    size: Size
    user: str


class Unexchanged(NamedTuple):
    """What starts are settled by.  `user`: of a unit that starts; `was`: of a completed unit whose VM is parked; `origin`:
    where a unit was suspended; `shuns`: where it failed; `empty_only`: rule 1."""

    custody: Custody
    dept: str
    warm: Warm
    user: Callable[[str], str]
    was: Mapping[str, str]
    origin: Callable[[str], tuple[str, ...]]
    shuns: Callable[[str], tuple[str, ...]]
    empty_only: bool


def settle(starts: list[Start], room: Room, given: Unexchanged) -> list[Start]:
    """The same starts, on the hosts that serve them best."""
    index = given.custody.index
    if not (index.parked or index.saved or any(given.shuns(start.unit) for start in starts)):  # rule 7
        return starts
    return _Exchange(starts, room, given).settled()


class _Exchange:
    def __init__(self, starts: list[Start], room: Room, given: Unexchanged) -> None:
        self.starts, self.room, self.given = starts, room, given
        self.now: dict[str, str] = {}  # planned name -> name; those that are not here keep their own
        self.then: dict[str, str] = {}  # … and the other way round
        self.fixed = dict.fromkeys(host for start in starts if start.victims for host in start.hosts)
        self.waiting = self._waiting()
        self.clear: dict[Free, Iterator[str]] = {}
        self.near: dict[Wish, dict[Free, list[str]]] = {}  # hosts with a parked VM, in order, by their free capacity

    def _waiting(self) -> dict[Wish, dict[str, None]]:
        """The hosts on which parked VMs wait, by the job that can take them."""
        state, given = self.given.custody.state, self.given
        found: dict[Wish, dict[str, None]] = {}
        for host, keys in given.custody.index.parked.items():
            for key in keys:
                unit = state.units[state.vms[key].unit]
                if unit.dept == given.dept and host in self.room.free:
                    user = given.was.get(unit.id) if given.warm.share == "user" else ANYBODY
                    if user is not None:
                        found.setdefault(Wish(unit.size, user), {})[host] = None
        return found

    def settled(self) -> list[Start]:
        found = []
        for start in self.starts:
            if not start.victims:
                origin, shuns, wish = self.given.origin(start.unit), self.given.shuns(start.unit), self._wish(start)
                for rank, planned in enumerate(start.hosts):
                    self._settle_host(planned, origin[rank] if rank < len(origin) else "", shuns, wish)
            found.append(start._replace(hosts=tuple(self.now.get(host, host) for host in start.hosts)))
        return found

    def _wish(self, start: Start) -> Wish | None:
        shape = start.shape
        if shape.nodes != 1 or shape.exclusive:
            return None
        user = self.given.user(start.unit) if self.given.warm.share == "user" else ANYBODY
        wish = Wish(shape.size, user)
        return wish if wish in self.waiting else None

    def _settle_host(self, planned: str, origin: str, shuns: tuple[str, ...], wish: Wish | None) -> None:
        """Rules 2 to 5."""
        host = self.now.get(planned, planned)
        if host in self.fixed:
            return
        offers = self.room.free.get(host)
        if offers is None or (self.given.empty_only and not offers.empty):
            return
        better = self._elsewhere(host, offers, shuns) if shuns else self._better(host, offers, origin, wish)
        if better != host:
            self._swap(planned, better)
        self.fixed[better] = None

    def _better(self, host: str, offers: Free, origin: str, wish: Wish | None) -> str:
        if origin not in self.fixed and self.room.free.get(origin) == offers:
            return origin
        if wish is not None:
            if host in self.waiting[wish]:
                return host
            for name in self._near(wish, offers):
                if name not in self.fixed:
                    return name
        return self._clear(offers) or host if host in self.given.custody.index.parked else host

    def _elsewhere(self, host: str, offers: Free, shuns: tuple[str, ...]) -> str:
        """Rule 5; if there is no other, where it failed longest ago."""
        if host not in shuns:
            return host
        others = (name for name in self.room.classes[offers] if name not in shuns)
        longest_ago = (name for name in shuns if self.room.free.get(name) == offers)
        return next((name for name in chain(others, longest_ago) if name not in self.fixed), host)

    def _clear(self, offers: Free) -> str:
        """Rule 4: the next host of the class where nothing is parked; "" if there is none left."""
        if offers not in self.clear:
            parked = self.given.custody.index.parked
            self.clear[offers] = (name for name in self.room.classes[offers] if name not in parked)
        return next((name for name in self.clear[offers] if name not in self.fixed), "")

    def _near(self, wish: Wish, offers: Free) -> list[str]:
        classes = self.near.get(wish)
        if classes is None:
            classes = self.near[wish] = {}
            for name in sorted(self.waiting[wish]):
                classes.setdefault(self.room.free[name], []).append(name)
        return classes.get(offers, [])

    def _swap(self, planned: str, better: str) -> None:
        """From here on `planned` is `better`; whatever was planned there goes where `planned` was."""
        host, other = self.now.get(planned, planned), self.then.get(better, better)
        self.now[planned], self.now[other] = better, host
        self.then[better], self.then[host] = planned, other
