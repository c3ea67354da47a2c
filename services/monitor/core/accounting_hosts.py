"""How many hosts each department had, for how long: the levels of departments and of the site, added up when one of them
changes.

Rules (of `accounting`: rules 6 and 7; what was measured goes where rule 8 puts it)
  1. A level is read off custody after the fact that changed it; time is added up before.
  2. What is a department's own may change without a fact, when a window opens or closes: time stops there on its way (`flow`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schemas.config import CloudConfig
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.domain.sharing.lending import next_change, owned
from services.monitor.core.accounting_state import Levels, State, Whereabouts
from services.monitor.core.buckets import OF_HOSTS, measure

PRESENT: Final = ("free", "held", "draining")


class HostTime:
    """`config`: as it is before the fact is folded."""

    def __init__(self, custody: Custody, state: State, config: CloudConfig | None) -> None:
        self.custody, self.state, self.config = custody, state, config

    def flow(self, until: int) -> None:
        """What is a department's own may change on the way."""
        state = self.state
        while state.own_until * 1000 <= until:
            state.at = max(state.at, round(state.own_until * 1000))
            self.own()
        state.at = until

    def own(self) -> None:
        """What is whose may be otherwise from now on; what they hold is as it was."""
        state, at = self.state, self.state.at / 1000  # exact at a window's edge: those are whole seconds
        own = owned(self.config, at, state.usable) if self.config is not None else {}
        state.own_until = next_change(self.config, at) if self.config is not None else NEVER
        for dept in state.own | own:
            if state.own.get(dept) != own.get(dept):
                self.settle(dept).own = own.get(dept, 0)
        state.own = own

    def _usable(self) -> int:
        """Hosts that are divided: not lost, absent or cordoned."""
        cordoned = sum(1 for host in self._cordoned() if host.state in PRESENT)
        return sum(len(self.custody.index.by_state[state]) for state in PRESENT) - cordoned

    def _cordoned(self) -> Iterator[Host]:
        index, hosts = self.custody.index, self.custody.state.hosts
        return (hosts[name] for name in index.apart if hosts[name].cordoned is not None)

    def settle(self, dept: str) -> Levels:
        """Add up what the department had until now."""
        state = self.state
        had = state.levels.get(dept)
        if had is None:
            had = state.levels[dept] = Levels(since=state.at)
        elif had.since < state.at:
            for begin, length in state.fresh.pieces(had.since, state.at):
                span = state.fresh.span(begin, dept)
                span.held += had.held * length
                span.occupied += had.occupied * length
                span.draining += had.draining * length
                span.own += had.own * length
                beyond = had.held - had.apart - had.own
                span.lent += max(0, -beyond) * length
                span.borrowed += max(0, beyond) * length
                span.noticed += had.noticed * length
                measure(span, OF_HOSTS, had.size, length)
            had.since = state.at
        return had

    def settle_site(self) -> None:
        state = self.state
        for begin, length in state.fresh.pieces(state.site_since, state.at):
            if begin >= 0:
                site, had = state.fresh.bucket(begin).site, state.site
                site.hosts += had.hosts * length
                site.free += had.free * length
                site.lost += had.lost * length
                site.absent += had.absent * length
                site.cores += had.cores * length
        state.site_since = state.at

    def weigh(self, dept: str) -> None:
        """The department's levels are those of custody from now on; what it draws from its hosts is counted by `_count`."""
        index, had = self.custody.index, self.state.levels.get(dept)
        held, occupied = len(index.held.get(dept, ())), len(index.occupied.get(dept, ()))
        apart = sum(1 for host in self._cordoned() if host.state == "held" and host.dept == dept)
        quota = self.custody.state.quotas.get(dept)
        noticed = 0 if quota is None else max(0, held - quota.hosts)
        levels = (held, occupied, noticed, apart)
        if had is None or (had.held, had.occupied, had.noticed, had.apart) != levels:
            had = self.settle(dept)
            had.held, had.occupied, had.noticed, had.apart = levels

    def moved(self, name: str) -> None:
        """The host may be elsewhere, or another one, than it was."""
        state, host = self.state, self.custody.state.hosts.get(name)
        was = state.hosts.get(name)
        now = None
        if host is not None:
            dept = (host.dept or "") if host.state in ("held", "draining") else ""
            now = Whereabouts(host.state, dept, host.size)
        if was != now:
            self.settle_site()
            for some, sign in ((was, -1), (now, 1)):
                if some is not None:
                    self._count(some, sign)
            if now is None:
                del state.hosts[name]
            else:
                state.hosts[name] = now
        for some in (was, now):  # also of one that is where it was: it may have been cordoned
            if some is not None and some.dept:
                self.weigh(some.dept)
        usable = self._usable()
        if usable != state.usable:
            state.usable = usable
            self.own()

    def _count(self, host: Whereabouts, sign: int) -> None:
        site = self.state.site
        site.hosts += sign
        site.free += sign * (host.state == "free")
        site.lost += sign * (host.state == "lost")
        site.absent += sign * (host.state == "absent")
        site.cores += sign * host.size.cores * (host.state in PRESENT)
        if host.state == "held":
            levels = self.settle(host.dept)
            levels.size = levels.size.plus(host.size.times(sign))
        elif host.state == "draining":
            self.settle(host.dept).draining += sign
