"""What the read model keeps of a job beside its attempts."""

from __future__ import annotations

import msgspec

from schemas.facts import Dependency, Lease
from schemas.size import Size


class Job(msgspec.Struct, kw_only=True):
    """What `job.submitted` said, without what only the scheduler needs."""

    job: str
    dept: str
    user: str
    name: str
    nodes: int
    size: Size
    tasks: int
    walltime_s: float
    priority: int
    on_reclaim: str | None
    on_term: str | None = None
    grace_s: float | None = None
    submitted_at: float
    units: int = 1
    array: bool = False
    gone: int = 0  # units that custody has forgotten
    final: int = 0  # units that have ended
    bad: int = 0  # … other than completed
    begun: int = 0  # units that began once, or have ended
    after: tuple[Dependency, ...] = ()
    throttle: int = 0
    service: str = ""
    best_effort: bool = False
    quality: str = ""
    constraint: str = ""
    lease: str = ""  # its own id, if it is one
    terms: Lease | None = None  # what a lease was promised
    elements: tuple[int, ...] = ()  # of an array that depends on something, has a throttle, or may wait for a limit
