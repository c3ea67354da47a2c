"""What batch guarantees keep from web: why a web department may keep fewer hosts than it wants.

The provisioner's first rule (`services.provisioner.policies.phoenix`), told: after web's own guarantees those of the batch
departments are kept from web always, demanded or not, for batch as a whole.

Rules
  1. It is told only where it binds: a web department may not keep what it wants (up to its maximum), and all that web does not
     have is kept.  Else something other is short: notice still runs, or a contract lends no more.
"""

from __future__ import annotations

import msgspec

from schemas.custody import Custody
from schemas.lending import bounds
from schemas.whereabouts import usable


class Kept(msgspec.Struct, frozen=True):
    """`hosts` of `usable` ones, by the guarantees of `departments` (by name)."""

    hosts: int
    usable: int
    departments: tuple[str, ...]


def kept_from(custody: Custody, name: str, at: float) -> Kept | None:
    """What guarantees keep from web department `name` at `at`; None if it is not they that it lacks."""
    config = custody.state.config
    known = config.department(name) if config is not None else None
    if config is None or known is None or known.kind != "web":
        return None
    count, quota, demands = usable(custody, at), custody.quota, custody.state.demands
    maximum = bounds(known, at)[1]
    wanted = demands.get(name, 0) if maximum is None else min(demands.get(name, 0), maximum)
    promised = {d.name: _promised(bounds(d, at)) for d in config.departments if d.kind == "batch"}
    rest = count - sum(quota(d.name).hosts for d in config.departments if d.kind == "web")
    kept = min(rest, sum(promised.values()))
    if wanted <= quota(name).hosts or rest > kept or kept <= 0:
        return None
    return Kept(kept, count, tuple(sorted(n for n, hosts in promised.items() if hosts > 0)))


def _promised(bound: tuple[int, int | None]) -> int:
    guarantee, maximum = bound
    return guarantee if maximum is None else min(guarantee, maximum)
