"""Which worker runs which tests, and in which order (pytest-xdist).

Rules
  1. Tests that share a set-up of their file (`scope="module"`: mostly a whole cloud) stay on one worker: else each worker makes
     one.  Other tests of real software and of the simulation go one by one, since some of them are long; all others by file,
     but those that read the whole source stay together, since reading it takes longer than looking at it.
  2. The longest come first, so that none is waited for at the end.
  3. Tests of real software mostly wait, all others compute: both are begun in proportion, so that neither the processors stand
     still nor everything that has deadlines runs at once.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

ROOT: Final = Path(__file__).parents[2]
WAITING: Final = ("tests/integration/", "tests/hostile/")
COMPUTING: Final = "tests/integration/test_cli_"  # but these compute
SOURCE: Final = "tests/unit/test_frame"  # the whole source is read by files that begin so, and by two more
READS_SOURCE: Final = (SOURCE, "tests/unit/test_broker_client.py", "tests/unit/test_plugin_interface.py")
ONE_BY_ONE: Final = (*WAITING, "tests/simulation/")
SHARED_S: Final = 12.0  # of a file with a set-up
SINGLE_S: Final = 1.5  # of a test that goes by itself
FILE_S: Final = 0.8
SOURCE_S: Final = 45.0
# Measured, where it is far more than that; of a file, or of each of its tests.
LONG_S: Final = {
    "tests/integration/test_up_failures.py": 35.0,
    "tests/integration/test_up_usage.py": 25.0,
    "tests/integration/test_up_leases.py": 25.0,
    "tests/integration/test_up_cloud.py": 45.0,
    "tests/integration/test_up_used.py": 40.0,
    "tests/integration/test_up_supervisor.py": 35.0,
    "tests/integration/test_up_reclaim.py": 20.0,
    "tests/integration/test_up_site.py": 10.0,
    "tests/integration/test_up_outage.py": 12.0,
    "tests/integration/test_client.py": 22.0,
    "tests/integration/test_client_examples.py": 55.0,
    "tests/integration/test_faults_down.py": 44.0,
    "tests/integration/test_faults_kill.py": 30.0,
    "tests/integration/test_faults_broker.py": 25.0,
    "tests/integration/test_page.py": 40.0,
    "tests/integration/test_alerts.py": 20.0,
    "tests/integration/test_haproxy.py": 22.0,
    "tests/integration/test_haproxy_paths.py": 17.0,
    "tests/integration/test_executor_crash.py": 10.0,
    "tests/integration/test_rush.py": 10.0,
    "tests/integration/test_runtime_chaos.py": 9.0,
    "tests/integration/test_runtime_reader.py": 5.0,
    "tests/integration/test_plugin_example.py": 25.0,
    "tests/integration/test_process_driver.py": 20.0,
    "tests/integration/test_process_used.py": 35.0,
    "tests/integration/test_process_checkpoint.py": 17.0,
    "tests/integration/test_process_balancer.py": 25.0,
    "tests/integration/test_load.py": 7.0,
    "tests/integration/test_followed.py": 10.0,
    "tests/integration/test_cli_phoenix_cloud.py": 5.0,
    "tests/integration/test_cli_tune.py": 8.0,
    "tests/integration/test_cli_simulate.py": 4.0,
    "tests/hostile/test_job_network.py": 57.0,
    "tests/hostile/test_campaign.py": 20.0,
    "tests/hostile/test_instances.py": 20.0,
    "tests/hostile/test_logs.py": 10.0,
    "tests/hostile/test_ports.py": 13.0,
    "tests/hostile/test_lying_balancer.py": 10.0,
    "tests/simulation/test_chaos_seeds.py": 20.0,
    "tests/simulation/test_worlds.py": 10.0,
    "tests/simulation/test_phoenix_cloud.py": 9.0,
    "tests/simulation/test_custody_model.py": 5.0,
    "tests/properties/test_history.py": 18.0,
    "tests/properties/test_policy_check.py": 12.0,
    "tests/properties/test_leases.py": 10.0,
    "tests/properties/test_web_departments.py": 9.0,
    "tests/properties/test_contracts.py": 9.0,
    "tests/properties/test_victims.py": 8.0,
    "tests/properties/test_preemption.py": 7.0,
    "tests/properties/test_arrays.py": 7.0,
    "tests/properties/test_svmsched.py": 6.0,
    "tests/properties/test_accounting.py": 6.0,
    "tests/properties/test_quoting.py": 6.0,
    "tests/contracts/test_contracts.py": 9.0,
    "tests/unit/test_usage.py": 12.0,
    "tests/unit/test_simulate_policies.py": 11.0,
    "tests/unit/test_simulate_intergrid.py": 10.0,
    "tests/unit/test_simulate_autoscale_compare.py": 8.0,
    "tests/unit/test_alert_rules.py": 18.0,
    "tests/unit/test_mutation.py": 6.0,
    "tests/unit/test_schemas_generated.py": 6.0,
    "tests/unit/test_tools.py": 12.0,
    "tests/unit/test_public_traces.py": 11.0,
    "tests/unit/test_cli_odd_options.py": 8.0,
    "tests/unit/test_config_load.py": 6.0,
    "tests/unit/test_admission_shape.py": 5.0,
}


@cache
def shares(file: str) -> bool:
    """Rule 1."""
    return 'scope="module"' in (ROOT / file).read_text(encoding="utf-8")


def unit_of(test: str) -> str:
    """Rule 1: what goes to one worker, the file or the test."""
    file = test.partition("::")[0]
    if file.startswith(READS_SOURCE):
        return SOURCE
    return test if file.startswith(ONE_BY_ONE) and not shares(file) else file


def waits(unit: str) -> bool:
    """Rule 3."""
    return unit.startswith(WAITING) and not unit.startswith(COMPUTING)


def seconds(unit: str) -> float:
    """About how long it takes."""
    if unit == SOURCE:
        return SOURCE_S
    file, _, test = unit.partition("::")
    return LONG_S.get(file, SINGLE_S if test else SHARED_S if waits(file) else FILE_S)


class Scheduling(LoadScopeScheduling):
    """Rules 2 and 3 choose whenever a worker has room."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._begun = {True: 0.0, False: 0.0}  # seconds of those that wait, and of those that compute

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        chosen = self._next()
        self._begun[waits(chosen)] += seconds(chosen)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _next(self) -> str:
        left = {kind: [unit for unit in self.workqueue if waits(unit) is kind] for kind in (True, False)}
        shares_begun = {
            kind: self._begun[kind] / (self._begun[kind] + sum(map(seconds, units)))
            for kind, units in left.items()
            if units
        }
        behind = min(shares_begun, key=lambda kind: (shares_begun[kind], not kind))
        return max(left[behind], key=seconds)
