"""What a host really uses (`host.observed`) is worth something until the host starts over, or a VM is moved to it or from it.

A service that remembers a report asks here when to forget it: the executor, which then reports again, and the balancer, which
moves nothing on the strength of it any more.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f

_NEW: Final = (f.HostCleared, f.HostLost, f.HostRemoved)


def worthless(fact: f.Fact) -> tuple[str, ...]:
    """Hosts of which nothing is known any more once this is folded; none of a fact that is of no host and no placement."""
    if isinstance(fact, _NEW):
        return (fact.host,)
    if isinstance(fact, f.UnitPlaced) and fact.moved_from:
        return (*fact.hosts, *fact.moved_from)
    return ()
