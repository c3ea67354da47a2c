"""Where OpenNebula and the journal differ, and for how long; and how busy hosts really are, as Prometheus is told."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from services.executor.core.calls import Phase, Sample, Sight, VmsSeen
from services.executor.edge.circuit_breaker import Endpoint
from services.executor.edge.drift import KINDS, Disagreements
from services.executor.edge.metrics import ExecutorMetrics
from services.runtime.log import get_log
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import CLOUD


def told(bench: Bench) -> dict[str, int]:
    """The kinds of which there is any."""
    found = Disagreements(bench.core).told(0.0)
    assert tuple(found) == KINDS
    return {kind: count for kind, (count, _) in found.items() if count}


def test_what_agrees_is_no_difference_nor_is_what_was_not_looked_at() -> None:
    bench = held()
    bench.run("1", "h0")
    assert told(bench) == {}
    assert told(Bench(audited=False)) == {}


def test_a_vm_of_ours_that_the_journal_does_not_know() -> None:
    bench = held()
    bench.vms[99], bench.tags[99] = Phase.RUNNING, f"{CLOUD}/7/1/0"
    bench.audit()
    assert told(bench) == {"stray": 1}
    bench.settle()
    bench.audit()
    assert told(bench) == {}


def test_a_vm_that_has_gone_is_missing_until_the_journal_says_so() -> None:
    bench = held()
    bench.gone(bench.run("1", "h0")[0])
    bench.audit()
    assert told(bench) == {"missing": 1}
    bench.settle()
    assert told(bench) == {}


def test_a_vm_that_somebody_has_moved() -> None:
    bench = held()
    vm = bench.run("1", "h0")[0]
    bench.core.observe(VmsSeen(bench.core.ticket(), [vm], [Sight(vm, Phase.RUNNING, one_host=1)]), bench.now)
    assert told(bench) == {"elsewhere": 1}


def test_a_host_that_opennebula_has_no_more() -> None:
    bench = held()
    del bench.hosts["h0"]
    bench.see_hosts()
    assert told(bench) == {"host_missing": 1}


def test_it_lasts_from_when_it_was_first_seen_and_begins_anew() -> None:
    bench = held()
    differ, vm = Disagreements(bench.core), bench.run("1", "h0")[0]
    bench.gone(vm)
    bench.audit()
    differ.look(5.0)
    assert differ.told(12.0)["missing"] == (1, 7.0)
    bench.settle()
    assert differ.told(13.0)["missing"] == (0, 0.0)


def test_how_busy_hosts_are_is_told_by_holder() -> None:
    bench, registry = held("h0", "h1"), CollectorRegistry()
    ExecutorMetrics(registry, bench.core, Endpoint("u", Path("a"), get_log()), lambda: 0)
    assert registry.get_sample_value("phoenix_cores_busy", {"department": "hpc"}) is None, "nothing is known yet"
    bench.samples = {0: Sample(1, 150, 1 << 10), 1: Sample(1, 50, 1 << 10), 2: Sample(1, 400)}
    bench.see_hosts()
    assert registry.get_sample_value("phoenix_cores_busy", {"department": "hpc"}) == 2.0
    assert registry.get_sample_value("phoenix_cores_busy", {"department": ""}) == 4.0
    assert registry.get_sample_value("phoenix_memory_busy_bytes", {"department": "hpc"}) == 2 << 20
