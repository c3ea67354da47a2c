"""Inputs of `phoenix-cloud` that are not tuned on: the other logs of the archive, a person's logs, and generated days.

Rules
  1. Every world has the experiment's window of 14 days, and offers as much work as the log that is tuned on.  What differs is
     how it comes: how long and wide jobs are, when and by whom they are submitted.
  2. Of a log: from two places on, at a quarter and three quarters of it, as many days as hold that work; gaps between
     submissions are drawn together, or apart, so that they fill the window.  A node is a node of the log's machine.
  3. The 65 days of SDSC Blue begin with the fortnight that is tuned on: it is left out.
  4. The web load of a log's worlds is that of the experiment.  Generated days have jobs and web load of their own seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from phoenix.plugin.simulation import LogJob, WebInput, Work, layout, seeds_of, swf, traces, usage, web_csv
from phoenix_papers.phoenix_cloud import rules
from phoenix_papers.phoenix_cloud.inputs import LOGS, Inputs, generated_jobs, generated_web

PLACES: Final = (0.25, 0.75)  # rule 2
RIGHT: Final = '"logs" (the archive\'s others), "seeds=2-4" (generated days), or a log of your own, FILE.swf'


class World(NamedTuple):
    """An input, ready to be submitted."""

    name: str
    works: tuple[Work, ...]
    demand: WebInput


def held_out(words: Sequence[str], inputs: Inputs) -> tuple[list[World], list[str]]:
    """What `--holdout` names, and notes for people.  Raises CliError and InputError."""
    worlds: list[World] = []
    notes: list[str] = []
    for word in dict.fromkeys(words):
        if (seeds := seeds_of(word)) is not None:
            worlds += [_generated(seed) for seed in seeds]
        elif word == "logs":
            missing = [file for _, file in LOGS if file != traces.SDSC_BLUE and traces.find(file) is None]
            notes += [f"{file} is not there ({traces.looked_in()}): it is left out" for file in missing]
            worlds += _of_logs(inputs)
        elif word.endswith((".swf", ".swf.gz")):
            worlds += _of_log(Path(word).name, Path(word), inputs)
        else:
            raise usage(f"--holdout {word}: should be {RIGHT}")
    if words and not worlds:
        raise usage(f"--holdout {' '.join(words)}: there is nothing to judge on", f"name {RIGHT}")
    return worlds, notes


def named(name: str, inputs: Inputs) -> World:
    """One of the worlds that `--holdout` would have, by its name in the report.  Raises CliError and InputError."""
    kind, _, seed = name.partition(" ")
    if kind == "generated" and seed.isdecimal() and seed.isascii():
        return _generated(int(seed))
    found = {world.name: world for world in _of_logs(inputs)}
    if name not in found:
        raise usage(f"--on {name!r}: there is no such world", f"one of {', '.join([*found, 'generated 2'])}")
    return found[name]


def _generated(seed: int) -> World:
    demand = WebInput(demand=web_csv.demand(generated_web(seed), rules.WEB_NODES))
    return World(f"generated {seed}", rules.lay_out(generated_jobs(seed), estimates=True), demand)


def _of_logs(inputs: Inputs) -> list[World]:
    """Of the archive's other logs, those that are there."""
    found = [(name, path) for name, file in LOGS if file != traces.SDSC_BLUE and (path := traces.find(file))]
    return [world for name, path in found for world in _of_log(name, path, inputs)]


def _of_log(name: str, path: Path, inputs: Inputs) -> list[World]:
    """Rules 2 and 3."""
    log = swf.read(path)
    cores = log.processors_per_node or 1
    wanted = node_s(inputs.jobs, rules.CORES)
    since_s = rules.WINDOW_S if path.name == dict(LOGS).get("SDSC-Blue-65d") else 0.0
    until_s = log.jobs[-1].submit_s
    found = []
    for number, place in enumerate(PLACES, start=1):
        begin_s = since_s + place * (until_s - since_s)
        end_s = _end_of(log.jobs, begin_s, cores, wanted)
        works = layout.lay_out(
            log.jobs,
            cores_per_host=cores,
            use_memory=False,
            window=(begin_s, end_s),
            load_factor=(end_s - begin_s) / rules.WINDOW_S,
        )
        found.append(World(f"{name} {number}", tuple(works), inputs.demand))
    return found


def node_s(jobs: Sequence[LogJob], cores: int) -> float:
    return math.fsum(job.run_s * math.ceil(job.processors / cores) for job in jobs)


def _end_of(jobs: Sequence[LogJob], begin_s: float, cores: int, wanted: float) -> float:
    """Just behind the job with which there is so much work; behind the last one if there is less."""
    total = 0.0
    for job in jobs:
        if job.submit_s >= begin_s:
            total += node_s([job], cores)
            if total >= wanted:
                return job.submit_s + 1.0
    return jobs[-1].submit_s + 1.0
