"""The object store, shared by departments: what each stores there, how much it may store, and what is refused.

Theory of operation
  One bucket holds scripts and inputs, output, kept files and checkpoints of all departments; the server knows one limit for all
  of it.  So each object carries its department, and what a department has is counted here: all descriptions once, when a door
  opens, and from then on what is put and deleted.  Shares of all departments together leave `RESERVE` of the bucket free.

Rules
  1. A department has a share: its `store_share`, or an equal part of what the others leave.
  2. Scripts and inputs may fill `SUBMIT_PART` of it alone, so that those whose jobs run can still hand in what they make.
  3. What is small and finds, or frees, the rest (`_FINDS`) is always taken: that is what the reserve is for.
  4. What is refused is refused before anything is sent, in words that say what to do.  A guest that reaches a limit is
     informed: it continues, and its job ends.
  5. Until everything is counted no share refuses a request; the server's own limit always holds, and is reported in the same
     way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Literal, get_args

import msgspec
from nats.js import JetStreamContext
from nats.js.errors import APIError
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas.ids import instance_parts, is_instance
from services.admission.core.admission import AdmissionCore
from services.admission.metrics import STORE_BYTES, STORE_REFUSED, STORE_REMOVED, STORE_SHARE
from services.admission.storage.payloads import TooLarge
from services.runtime.broker.objects import Described, Objects, cost

RESERVE: Final = 0.05  # of the bucket: rule 3, and what counting by cost does not see
SUBMIT_PART: Final = 0.9
DEPARTMENT: Final = "department"  # in an object's metadata
Part = Literal["submitted", "output", "files", "checkpoints"]
PARTS: Final[dict[str, Part]] = {
    "job": "submitted",
    "input": "submitted",
    "out": "output",
    "files": "files",
    "checkpoint": "checkpoints",
}
Why = Literal["ended", "age", "size"]
_FINDS: Final = ("/index", "/first")  # how names end
_FULL: Final = (10077, 10047)  # the stream's limit, the account's
_MIB: Final = 1 << 20


class ShareFull(TooLarge):
    """The department has used its share, or the store is full."""


class Used(msgspec.Struct, kw_only=True):
    """Bytes of a department, as `GET /v1/store` tells them."""

    department: str
    bytes: int = 0
    share_bytes: int = 0
    submitted: int = 0
    output: int = 0
    files: int = 0
    checkpoints: int = 0


_why: Final[ContextVar[Why | None]] = ContextVar("why", default=None)


@contextlib.contextmanager
def removing(why: Why) -> Iterator[None]:
    """What is deleted meanwhile is counted as removed for this reason."""
    token = _why.set(why)
    try:
        yield
    finally:
        _why.reset(token)


class Shares(Objects, Collector):
    def __init__(self, js: JetStreamContext, bucket: str, core: AdmissionCore, registry: CollectorRegistry) -> None:
        super().__init__(js, bucket)
        self._core = core
        self._used: dict[tuple[str, Part], int] = {}
        self._limit = 0  # of the bucket; 0: none
        self._counted = self._end = 0  # counted up to here, of what was there until `_end`
        self.is_counted = False
        self.pressed = asyncio.Event()  # a bound has been reached
        self._refused, self._removed = STORE_REFUSED.live(registry), STORE_REMOVED.live(registry)
        registry.register(self)

    # --------------------------------------------------------------------------------------------------------- counting

    async def look(self) -> None:
        """How large the bucket is."""
        self._limit, _ = await self.room()
        for department in self.departments():  # a counter that begins with its first event hides that one
            self._refused.labels(department)
            for why in get_args(Why):
                self._removed.labels(department, why)

    def begin(self) -> None:
        """A door opens: another one may have been here meanwhile."""
        self._used, self._counted, self._end, self.is_counted = {}, 0, 0, False

    async def count(self) -> None:
        """All that is there.  What is put meanwhile is counted by `put`; what goes, by where the count is (`_forget`)."""
        if not self._end:
            self._limit, self._end = await self.room()
            self._used = {}
        async for found in self.each(self._counted):
            if found.position > self._end:
                break
            self._add(found.name, found.metadata.get(DEPARTMENT, ""), found.cost)
            self._counted = found.position
        self._counted, self.is_counted = self._end, True

    def _add(self, name: str, department: str, count: int) -> None:
        key = (department, PARTS.get(name.partition("/")[0], "output"))
        self._used[key] = self._used.get(key, 0) + count

    def _forget(self, gone: Described) -> None:
        if gone.position <= self._counted or gone.position > self._end:
            self._add(gone.name, gone.metadata.get(DEPARTMENT, ""), -gone.cost)

    # ------------------------------------------------------------------------------------------------------------ shares

    def used(self, department: str) -> int:
        return sum(self._used.get((department, part), 0) for part in dict.fromkeys(PARTS.values()))

    def share(self, department: str) -> int:
        """Bytes that it may have (rule 1)."""
        config = self._core.custody.state.config
        known = config.department(department) if config is not None else None
        if config is None or known is None:
            return 0
        fields = {d.name: d.store_share for d in config.departments if d.store_share is not None}
        others = len(config.departments) - len(fields)
        part = fields.get(department, max(0.0, 1.0 - sum(fields.values())) / max(1, others))
        return int(self._limit * (1 - RESERVE) * part)

    def told(self, department: str) -> Used:
        parts = {part: self._used.get((department, part), 0) for part in PARTS.values()}
        return Used(department=department, bytes=self.used(department), share_bytes=self.share(department), **parts)

    def departments(self) -> list[str]:
        """Those that are configured, and those that store something: objects of `""` have no known owner."""
        config = self._core.custody.state.config
        named = [d.name for d in config.departments] if config is not None else []
        return list(dict.fromkeys([*named, *(department for department, _ in self._used)]))

    # ----------------------------------------------------------------------------------------------------------- objects

    async def put(self, name: str, data: bytes, metadata: dict[str, str] | None = None) -> Described | None:
        """As `Objects`.  Raises `ShareFull`."""
        department, count = self.department_of(name), cost(name, len(data))
        self._check(name, department, count)
        self._add(name, department, count)  # before it is there: two that come together do not both fit
        try:
            before = await super().put(name, data, {**(metadata or {}), DEPARTMENT: department})
        except BaseException as error:
            self._add(name, department, -count)
            if isinstance(error, APIError) and error.err_code in _FULL:
                raise self._full(department, count, "the object store is full") from None
            raise
        if before is not None:
            self._forget(before)
        return before

    async def delete(self, name: str) -> Described | None:
        gone = await super().delete(name)
        if gone is not None:
            self._forget(gone)
            if (why := _why.get()) is not None:
                self._removed.labels(gone.metadata.get(DEPARTMENT, ""), why).inc(gone.cost)
        return gone

    def department_of(self, name: str) -> str:
        """Whose object that is, by its name."""
        kind, _, rest = name.partition("/")
        first, _, more = rest.partition("/")
        if kind in ("job", "input", "removed"):
            return first if more else ""  # without: of a version before shares
        if is_instance(first):
            return instance_parts(first)[0]
        unit = self._core.unit(first)
        return unit.dept if unit is not None else ""

    def _check(self, name: str, department: str, count: int) -> None:
        """Rules 2 to 5."""
        share = self.share(department)
        if not self._limit or not self.is_counted or not department or name.endswith(_FINDS):
            return
        used = self.used(department) + count
        most = int(share * SUBMIT_PART) if PARTS.get(name.partition("/")[0]) == "submitted" else share
        if used > most:
            raise self._full(department, count, f"{department} has {_mib(used - count)} of its {_mib(share)} MiB there")

    def _full(self, department: str, count: int, why: str) -> ShareFull:
        self._refused.labels(department).inc()
        self.pressed.set()
        return ShareFull(
            f"the object store has no room for {_mib(count)} MiB: {why}. Output of ended jobs is removed, oldest first: "
            "try again in a minute; or cancel jobs that wait, send less, or have store_share raised (see phoenix store)"
        )

    # ----------------------------------------------------------------------------------------------------------- metrics

    def collect(self) -> Iterator[Metric]:
        size, share = STORE_BYTES.family(), STORE_SHARE.family()
        for department in self.departments() if self.is_counted else ():
            size.add_metric([department], self.used(department))
            if department:
                share.add_metric([department], self.share(department))
        yield from (size, share)


def _mib(count: int) -> str:
    return f"{count / _MIB:.1f}"
