"""What a job's environment says, under our names and under Slurm's: one table for every guest that starts scripts.

Pure.  A guest adds what only its machine knows (HOME, TMPDIR, paths, the door's address).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    "PHOENIX_CPUS": ("SLURM_CPUS_ON_NODE",),
    "PHOENIX_MEMORY_MB": ("SLURM_MEM_PER_NODE",),
    "PHOENIX_DEPARTMENT": ("SLURM_JOB_ACCOUNT",),
    "PHOENIX_USER": ("SLURM_JOB_USER",),
    "PHOENIX_TASK_ID": ("SLURM_PROCID",),
}


def with_slurm_names(environment: dict[str, str]) -> dict[str, str]:
    """Add Slurm's names for ours."""
    slurm = {
        other: environment[name] for name, others in SLURM_NAMES.items() if name in environment for other in others
    }
    return {**environment, **slurm}
