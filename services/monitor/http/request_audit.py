"""What the audit records of a request to the monitor: its caller, its address, and its outcome."""

from __future__ import annotations

import msgspec
from aiohttp import web

from schemas.audit import MESSAGE_MAX, TEXT_MAX, AuditRecord, Via
from services.monitor.http.http_error import Fault
from services.runtime.callers.identity import Identity


def record_of(
    request: web.Request, who: Identity | None, kind: str, via: Via, peer: str, at: float, fault: Fault | None = None
) -> AuditRecord:
    """Granted, or refused with `fault`.  `who`: None if unknown; `at`: UTC seconds."""
    record = AuditRecord(
        at=at,
        kind=kind[:TEXT_MAX],
        outcome="granted" if fault is None else "refused",
        via=via,
        user=who.user if who is not None else "",
        department=who.department if who is not None else "",
        role=who.role if who is not None else "",
        peer=peer[:TEXT_MAX],
        client=request.headers.get("User-Agent", "")[:TEXT_MAX],
    )
    if fault is None:
        return record
    code, message = ("denied", fault.hides) if fault.hides else (fault.code, str(fault))
    return msgspec.structs.replace(record, code=code, field=fault.field, message=message[:MESSAGE_MAX])
