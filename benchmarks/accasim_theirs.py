"""The child that runs AccaSim 1.1.3: FIFO order, first-fit allocator, on a log in Standard Workload Format.

    .tools/accasim/bin/python -m benchmarks.accasim_theirs LOG.swf --nodes 1000 --order first-fit --scratch DIR

Runs in AccaSim's own environment, so it imports nothing of ours.  Prints one line of JSON: what was simulated, and the CPU
seconds at which the imports were over and the simulation had ended.

Rules
  1. A node has one core and no other resource, and a processor of the log is one node: whole nodes, as in our run.
  2. `first-fit` is its FIFO scheduler that skips a job which does not fit (`skip_jobs_on_allocation`); `fcfs` stops at it.
  3. Everything that it writes beside its answer is off (schedule, statistics, memory samples), as ours writes nothing.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import importlib
import json
import pathlib
import time
from typing import Any


def simulator(log: str, nodes: int, order: str, scratch: pathlib.Path) -> Any:
    """AccaSim on `nodes` one-core nodes."""
    vars(collections)["Mapping"] = collections.abc.Mapping  # gone since Python 3.10; AccaSim was written for 3.5
    simulators = importlib.import_module("accasim.base.simulator_class")
    schedulers = importlib.import_module("accasim.base.scheduler_class")
    allocators = importlib.import_module("accasim.base.allocator_class")
    system = scratch / "system.json"
    system.write_text(json.dumps({"groups": {"node": {"core": 1}}, "resources": {"node": nodes}, "start_time": 0}))
    dispatcher = schedulers.FirstInFirstOut(allocators.FirstFit(), skip_jobs_on_allocation=order == "first-fit")
    return simulators.Simulator(
        log,
        str(system),
        dispatcher,
        scheduling_output=False,
        statistics_output=False,
        show_statistics=False,
        RESULTS_FOLDER_PATH=str(scratch),
        LOG_LEVEL="ERROR",
    )


def peak_mb() -> float:
    """The most memory that this program had, MiB.  Not `ru_maxrss`, which begins with what the parent had at the fork."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--order", choices=["first-fit", "fcfs"], required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    given = parser.parse_args()
    made = simulator(given.log, given.nodes, given.order, given.scratch)
    started_cpu_s, started = time.process_time(), time.perf_counter()
    made.start_simulation()
    events = made.mapper
    answer = {
        "completed": events.finished,
        "refused": made.rejected_jobs,
        "last_end_s": events.last_run_time,
        "wait_s": sum(events.wtimes),
        "start_cpu_s": started_cpu_s,
        "run_cpu_s": time.process_time() - started_cpu_s,
        "run_wall_s": time.perf_counter() - started,
        "peak_mb": peak_mb(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
