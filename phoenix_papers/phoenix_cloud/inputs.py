"""Where the jobs and the web demand of the experiment `phoenix-cloud` come from: a person's files, else the public traces if
they are there, else generated ones, and then the output says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from phoenix.plugin.simulation import LogJob, Series, WebInput, Work, lublin, swf, traces, web_csv, web_model
from phoenix_papers.phoenix_cloud import rules

LOGS: Final = (
    ("KTH-SP2", "KTH-SP2-1996-2.swf.gz"),
    ("NASA-iPSC", "NASA-iPSC-1993-3.1-cln.swf.gz"),
    ("SDSC-Blue-14d", traces.SDSC_BLUE),
    ("SDSC-Blue-65d", "sdsc-blue-reconstructed-65days.swf.gz"),
)
GENERATED_SEED: Final = 1
GENERATED_LOAD: Final = 0.6  # of 144 nodes; SDSC Blue's two weeks offer 0.47
GENERATED_JOBS: Final = 4000  # more than two weeks hold at that load
RECONSTRUCTED: Final = (
    "The SDSC Blue log is a public reconstruction: 2,673 jobs where the paper has 2,672; jobs cancelled before they started are"
    " missing. Figures may differ from the paper's for that reason alone."
)


class Inputs(NamedTuple):
    jobs: Sequence[LogJob]
    demand: WebInput
    jobs_from: str
    web_from: str
    notes: tuple[str, ...]
    stand_ins: tuple[str, ...] = ()  # what was generated: of such inputs nothing follows for the paper


def read(jobs: Path | None, web: Path | None) -> Inputs:
    """The person's files, else the public traces, else generated ones.  Raises InputError."""
    notes: list[str] = []
    job_file, web_file = jobs or traces.find(traces.SDSC_BLUE), web or traces.find(traces.WORLD_CUP)
    if job_file is None or web_file is None:
        notes.append(_generated_told(job_file, web_file))
    if job_file is None:
        log: Sequence[LogJob] = generated_jobs()
    else:
        found = swf.read(job_file)
        log = found.jobs
        notes += [f"{job_file}: {note}" for note in found.notes]
        notes += [f"{job_file}:{skipped.line}: {skipped.why}" for skipped in found.skipped[:5]]
        if len(found.skipped) > 5:
            notes.append(f"{job_file}: {len(found.skipped)} lines in all are no usable jobs")
        if job_file.name == traces.SDSC_BLUE:
            notes.append(RECONSTRUCTED)
    series = generated_web() if web_file is None else web_csv.read(web_file)
    demand = WebInput(demand=web_csv.demand(series, rules.WEB_NODES))
    given = {"the jobs": job_file, "the web load": web_file}
    stand_ins = tuple(name for name, file in given.items() if file is None)
    return Inputs(log, demand, _name(job_file), _name(web_file), tuple(notes), stand_ins)


def _generated_told(job_file: Path | None, web_file: Path | None) -> str:
    """Which inputs are missing, where they were looked for, and what stands in for them."""
    missing, stand_in = [], []
    if job_file is None:
        missing.append(traces.SDSC_BLUE)
        stand_in.append("jobs after Lublin and Feitelson")
    if web_file is None:
        missing.append(traces.WORLD_CUP)
        stand_in.append("a modelled web load")
    there = "is" if len(missing) == 1 else "are"
    stands = "stand" if job_file is None else "stands"
    return (
        f"{' and '.join(missing)} {there} not there ({traces.looked_in()}): {' and '.join(stand_in)} {stands} in "
        f"(seed {GENERATED_SEED})."
    )


def _name(path: Path | None) -> str:
    return "generated" if path is None else path.name


def generated_jobs(seed: int = GENERATED_SEED) -> list[LogJob]:
    """Two weeks of jobs for 144 nodes; the model's processors are nodes here."""
    jobs = lublin.generate(GENERATED_JOBS, rules.BATCH_NODES, seed, GENERATED_LOAD)
    inside = [job for job in jobs if job.submit_s < rules.WINDOW_S]
    return [msgspec.structs.replace(job, processors=job.processors * rules.CORES) for job in inside]


def generated_web(seed: int = GENERATED_SEED) -> Series:
    return web_model.generate(days=14.0, peak=10_000.0, seed=seed)


def about(inputs: Inputs, works: Sequence[Work]) -> dict[str, Any]:
    """What the JSON document says of the inputs."""
    return {
        "jobs": inputs.jobs_from,
        "web": inputs.web_from,
        "stand_ins": list(inputs.stand_ins),
        "submitted": len(works),
        "widest_job_nodes": max(work.nodes for work in works),
        "notes": list(inputs.notes),
    }


def with_service(work: Work, services: Sequence[str]) -> Work:
    """Where the order is svmsched.  A user's service follows from the name alone."""
    return msgspec.structs.replace(work, service=services[sum(work.user.encode()) % len(services)])
