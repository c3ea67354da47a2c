"""`phoenix tune --experiment FILE.toml`: an experiment file of `phoenix simulate`, with other settings.

Rules
  1. The file has no [[vary]]: what varies is the space.  It has one number of hosts, or the space has an axis `cluster.hosts`.
  2. A trial is the mean over the file's seeds.  Limits of its [goal] are kept beside those of --goal.
  3. Held out are other seeds (`seeds=11-15`) of what is generated, or other files with the same departments: their inputs,
     cluster and latencies, with the point's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from phoenix.cli.errors import usage
from phoenix.search.trials import digest
from phoenix.simulate.experiment import Experiment, loads
from phoenix.simulate.scenarios import Inputs, case_of
from phoenix.tune.bench import Document, mean_of, measured, seeds_of
from phoenix.tune.goals import HOSTS
from services.runtime.config.file import document_of, text_of

RIGHT: Final = '"seeds=11-15", or another experiment with the same departments, FILE.toml'


class _World(NamedTuple):
    document: Document
    experiment: Experiment
    inputs: Inputs
    seeds: tuple[int, ...]


class File(Document):
    """A `Bench`."""

    against = ""

    def __init__(self, path: Path, held_out: Sequence[str] = ()) -> None:
        """Raises CliError, ConfigError and InputError."""
        own = _read(path)
        super().__init__(own.document.document, own.document.base)
        self.name = own.experiment.name
        self.kinds = _kinds(own)
        self.limits = own.experiment.goal
        self.sizes = own.experiment.variants[0].sizes
        self._worlds = {"": own, **self._held_out(own, held_out)}
        self.worlds = tuple(name for name in self._worlds if name)
        for world in self._worlds.values():  # read and made now, and not in every worker
            for seed in world.seeds:
                self._scenario({HOSTS: 1}, world, seed)
        self.parts = {"experiment": f"{path.name}, {digest(own.document.document)}", "inputs": self._inputs_digest(own)}
        self.notes = [note for world in self._worlds.values() for note in world.inputs.notes]

    def run(self, values: Mapping[str, Any], world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        """Rule 2."""
        names, given = list(metrics), self._worlds[world]
        return mean_of([measured(self._scenario(values, given, seed), names, self.kinds) for seed in given.seeds])

    def reference(self, world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        del world, metrics  # there is no such run
        return {}

    def _scenario(self, values: Mapping[str, Any], world: _World, seed: int) -> Any:
        variant = world.document.variant(values)[0]
        return world.inputs.scenario(case_of(world.experiment, variant, variant.sizes[0], seed))

    def _inputs_digest(self, own: _World) -> str:
        scenario = self._scenario({HOSTS: 1}, own, own.seeds[0])
        return f"seeds {list(own.seeds)}, {digest(scenario.jobs, scenario.web)}"

    def _held_out(self, own: _World, words: Sequence[str]) -> dict[str, _World]:
        """Rule 3."""
        found: dict[str, _World] = {}
        for word in words:
            if (seeds := seeds_of(word)) is not None:
                self._check_seeds(own, word, seeds)
                found |= {f"seed {seed}": own._replace(seeds=(seed,)) for seed in seeds}
            elif word.endswith(".toml"):
                other = _read(Path(word))
                if _kinds(other) != self.kinds:
                    raise usage(f"--holdout {word}: its departments are {_kinds(other)}, not {self.kinds}")
                found[Path(word).name] = other
            else:
                raise usage(f"--holdout {word}: should be {RIGHT}")
        return found

    def _check_seeds(self, own: _World, word: str, seeds: Sequence[int]) -> None:
        if both := [seed for seed in seeds if seed in own.seeds]:
            raise usage(f"--holdout {word}: the experiment is tuned on seed {both[0]}", "name others")
        sources = [
            s for d in own.experiment.variants[0].departments for s in (d.jobs, d.demand, d.load) if s is not None
        ]
        if not any(source.generator for source in sources):
            raise usage(f"--holdout {word}: no input is generated, so every seed gives the same runs", RIGHT)


def _read(path: Path) -> _World:
    text = text_of(path)
    experiment = loads(text, path)
    if len(experiment.variants) > 1 or experiment.variants[0].name:
        raise usage(f"{path}: [[vary]] has no place in what is tuned", "write its values as axes of the space")
    document = Document(document_of(text, path.name), path.absolute().parent)
    return _World(document, experiment, Inputs(experiment), experiment.seeds)


def _kinds(world: _World) -> dict[str, str]:
    return {department.name: department.kind for department in world.experiment.variants[0].departments}
