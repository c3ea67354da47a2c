"""What requests cost admission, about a millisecond of its process each: the unit in which turns are counted
(`runtime.request_queue`).

Measured: a submission 1.1 ms, a hundred named jobs 2 ms, a task that is held or released 0.1 ms with its way through the
journal.  A forecast costs admission little, and a scheduler so much that a department needs no more than a few a second.
"""

from __future__ import annotations

from typing import Final

USUAL: Final = 1.0
READ: Final = 1.0
TASK: Final = 0.1  # that is cancelled, held or released: charged when it is known how many there are
NAMED: Final = 0.02  # job in such a request, whatever becomes of it; element or dependency of one that is submitted
GUEST: Final = 1.0  # a call, with what aiohttp takes
HTTP: Final = 0.5  # what aiohttp takes beside
_OF: Final = {
    "job.whatif": 50.0,
    "lease.create": 5.0,
    "lease.extend": 5.0,
    "release.deploy": 2.0,
}


def cost_of(kind: str) -> float:
    """Before anything of it is read."""
    return _OF.get(kind, USUAL)
