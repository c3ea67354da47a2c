"""What a job's environment says, under our names and under Slurm's: one table for every guest that starts scripts.

Pure.  A guest adds what only its machine knows (HOME, TMPDIR, paths, the door's address).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from schemas.dimensions import DIMENSIONS
from schemas.units import seconds

# Our name → Slurm's name, where Slurm has one (sbatch(1), srun(1): OUTPUT ENVIRONMENT VARIABLES).
SLURM_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "PHOENIX_JOB_ID": ("SLURM_JOB_ID", "SLURM_JOBID"),
    "PHOENIX_ARRAY_JOB_ID": ("SLURM_ARRAY_JOB_ID",),
    "PHOENIX_ARRAY_TASK_ID": ("SLURM_ARRAY_TASK_ID",),
    "PHOENIX_JOB_NAME": ("SLURM_JOB_NAME",),
    "PHOENIX_NODELIST": ("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    "PHOENIX_NNODES": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "PHOENIX_NODEID": ("SLURM_NODEID",),
    "PHOENIX_NTASKS": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "PHOENIX_CPUS_PER_TASK": ("SLURM_CPUS_PER_TASK",),
    **{dimension.variable: dimension.slurm for dimension in DIMENSIONS if dimension.slurm},
    "PHOENIX_DEPARTMENT": ("SLURM_JOB_ACCOUNT",),
    "PHOENIX_USER": ("SLURM_JOB_USER",),
    "PHOENIX_TASK_ID": ("SLURM_PROCID",),
}


class SavedWork(Protocol):
    @property
    def attempt(self) -> int: ...
    @property
    def at(self) -> str: ...


class BootedJob(Protocol):
    """What both ends of the guest contract know of a job that is to start (`services.admission.guests.boot`, the guest's
    own)."""

    @property
    def unit(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> Sequence[str]: ...
    @property
    def rank(self) -> int: ...
    @property
    def ranks(self) -> int: ...
    @property
    def cores(self) -> int: ...
    @property
    def tasks(self) -> int | None: ...
    @property
    def cpus_per_task(self) -> int | None: ...
    @property
    def array_job(self) -> str | None: ...
    @property
    def array_index(self) -> int | None: ...
    @property
    def checkpoint(self) -> SavedWork | None: ...


def of_job(boot: BootedJob) -> dict[str, str]:
    """What the job's script finds of itself, under our names, beside its size (`dimensions.variables`)."""
    own = {
        "PHOENIX_JOB_ID": boot.unit,
        "PHOENIX_JOB_NAME": boot.name,
        "PHOENIX_NODELIST": ",".join(boot.nodes),
        "PHOENIX_NNODES": str(boot.ranks),
        "PHOENIX_NODEID": str(boot.rank),
        "PHOENIX_NTASKS": str(boot.tasks or boot.ranks),
        "PHOENIX_CPUS_PER_TASK": str(boot.cpus_per_task or boot.cores),
    }
    if boot.checkpoint is not None:
        own["PHOENIX_CHECKPOINT"] = "1"
        own["PHOENIX_CHECKPOINT_ATTEMPT"] = str(boot.checkpoint.attempt)
        own["PHOENIX_CHECKPOINT_AT"] = f"{seconds(boot.checkpoint.at):.3f}"
    if boot.array_job is not None:
        own["PHOENIX_ARRAY_JOB_ID"] = boot.array_job
    if boot.array_index is not None:
        own["PHOENIX_ARRAY_TASK_ID"] = str(boot.array_index)
    return own


def with_slurm_names(environment: dict[str, str]) -> dict[str, str]:
    """Add Slurm's names for ours."""
    slurm = {
        other: environment[name] for name, others in SLURM_NAMES.items() if name in environment for other in others
    }
    return {**environment, **slurm}
