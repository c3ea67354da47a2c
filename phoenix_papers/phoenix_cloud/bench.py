"""`phoenix tune --experiment phoenix-cloud`: the shared cluster of `phoenix simulate phoenix-cloud`, with other settings.

Rules
  1. Cluster, window, inputs and static run are those of `rules`; a point sets what it sets, and the rest is the
     paper's.  Estimates are what users asked for, since backfill decides by them; suspending takes no time.
  2. The inputs are given: a point does not change them.
  3. With `services` in the policy (order svmsched) each user belongs to one of them, by name.
  4. Limits may stand against `static`, two clusters of 208 nodes, in the same world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import UNLIMITED_S, Document, Limit, Scenario, digest, measured
from phoenix_papers.phoenix_cloud import rules, worlds
from phoenix_papers.phoenix_cloud.inputs import Inputs, read, with_service
from phoenix_papers.phoenix_cloud.worlds import World

NAME: Final = "phoenix-cloud"
STATIC: Final = "static"
NODES: Final = 160  # where no axis says so: the size of the paper's claim
_GIVEN: Final = ("hpc.jobs", "web.demand", "web.load")  # rule 2
DOCUMENT: Final[dict[str, Any]] = {
    "cluster": {"hosts": NODES, "cores": rules.CORES},
    "department": [
        {
            "name": "hpc",
            "kind": "batch",
            "jobs": {"generator": "lublin", "jobs": 1, "processors": 1},  # stands where the given ones do
            "batch": {**rules.POLICY, "on_reclaim": "requeue"},
        },
        {
            "name": "web",
            "kind": "web",
            "demand": {"generator": "daily", "peak": rules.WEB_NODES, "days": 14.0},
            "web": {"rule": "threshold", "drain_s": 0.0},
        },
    ],
}


class Cloud(Document):
    """A `Bench`."""

    def __init__(self, inputs: Inputs, held_out: Sequence[World] = (), on: World | None = None) -> None:
        """`on`: what is tuned on instead of the inputs; it is not held out then."""
        super().__init__(DOCUMENT, Path())
        self.name, self.against, self.kinds = NAME, STATIC, {"hpc": "batch", "web": "web"}
        self.sizes: tuple[int, ...] = (NODES,)
        self.limits: tuple[Limit, ...] = ()
        own = World("", rules.lay_out(inputs.jobs, estimates=True), inputs.demand) if on is None else on
        others = [world for world in held_out if world.name != own.name]
        self._worlds = {"": own, **{world.name: world for world in others}}
        self.worlds = tuple(world.name for world in others)
        source = own.name or f"{inputs.jobs_from} and {inputs.web_from}"
        self.parts = {"inputs": f"{source}, {digest(own.works, own.demand)}"}
        self.notes = list(inputs.notes)

    def legal(self, name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        if name.startswith(_GIVEN):
            return "should be left out: the jobs and the web load of this experiment are given"
        return super().legal(name, value, beside)

    def scenario(self, values: Mapping[str, Any], world: str) -> Scenario:
        """Rules 1 and 3."""
        given, variant = self._worlds[world], self.variant(values)[0]
        services = next(d.batch.services for d in variant.config.departments if d.batch is not None)
        works = tuple(with_service(work, list(services)) for work in given.works) if services else given.works
        return Scenario(
            label=NAME,
            config=variant.config,
            hosts=variant.sizes[0],
            host_cores=variant.cluster.cores,
            host_memory_mb=variant.cluster.memory_mb,
            jobs={"hpc": works},
            web={"web": given.demand},
            window_s=rules.WINDOW_S,
            latencies=variant.latencies,
        )

    def run(self, values: Mapping[str, Any], world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        return measured(self.scenario(values, world), metrics, self.kinds)

    def reference(self, world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        """Rule 4."""
        given = self._worlds[world]
        works = tuple(msgspec.structs.replace(work, walltime_s=UNLIMITED_S) for work in given.works)
        return measured(rules.static(works, given.demand), metrics, self.kinds)


def bench(jobs: Path | None, web: Path | None, holdout: Sequence[str], on: str | None) -> Cloud:
    """What `phoenix tune` searches, given its options.  Raises CliError and InputError."""
    inputs = read(jobs, web)
    held_out, notes = worlds.held_out(holdout, inputs)
    found = Cloud(inputs, held_out, None if on is None else worlds.named(on, inputs))
    found.notes += notes
    return found
