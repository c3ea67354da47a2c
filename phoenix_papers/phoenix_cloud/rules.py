"""The rules of the Phoenix Cloud paper's evaluation (§III-D) as scenarios for the engine.

Rules
  1. A job needs ceil(processors / 8) whole nodes; it runs for its recorded time, at least 1 s, and no time limit ends it.
  2. The web department wants max(1, ceil(64 · r / max r)) nodes in each minute, r the requests of that minute.
  3. Static: 144 nodes for batch alone and 64 for web alone.  Dynamic: all nodes are shared.
  4. First fit in order of entry; victims by minimum size, shortest running time, job number: greedy, whole jobs, nothing added
     back.  A victim is gone (`kill`), or enters the queue again at its end and runs from the start (`requeue`).
  5. Reclaim, boot and drain take no time.  The window is 14 days; what ends later is unfinished.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from phoenix.plugin.simulation import ALL_CAPABILITIES as ALL
from phoenix.plugin.simulation import (
    BatchPolicy,
    CloudConfig,
    Department,
    LogJob,
    OnReclaim,
    Scenario,
    WebInput,
    WebPolicy,
    Work,
    layout,
)

CORES: Final = 8  # of a node
BATCH_NODES: Final = 144
WEB_NODES: Final = 64
STATIC_NODES: Final = BATCH_NODES + WEB_NODES
SIZES: Final = (200, 190, 180, 170, 160, 150)
WINDOW_S: Final = 14 * 86400.0
READINGS: Final[tuple[OnReclaim, ...]] = ("kill", "requeue")
POLICY: Final = {  # rule 4
    "order": "first-fit",
    "victims": "smallest-shortest",
    "requeue_place": "end",
    "requeues_max": 1_000_000,  # a job comes back however often it was preempted
}


def lay_out(jobs: Sequence[LogJob], *, estimates: bool = False) -> tuple[Work, ...]:
    """Rule 1.  `estimates`: keep what users asked for as the time limit, as far as it does not end the job; backfill needs it.
    Where it is unknown, three times the run time stands in.  Raises InputError if there is no job."""
    walltime: layout.Walltime = "requested" if estimates else "unlimited"
    return tuple(layout.lay_out(jobs, cores_per_host=CORES, use_memory=False, walltime=walltime))


def static(works: tuple[Work, ...], demand: WebInput) -> Scenario:
    """Rule 3: two clusters, as guarantees and maxima of one."""
    return _scenario("static", STATIC_NODES, works, demand, BatchPolicy(), dedicated=True)


def dynamic(nodes: int, on_reclaim: OnReclaim, works: tuple[Work, ...], demand: WebInput) -> Scenario:
    """Rules 3 and 4, the paper's own policies."""
    return shared(f"{nodes} {on_reclaim}", nodes, policy(on_reclaim=on_reclaim), works, demand)


def policy(**settings: Any) -> BatchPolicy:
    """The paper's, but for these settings."""
    return BatchPolicy(**{**POLICY, **settings})


def shared(label: str, nodes: int, policy: BatchPolicy, works: tuple[Work, ...], demand: WebInput) -> Scenario:
    """A shared cluster with some policy of the batch department."""
    return _scenario(label, nodes, works, demand, policy, dedicated=False)


def _scenario(
    label: str, nodes: int, works: tuple[Work, ...], demand: WebInput, policy: BatchPolicy, *, dedicated: bool
) -> Scenario:
    own = {"hpc": BATCH_NODES, "web": WEB_NODES} if dedicated else {}
    departments = (
        Department(name="hpc", kind="batch", batch=policy, guarantee=own.get("hpc", 0), maximum=own.get("hpc")),
        Department(
            name="web",
            kind="web",
            guarantee=own.get("web", 0),
            maximum=own.get("web"),
            web=WebPolicy(rule="threshold", instances_max=nodes, drain_s=0.0),
        ),
    )
    return Scenario(
        label=label,
        config=CloudConfig(name="phoenix-cloud", departments=departments, capabilities=ALL),
        hosts=nodes,
        host_cores=CORES,
        jobs={"hpc": works},
        web={"web": demand},
        window_s=WINDOW_S,
    )
