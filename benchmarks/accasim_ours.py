"""The child that runs our simulator on the log that AccaSim gets: the same questions, the same answer.

    python -m benchmarks.accasim_ours LOG.swf --nodes 1000 --order first-fit

Rules
  1. A processor of the log is one whole node; one batch department holds the cluster; jobs run as long as the log says.
  2. Nothing is left out for speed: every fact goes through custody and the cores of production, as in any experiment.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import time

from phoenix.simulate import swf
from phoenix.simulate.engine import run
from phoenix.simulate.workload import LogJob, Outcome, Scenario, Work
from schemas.config import BatchPolicy, CloudConfig, Department

DEPARTMENT = "hpc"


def scenario(jobs: tuple[LogJob, ...], nodes: int, order: str) -> Scenario:
    """A cluster of `nodes` that one batch department holds alone, until every job has ended."""
    department = Department(name=DEPARTMENT, kind="batch", batch=BatchPolicy(order=order))
    works = tuple(Work(number=job.number, submit_s=job.submit_s, run_s=job.run_s, nodes=job.processors) for job in jobs)
    config = CloudConfig(name="bench", departments=(department,))
    return Scenario(label="bench", config=config, hosts=nodes, jobs={DEPARTMENT: works})


def told(outcome: Outcome) -> dict[str, float]:
    """What both simulators are asked, so that a reader sees that they did the same work."""
    done = [job for job in outcome.jobs if job.end == "completed"]
    return {
        "completed": len(done),
        "refused": outcome.refused,
        "last_end_s": max((job.end_s for job in done if job.end_s is not None), default=math.nan),
        "wait_s": math.fsum(job.start_s - job.submit_s for job in done if job.start_s is not None),
    }


def peak_mb() -> float:
    """The most memory that this program had, MiB.  Not `ru_maxrss`, which begins with what the parent had at the fork."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--order", choices=["first-fit", "fcfs"], required=True)
    given = parser.parse_args()
    started_cpu_s, started = time.process_time(), time.perf_counter()
    outcome = run(scenario(swf.read(given.log).jobs, given.nodes, given.order))
    answer = {
        **told(outcome),
        "facts": outcome.facts,
        "start_cpu_s": started_cpu_s,
        "run_cpu_s": time.process_time() - started_cpu_s,
        "run_wall_s": time.perf_counter() - started,
        "peak_mb": peak_mb(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
