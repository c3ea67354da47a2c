"""Ports for what a test starts: given to no other worker, cloud or run of the tests until long after the test.

A port that was merely found free may be taken before the test's program listens, or while it starts it again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from phoenix.local.port_claims import PASSING, Claim, choose

HELD_MAX: Final = 300  # more than a test asks for; each is an open file
_CLAIMS: Final[deque[Claim]] = deque()


def free_port() -> int:
    """Below the ports of outgoing connections, and claimed by this process."""
    port, claim = choose(PASSING)
    _CLAIMS.append(claim)
    if len(_CLAIMS) > HELD_MAX:
        _CLAIMS.popleft().close()
    return port
