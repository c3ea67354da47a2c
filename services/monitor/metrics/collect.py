"""What the monitor exports beside the runtime's own metrics (`families` declares it): claims, web load, void facts.  Hosts are
`hosts`, queues, jobs and work `jobs`.

Collected on a scrape, from the read model: nothing is counted twice, and nothing is kept but how far those counters
had been that grow by the clock (`jobs.Grown`).  Counters are folded from the journal: no restart sets them back.

Rules
  1. A department has its series as long as it is configured, those with 0 included: an alert sees the first one.
  2. A scrape goes through hosts, open attempts and instances once; of jobs it looks at what has changed since the last one.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas.ids import is_instance
from services.monitor.core import releases
from services.monitor.core.monitor import MonitorCore
from services.monitor.core.service_levels import Shortage, Times
from services.monitor.metrics import families as fs
from services.monitor.metrics import jobs as metrics_jobs
from services.monitor.metrics.families import TROUBLES
from services.monitor.metrics.hosts import Seen
from services.monitor.views import release_views
from services.monitor.views.views import Views
from services.runtime.clock import Clock, system_clock


class ReadModel(Collector):
    """Registers with a Prometheus registry."""

    def __init__(self, core: MonitorCore, views: Views, clock: Clock = system_clock) -> None:
        self.core, self.views, self.clock = core, views, clock
        self._grown = metrics_jobs.Grown()

    def collect(self) -> Iterator[Metric]:
        known, now = self.core.custody.departments, self.clock()
        batch = [department.name for department in known if department.kind == "batch"]
        web = [department.name for department in known if department.kind == "web"]
        names = [department.name for department in known]
        yield from Seen(names, now).add(self.core.custody.state.hosts.values()).families()
        yield from self._shares(names)
        yield from self._moves(names, now)
        yield from self._claims(web, now)
        yield from self._reclaims(names, now)
        yield from metrics_jobs.queues(self.views, batch, now)
        yield from metrics_jobs.ends(self.core, names, batch)
        yield from metrics_jobs.work(self.core, self._grown, names, now)
        yield from self._web(web, now)
        yield from self._load(web)
        yield from self._releases(web)
        voids = fs.VOIDS.family()
        for reason, count in sorted(self.core.custody.state.voids.items()):
            voids.add_metric([reason], count)
        yield voids

    # ---------------------------------------------------------------------------------------------------------- hosts

    def _shares(self, names: list[str]) -> Iterator[Metric]:
        custody, own = self.core.custody, self.core.accounting.state.own
        quota, demand, owned = fs.HOSTS_QUOTA.family(), fs.HOSTS_DEMANDED.family(), fs.HOSTS_OWN.family()
        for name in names:
            quota.add_metric([name], custody.quota(name).hosts)
            demand.add_metric([name], custody.state.demands.get(name, 0))
            owned.add_metric([name], own.get(name, 0))
        yield from (quota, demand, owned)

    def _moves(self, names: list[str], now: float) -> Iterator[Metric]:
        moves = fs.HOST_MOVES.family()
        for before, found in sorted(self.core.state.tallies.moves.items()):
            for after, count in sorted(found.items()):
                if after in names and before in ("", *names):
                    moves.add_metric([before, after], count)
        yield from (moves, fs.HOSTS_FLAPPING.of(self.core.tallies.flapping(now)))
        yield fs.HOSTS_SAVING.of(len(self.core.idle.candidates(self.views.power, now)))

    # ----------------------------------------------------------------------------------------------- claims and reclaims

    def _claims(self, web: list[str], now: float) -> Iterator[Metric]:
        custody, claims = self.core.custody, self.core.state.open_claims
        opened, hosts, lasts = fs.CLAIMS_OPEN.family(), fs.CLAIM_HOSTS.family(), fs.CLAIM_OPEN_S.family()
        took = fs.CLAIM_S.family()
        for name in web:
            claim = claims.get(name)
            opened.add_metric([name], float(claim is not None))
            hosts.add_metric([name], max(0, custody.state.demands.get(name, 0) - custody.held(name)))
            lasts.add_metric([name], 0.0 if claim is None else max(0.0, now - claim.at))
            times = self.core.state.levels.claims.get(name, Times())
            took.add_metric([name], times.cumulated(), times.sum_s)
        yield from (opened, hosts, lasts, took)

    def _reclaims(self, names: list[str], now: float) -> Iterator[Metric]:
        """A host that is asked for is first held above the quota, then on its way until it is clear."""
        custody, levels = self.core.custody, self.core.state.levels
        hosts, lasts, took = fs.RECLAIM_HOSTS.family(), fs.RECLAIM_OPEN_S.family(), fs.RECLAIM_S.family()
        for name in names:
            leaving = [since for dept, since in levels.leaving.values() if dept == name]
            asked = [levels.asked[name]] if name in levels.asked else []
            above = max(0, custody.held(name) - custody.quota(name).hosts) if asked else 0
            hosts.add_metric([name], above + len(leaving))
            lasts.add_metric([name], max(0.0, now - min([*leaving, *asked], default=now)))
            times = levels.reclaims.get(name, Times())
            took.add_metric([name], times.cumulated(), times.sum_s)
        yield from (hosts, lasts, took)

    # ------------------------------------------------------------------------------------------------------------ web

    def _web(self, web: list[str], now: float) -> Iterator[Metric]:
        custody, state = self.core.custody, self.core.state
        wanted, held, running = fs.WEB_WANTED.family(), fs.WEB_HELD.family(), fs.WEB_RUNNING.family()
        draining, short, lasts = fs.WEB_DRAINING.family(), fs.WEB_SHORT.family(), fs.WEB_SHORT_FOR.family()
        serving, not_ready = fs.WEB_SERVING.family(), fs.WEB_NOT_READY.family()
        for name in web:
            units = [custody.state.units[u] for u in custody.index.open.get(name, ()) if is_instance(u)]
            live = [unit for unit in units if unit.live]
            wanted.add_metric([name], state.instances.get(name, 0))
            held.add_metric([name], len(live))
            running.add_metric([name], sum(unit.began_at is not None for unit in live))
            draining.add_metric([name], sum(unit.drains_until is not None for unit in live))
            serving.add_metric([name], sum(self.core.levels.serves(unit) for unit in live))
            begun = (unit for unit in live if unit.began_at is not None)
            not_ready.add_metric([name], sum(unit.id in state.levels.unready for unit in begun))
            shortage = state.levels.short.get(name, Shortage(now))
            self._grown.add(short, name, shortage.until(now))
            lasts.add_metric([name], 0.0 if shortage.short_at is None else max(0.0, now - shortage.short_at))
        yield from (wanted, held, running, draining, serving, not_ready, short, lasts)

    def _load(self, web: list[str]) -> Iterator[Metric]:
        load, rate, claim = fs.WEB_UTILISATION.family(), fs.WEB_RATE.family(), fs.WEB_CLAIMED.family()
        silent, troubles = fs.WEB_SILENT.family(), fs.WEB_TROUBLES.family()
        for name in web:
            codes = {one.code for one in self.views.troubles(name)}
            for code in TROUBLES:
                troubles.add_metric([name, code], float(code in codes))
            silent.add_metric([name], float(name in self.core.state.loads.silent))
            last = self.core.state.loads.last.get(name)
            if last is None:
                continue
            for family, value in (
                (load, last.utilisation),
                (rate, last.requests_per_s),
                (claim, last.claim),
            ):
                if value is not None:
                    family.add_metric([name], value)
        yield from (load, rate, claim, silent, troubles)

    def _releases(self, web: list[str]) -> Iterator[Metric]:
        number, state = fs.WEB_RELEASE.family(), fs.WEB_RELEASE_STATE.family()
        for name in web:
            found = release_views.summary(self.core.state.releases.get(name), self.core, name)
            number.add_metric([name], found["release"])
            for stage in releases.STAGES:
                state.add_metric([name, stage], float(found["state"] == stage))
        yield from (number, state)
