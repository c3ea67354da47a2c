"""One change request as the audit records it: filled in on its way from the HTTP or NATS interface to the dispatcher and back.

Rules
  1. It belongs to the task that serves the request (a context variable): interfaces and dispatcher need not pass it through.
  2. What is recorded when it is granted is a change: reads are not, nor a load balancer's report that changed nothing, nor
     signals and measures.  What is refused is recorded whatever it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from schemas import requests as r
from schemas.audit import Via

_UNRECORDED: Final = ("instance.list",)
_ONLY_IF_WRITTEN: Final = ("instance.report",)


@dataclass(slots=True)
class Asked:
    """`department`: the asker's own; `position`: where what was written stands; `cost`: beyond that of its kind (`costs`)."""

    kind: str
    via: Via
    user: str = ""
    department: str = ""
    role: str = ""
    peer: str = ""
    client: str = ""
    request: str = ""
    names: tuple[str, ...] = ()
    position: int | None = None
    cost: float = 0.0
    is_done: bool = field(default=False)

    @property
    def is_told(self) -> bool:
        """Rule 2, of what was granted."""
        if not self.is_done or self.kind in _UNRECORDED:
            return False
        return self.position is not None or self.kind not in _ONLY_IF_WRITTEN

    def read(self, department: str, request: Any) -> None:
        """The request has been decoded: what it is about, as far as it says so itself."""
        self.request = getattr(request, "request", "") or ""
        named = getattr(request, "jobs", ())
        for one in ("lease", "host", "unit"):
            named = named or ((getattr(request, one),) if getattr(request, one, "") else ())
        self.names = tuple(named) or (f"{department} {said}" if (said := _number(request)) else department,)

    def wrote(self, position: int) -> None:
        self.position = position

    def done(self, department: str, reply: r.Message) -> None:
        """It was granted, or the part of it that `reply` says."""
        self.is_done = True
        if isinstance(reply, r.Submitted):
            self.names = (reply.job,)
        elif isinstance(reply, r.LeaseGranted):
            self.names = (reply.lease,)
        elif isinstance(reply, r.Deployed):
            self.names = (f"{department} release {reply.release}",)
        elif isinstance(reply, r.JobResults):
            self.names = tuple(result.job for result in reply.results if result.error is None)
            self.is_done = bool(self.names)


def _number(request: Any) -> str:
    """Of a department that is scaled: `exactly 4`, `at least 2 for 3600 s`, `auto`."""
    if not isinstance(request, r.ScaleSet):
        return ""
    if request.auto:
        return "auto"
    message = f"at least {request.minimum}" if request.exact is None else f"exactly {request.exact}"
    return message if request.for_s is None else f"{message} for {request.for_s:g} s"


_CURRENT: ContextVar[Asked | None] = ContextVar("asked", default=None)


@contextmanager
def asking(asked: Asked) -> Iterator[Asked]:
    """What this task serves until the end of the block."""
    token = _CURRENT.set(asked)
    try:
        yield asked
    finally:
        _CURRENT.reset(token)


def current() -> Asked | None:
    return _CURRENT.get()
