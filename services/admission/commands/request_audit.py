"""The record of what was asked at the doors.

Rules
  1. Every change that was granted, and every refusal, goes to the audit (`schemas.audit`): never a payload, never a token.
  2. Refusals are recorded at a bounded rate for each caller (`Sparingly`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
from prometheus_client import CollectorRegistry

from schemas.audit import MESSAGE_MAX, TEXT_MAX, AuditRecord, Outcome, cut
from schemas.requests import JobResults, Message
from services.admission.commands.audit_context import Asked
from services.admission.metrics import REFUSED
from services.domain.refusal import Refused
from services.runtime.callers.audit import Recorder, Sparingly
from services.runtime.log import Log


class Gate:
    def __init__(
        self,
        recorder: Recorder,
        now: Callable[[], float],
        registry: CollectorRegistry,
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refused = REFUSED.live(registry)
        self._recorder, self._log = recorder, log
        self._now = now
        self._sparingly = Sparingly(recorder.note, monotonic)

    def granted(self, asked: Asked) -> None:
        """Record what was done."""
        if self._log.is_debug:
            self._log.debug("request granted", **_told(asked), position=asked.position)
        if asked.is_told:
            self._recorder.note(self._record(asked, "granted"))

    def refused(self, asked: Asked, refused: Refused) -> None:
        self._refused.labels(refused.code).inc()
        if self._log.is_debug:
            self._log.debug("request refused", **_told(asked), code=refused.code, field=refused.field)
        if refused.code == "unavailable":  # says something about the cloud, not about the caller
            return

        def record() -> AuditRecord:
            fields = {"code": refused.code, "field": refused.field, "message": refused.message[:MESSAGE_MAX]}
            return msgspec.structs.replace(self._record(asked, "refused"), **fields)

        self._sparingly.note(asked.user or f"@{asked.peer}", record)

    def parts(self, asked: Asked, reply: Message) -> None:
        """Record what was refused inside of a reply that grants the rest: another's job among one's own."""
        for result in reply.results if isinstance(reply, JobResults) else ():
            if result.error is not None:
                self.refused(replace(asked, names=(result.job,)), Refused.of(result.error))

    def _record(self, asked: Asked, outcome: Outcome) -> AuditRecord:
        names, more = cut(asked.names)
        return AuditRecord(
            at=self._now(),
            kind=asked.kind[:TEXT_MAX],
            outcome=outcome,
            via=asked.via,
            user=asked.user[:TEXT_MAX],
            department=asked.department,
            role=asked.role,
            names=names,
            more=more,
            peer=asked.peer[:TEXT_MAX],
            client=asked.client[:TEXT_MAX],
            request=asked.request[:TEXT_MAX],
            position=asked.position if outcome == "granted" else None,
        )


def _told(asked: Asked) -> dict[str, object]:
    return {"kind": asked.kind, "user": asked.user, "request": asked.request, "names": cut(asked.names)[0]}
