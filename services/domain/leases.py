"""What a department promises to its leases: whether it keeps their times, and hosts that it is sure to have.

Two services go by it: admission accepts a lease by the configuration of that moment, and the provisioner says which accepted
ones another configuration would not keep.
"""

from __future__ import annotations

from typing import Final

from schemas.config import BatchPolicy, Department
from services.domain.windows import calendar

ORDER: Final = "leases"  # the one order that keeps times


def order_of(department: Department) -> str:
    return str((department.batch or BatchPolicy()).order)


def keeps_times(department: Department | None) -> bool:
    return department is not None and department.kind == "batch" and order_of(department) == ORDER


def certain(department: Department) -> tuple[int, int | None]:
    """Hosts that are guaranteed, and that it may hold, whichever of its windows is open."""
    windows = calendar(department.windows, department.windows_zone).windows
    guarantee = min([department.guarantee, *(w.guarantee for w in windows if w.guarantee is not None)])
    maxima = [x for x in (department.maximum, *(w.maximum for w in windows)) if x is not None]
    return guarantee, min(maxima, default=None)
