"""What the monitor exports beside the runtime's own metrics: hosts, queues, jobs, claims, web load.

Collected when somebody scrapes, from the read model: nothing is counted twice and nothing is kept.  Counters of usage are
folded from the journal: a restart does not set them back.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

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
        yield self._outcomes()
        yield from self._accounts()
        yield from self._levels()
        voids = CounterMetricFamily("phoenix_custody_void_facts", "Facts that were void, by reason", labels=["reason"])
        for reason, count in sorted(self.core.custody.state.voids.items()):
            voids.add_metric([reason], count)
        yield voids

    def _hosts(self) -> Metric:
        hosts = GaugeMetricFamily("phoenix_hosts", "Hosts by state and holder", labels=["state", "department"])
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
        apart = GaugeMetricFamily("phoenix_hosts_quarantined", "Hosts in quarantine, by reason", labels=["reason"])
        for reason, count in sorted(found.items()):
            apart.add_metric([reason], count)
        return apart

    def _power(self) -> Metric:
        count = len(self.core.idle.candidates(self.views.power, self.clock()))
        told = "Hosts that have been empty for so long that they could be switched off"
        return GaugeMetricFamily("phoenix_hosts_power_saving_candidates", told, value=float(count))

    def _departments(self) -> Iterator[Metric]:
        label = ["department"]
        quota = GaugeMetricFamily("phoenix_hosts_quota", "Hosts that a department may keep", labels=label)
        demand = GaugeMetricFamily("phoenix_hosts_demanded", "Hosts that a department wants in all", labels=label)
        jobs = GaugeMetricFamily("phoenix_jobs", "Jobs that are not over, by state", labels=["department", "state"])
        load = GaugeMetricFamily("phoenix_web_utilisation_ratio", "Utilisation last observed", labels=label)
        rate = GaugeMetricFamily("phoenix_web_requests_per_second", "Requests/s last observed", labels=label)
        claim = GaugeMetricFamily("phoenix_web_instances_claimed", "Instances that balancers claim", labels=label)
        silent = GaugeMetricFamily(
            "phoenix_web_signal_missing", "1 while the number is held because no signal tells the load", labels=label
        )
        wanted = GaugeMetricFamily(
            "phoenix_web_instances_wanted", "Instances that a web department wants", labels=label
        )
        running = GaugeMetricFamily("phoenix_web_instances_running", "Instances in service", labels=label)
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
        number = GaugeMetricFamily(
            "phoenix_web_release", "Release that instances are to run; 0: the configuration's", labels=["department"]
        )
        state = GaugeMetricFamily(
            "phoenix_web_release_state", "1 for how far that release is", labels=["department", "state"]
        )
        for view in self.views.departments()["departments"]:
            if view["release"] is not None:
                number.add_metric([view["department"]], view["release"]["release"])
                for stage in releases.STAGES:
                    state.add_metric([view["department"], stage], float(view["release"]["state"] == stage))
        yield from (number, state)

    def _outcomes(self) -> Metric:
        outcomes = CounterMetricFamily("phoenix_job_outcomes", "What became of attempts and jobs", labels=["outcome"])
        for outcome, count in sorted(self.core.state.counts.items()):
            outcomes.add_metric([outcome], count)
        return outcomes

    def _accounts(self) -> Iterator[Metric]:
        """Lost: also what a late success took back, since a counter never falls."""
        label, found = ["department"], self.core.accounting.totals(round(self.clock() * 1000))
        held = CounterMetricFamily("phoenix_held_host_seconds", "Host-seconds held", labels=label)
        lent = CounterMetricFamily("phoenix_lent_host_seconds", "Host-seconds of its own that others had", labels=label)
        borrowed = CounterMetricFamily("phoenix_borrowed_host_seconds", "Host-seconds beyond its own", labels=label)
        used = CounterMetricFamily("phoenix_used_core_seconds", "Core-seconds of attempts", labels=label)
        lost = CounterMetricFamily(
            "phoenix_lost_core_seconds",
            "Core-seconds run and thrown away: preempted, or a host or VM failed",
            labels=label,
        )
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
        for name, text, times in (
            ("phoenix_claim_seconds", "From a web department's claim until it held what it demands", state.claims),
            (
                "phoenix_reclaim_seconds",
                "From asking a department for a host until that host was clear",
                state.reclaims,
            ),
        ):
            family = HistogramMetricFamily(name, text, labels=["department"])
            for dept, found in sorted(times.items()):
                family.add_metric([dept], list(found.cumulated()), found.sum_s)
            yield family
        ended = CounterMetricFamily(
            "phoenix_attempts_closed",
            "Attempts that their scheduler closed, by reason and by what became of job or instance",
            labels=["department", "why", "disposal"],
        )
        for dept, reasons in sorted(state.ended.items()):
            for why, disposals in sorted(reasons.items()):
                for disposal, count in sorted(disposals.items()):
                    ended.add_metric([dept, why, disposal], count)
        short = CounterMetricFamily(
            "phoenix_web_shortfall_instance_seconds",
            "Instance-seconds for which fewer instances were in service than wanted",
            labels=["department"],
        )
        for dept, shortage in sorted(state.short.items()):
            short.add_metric([dept], shortage.until(now))
        yield from (ended, short)
