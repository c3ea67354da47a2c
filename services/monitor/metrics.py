"""What the monitor exports beside the runtime's own metrics: hosts, queues, jobs, claims, web load.

Collected when somebody scrapes, from the read model: nothing is counted twice and nothing is kept.  Counters of usage are
folded from the journal: a restart does not set them back.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.monitor import families as fs
from services.monitor import releases
from services.monitor.core import MonitorCore
from services.monitor.views import Views
from services.runtime.clock import Clock, system_clock


class ReadModel(Collector):
    """Registers with a Prometheus registry."""

    def __init__(self, core: MonitorCore, views: Views, clock: Clock = system_clock) -> None:
        self.core, self.views, self.clock = core, views, clock

    def collect(self) -> Iterator[Metric]:
        yield self._hosts()
        yield self._set_apart()
        yield self._power()
        yield from self._departments()
        yield from self._releases()
        yield from self._accounts()
        yield from self._levels()
        voids = fs.VOIDS.family()
        for reason, count in sorted(self.core.custody.state.voids.items()):
            voids.add_metric([reason], count)
        yield voids

    def _hosts(self) -> Metric:
        hosts = fs.HOSTS.family()
        found: dict[tuple[str, str], int] = {}
        for host in self.core.custody.state.hosts.values():
            key = (str(host.state), (host.dept or "") if host.state == "held" else "")
            found[key] = found.get(key, 0) + 1
        for key, count in sorted(found.items()):
            hosts.add_metric(list(key), count)
        return hosts

    def _set_apart(self) -> Metric:
        found: dict[str, int] = {}
        now = self.clock()
        for host in self.core.custody.state.hosts.values():
            if host.quarantine_until > now and host.quarantine is not None:
                found[host.quarantine] = found.get(host.quarantine, 0) + 1
        apart = fs.HOSTS_APART.family()
        for reason, count in sorted(found.items()):
            apart.add_metric([reason], count)
        return apart

    def _power(self) -> Metric:
        return fs.HOSTS_SAVING.of(len(self.core.idle.candidates(self.views.power, self.clock())))

    def _departments(self) -> Iterator[Metric]:
        quota, demand, jobs = fs.HOSTS_QUOTA.family(), fs.HOSTS_DEMANDED.family(), fs.JOBS.family()
        load, rate, claim = fs.WEB_UTILISATION.family(), fs.WEB_RATE.family(), fs.WEB_CLAIMED.family()
        wanted, running, silent = fs.WEB_WANTED.family(), fs.WEB_RUNNING.family(), fs.WEB_SILENT.family()
        for view in self.views.departments()["departments"]:
            name = [view["department"]]
            quota.add_metric(name, view["hosts_quota"])
            demand.add_metric(name, view["hosts_demanded"])
            for state, count in sorted(view["jobs"].items()):
                jobs.add_metric([*name, state], count)
            if view["kind"] == "web":
                wanted.add_metric(name, view["instances_wanted"] or 0)
                running.add_metric(name, view["instances_running"])
                silent.add_metric(name, float(view["signal_missing_since"] is not None))
            for family, key in ((load, "utilisation"), (rate, "requests_per_s"), (claim, "claim")):
                if view[key] is not None:
                    family.add_metric(name, view[key])
        yield from (quota, demand, jobs, load, rate, claim, silent, wanted, running)

    def _releases(self) -> Iterator[Metric]:
        number, state = fs.WEB_RELEASE.family(), fs.WEB_RELEASE_STATE.family()
        for view in self.views.departments()["departments"]:
            if view["release"] is not None:
                number.add_metric([view["department"]], view["release"]["release"])
                for stage in releases.STAGES:
                    state.add_metric([view["department"], stage], float(view["release"]["state"] == stage))
        yield from (number, state)

    def _accounts(self) -> Iterator[Metric]:
        """Lost: also what a late success took back, since a counter never falls."""
        found = self.core.accounting.totals(round(self.clock() * 1000))
        held, lent, borrowed = fs.HELD_HOST_S.family(), fs.LENT_HOST_S.family(), fs.BORROWED_HOST_S.family()
        used, lost = fs.USED_CORE_S.family(), fs.LOST_CORE_S.family()
        for dept, span in sorted(found.items()):
            held.add_metric([dept], span.held / 1000)
            lent.add_metric([dept], span.lent / 1000)
            borrowed.add_metric([dept], span.borrowed / 1000)
            used.add_metric([dept], span.used / 1000)
            lost.add_metric([dept], (span.lost + span.failed + span.recovered) / 1000)
        yield from (held, lent, borrowed, used, lost)

    def _levels(self) -> Iterator[Metric]:
        """Levels of service (`services.monitor.service_levels`)."""
        state, now = self.core.state.levels, self.clock()
        for declared, times in ((fs.CLAIM_S, state.claims), (fs.RECLAIM_S, state.reclaims)):
            family = declared.family()
            for dept, found in sorted(times.items()):
                family.add_metric([dept], list(found.cumulated()), found.sum_s)
            yield family
        ended = fs.ATTEMPTS_CLOSED.family()
        for dept, reasons in sorted(state.ended.items()):
            for why, disposals in sorted(reasons.items()):
                for disposal, count in sorted(disposals.items()):
                    ended.add_metric([dept, why, disposal], count)
        short = fs.WEB_SHORT.family()
        for dept, shortage in sorted(state.short.items()):
            short.add_metric([dept], shortage.until(now))
        yield from (ended, short)
