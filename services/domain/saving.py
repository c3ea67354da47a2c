"""How long saving or moving a VM may take: from the release of its host to a hard end of what is not saved by then (X7).

Rules
  1. A batch department's own `save_s` holds, else `policy.save_s`, which the loader sets by the hypervisor unless it is given.
  2. It is a bound, not a wait: a host is clear as soon as its VMs are saved or have moved.  So it costs the department that
     waits for the host only where saving fails or hangs.
"""

from __future__ import annotations

from schemas.config import CloudConfig, Policy


def save_s(config: CloudConfig | None, dept: str) -> float:
    """Seconds that saving or moving a VM of department `dept` may take."""
    if config is None:
        return Policy().save_s
    department = config.department(dept)
    own = department.batch.save_s if department is not None and department.batch is not None else None
    return config.policy.save_s if own is None else own
