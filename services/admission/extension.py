"""How long a lease lasts, once more: the fact that changes it.  Whether it may be is the door's to judge."""

from __future__ import annotations

from schemas import facts as f


def extension(job: str, walltime_s: float) -> f.LeaseExtended:
    """The lease of this job lasts `walltime_s` in all."""
    return f.LeaseExtended(job=job, walltime_s=walltime_s)
