"""The gate before the desk: how fast a caller may ask, and the record of what was refused.

Rules
  1. Each caller has a token bucket, generous for programs and tight enough that one loop cannot starve the others.
  2. A refusal goes to the bounded audit stream: who, what, code, field, message, at.  Never a payload, never a token.
  3. Refusals are recorded at a bounded rate for each caller; what is left out is counted in the next record.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import nats.errors
from prometheus_client import CollectorRegistry

from schemas.ids import is_department
from schemas.requests import JobResults, Message
from schemas.subjects import SITE, audit
from services.admission.metrics import REFUSED
from services.runtime.bucket import Bucket
from services.runtime.edge import Refused
from services.runtime.log import Log

RATE_PER_S: Final = 10_000.0  # measured: one admission journals about 8,500 a second on two cores; this is above
BURST: Final = 20_000.0
AUDIT_PER_S: Final = 2.0
AUDIT_BURST: Final = 20.0
CALLERS_MAX: Final = 10_000  # buckets kept; an idle one is full again, so forgetting it changes nothing
MESSAGE_MAX: Final = 500


class Buckets:
    """One bucket a caller, the least recently seen forgotten first."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._of: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, caller: str, now: float) -> Bucket:
        found = self._of.get(caller)
        if found is None:
            found = self._of[caller] = Bucket(self._rate, self._burst, now)
            if len(self._of) > CALLERS_MAX:
                self._of.popitem(last=False)
        else:
            self._of.move_to_end(caller)
        return found


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit stream.  `left_out`: refusals of this caller since the last line that were not recorded."""

    who: str
    what: str
    code: str
    field: str | None
    message: str
    at: float
    left_out: int = 0


class Gate:
    def __init__(
        self,
        publish: Callable[[str, bytes], Awaitable[None]],
        now: Callable[[], float],
        log: Log,
        registry: CollectorRegistry,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refused = REFUSED.live(registry)
        self._publish = publish
        self._now = now
        self._log = log
        self._monotonic = monotonic
        self._requests = Buckets(RATE_PER_S, BURST)
        self._audits = Buckets(AUDIT_PER_S, AUDIT_BURST)

    def admit(self, caller: str) -> None:
        """Raises `Refused` (limit) if the caller asks too fast."""
        if not self._requests.of(caller, self._monotonic()).take(self._monotonic()):
            raise Refused("limit", f"too many requests: {RATE_PER_S:g} a second are allowed; wait a moment")

    async def record(self, who: str, department: str, what: str, refused: Refused) -> None:
        """Write a refusal to the audit stream.  A broker that is away loses it: audit must not stop the door."""
        self._refused.labels(refused.code).inc()
        if refused.code == "unavailable":  # says something about the cloud, not about the caller
            return
        bucket = self._audits.of(who, self._monotonic())
        if not bucket.take(self._monotonic()):
            bucket.left_out += 1
            return
        line = Refusal(
            who=who[:128],
            what=what[:128],
            code=refused.code,
            field=refused.field,
            message=refused.message[:MESSAGE_MAX],
            at=self._now(),
            left_out=bucket.left_out,
        )
        bucket.left_out = 0
        subject = audit(department if is_department(department) else SITE)
        try:
            await self._publish(subject, msgspec.json.encode(line))
        except (nats.errors.Error, OSError, TimeoutError) as error:
            self._log.warning("refusal not recorded", error=str(error) or type(error).__name__)

    async def record_parts(self, who: str, department: str, what: str, reply: Message) -> None:
        """Write what was refused inside of a reply that grants the rest: another's job among one's own."""
        for result in reply.results if isinstance(reply, JobResults) else ():
            if result.error is not None:
                refused = Refused(result.error.code, result.error.message, result.error.field)
                await self.record(who, department, what, refused)
