"""Quotas within contracts: nobody may keep more of another's hosts than that one has agreed to lend.

Rules
  1. The targets are those of `phoenix.targets`, as long as they are a flow from lenders to borrowers within the contracts
     (`schemas.loans`).  Without a limit they always are: then nothing is other.
  2. Else the maximum of who is beyond is lowered to what it may have, and the targets are worked out again: what it may not
     have is for the others, by the same rules.  Web departments are served by priority, then batch by name.
  3. A maximum is never lowered below a department's own hosts, so a guarantee is never cut.
  4. Hosts that no contract lets anybody use stay where they are granted to nobody: their owner has them at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from schemas.loans import Limit, fit, split
from services.provisioner.policies.phoenix import Claim, targets


def targets_within(claims: list[Claim], usable: int, first: str, own: Mapping[str, int], most: Limit) -> dict[str, int]:
    """As `targets`; `own`: each department's own hosts; `most`: what lenders lend borrowers."""
    order = [c.name for c in sorted(claims, key=lambda c: (not c.web, -c.priority if c.web else 0, c.name))]
    while True:  # ends: each round lowers a maximum, and none is below its owner's own
        quota = targets(claims, usable, first)
        excess, spare = split(own, quota, usable)
        _, unmet = fit({n: excess[n] for n in order if n in excess}, spare, most)
        if not unmet:
            return quota
        claims = [
            msgspec.structs.replace(c, maximum=quota[c.name] - unmet[c.name]) if c.name in unmet else c for c in claims
        ]
