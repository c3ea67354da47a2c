"""The logs that simulators are compared on: made so that each of them reads the same jobs from the same file.

Rules
  1. A processor of such a log is one node.  SDSC Blue's nodes have eight processors: a job gets ceil(processors / 8) of them.
  2. Whole seconds and at least one, a numbered user, no memory: what AccaSim's reader takes as it stands.
  3. Generated logs are the model of Lublin and Feitelson for a machine of so many nodes, seed `SEED`, offered load `LOAD`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from phoenix.simulate import lublin, swf
from phoenix.simulate.workload import LogJob

SDSC = Path(__file__).parent.parent.parent / "shared" / "traces" / "sdsc-blue-reconstructed-14days.swf"
SDSC_NODES = 144
PROCESSORS_PER_NODE = 8
SEED = 1
LOAD = 0.7  # busy, and the queue comes to an end: a longer one measures the queue alone


def sdsc(path: Path) -> list[LogJob]:
    """Rule 1."""
    return [plain(job, -(-job.processors // PROCESSORS_PER_NODE)) for job in swf.read(path).jobs]


def generated(count: int, nodes: int) -> list[LogJob]:
    """Rule 3."""
    return [plain(job, job.processors) for job in lublin.generate(count, nodes, SEED, LOAD)]


def plain(job: LogJob, nodes: int) -> LogJob:
    """Rule 2."""
    run_s = max(1.0, float(round(job.run_s)))
    return msgspec.structs.replace(
        job,
        submit_s=float(round(job.submit_s)),
        run_s=run_s,
        processors=nodes,
        requested_s=run_s,
        memory_mb=None,
        user="1",
    )


def write(path: Path, jobs: Sequence[LogJob]) -> None:
    swf.write(path, jobs)
