"""The arbiter's edge: configuration becomes a fact.

Theory of operation
  Cores never read files (PROTOCOL S7).  A new leader compares its configuration file with the configuration in force and
  proposes the file's where they differ; an operator's `config.apply` does the same at run time.  The cloud's random id is made
  once, with the first adoption, and kept for ever: every VM's tag starts with it (X6).

Rules
  1. Only operators apply a configuration; the server's permissions make the user in the subject true.
  2. A configuration is checked as a whole before it is proposed; an invalid one is refused with every problem.
  3. What is already in force is not adopted again.
  4. Who asked, and what came of it, goes to the audit (`services.runtime.callers.audit`); but for a dry run that is answered,
     which changes nothing.
  5. What the hypervisor can do is read from our own file, with the rest of what says where things run.
  6. One that would not keep accepted leases (`leases`) is refused, unless the request accepts that.  The file of a start is
     adopted all the same, with a warning in the log for each: without a configuration no process comes up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final, cast

import msgspec
from nats.aio.msg import Msg

from schemas import facts as f
from schemas import requests as r
from schemas import subjects
from schemas.audit import MESSAGE_MAX, AuditRecord
from schemas.config import CloudConfig
from schemas.problems import problem
from schemas.units import iso
from services.domain.custody.rules import RULES
from services.domain.refusal import Refused
from services.provisioner.core.leases import Late
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.broker.origin import Found, whence
from services.runtime.broker.reply import answer_request
from services.runtime.callers.audit import Recorder
from services.runtime.config.checks import check_cloud
from services.runtime.service import Edge, Service

ADOPT_S: Final = 10.0
PAYLOAD_MAX: Final = 1 << 20


def told(late: Late) -> str:
    lease = late.lease
    return f"lease {lease.name} of {lease.user}, from {iso(lease.start_at)} to {iso(lease.end_at)}: {late.why}"


def refusal(lines: Sequence[str]) -> str:
    way = "apply it after them, move or cancel them, or accept it: accept_late_leases, in a shell --accept-late-leases"
    return "\n".join(["leases that were accepted would not be kept:", *(f"  {line}" for line in lines), way])


class ConfigEdge(Edge):
    def __init__(self, file: CloudConfig) -> None:
        self.file = file

    async def start(self, service: Service) -> None:
        self.service = service
        self._recorder = Recorder(service.nc.publish, service.log)
        service.spawn("audit", self._recorder.run())
        await service.nc.subscribe(subjects.request("*", "*", "config", "apply"), cb=self._on_apply)

    async def lead(self) -> None:
        state = self.service.custody.state
        if state.config != self.file or state.rules != RULES:
            for lease in (await self._adopt(self.file, "configuration file", late_accepted=True)).late_leases:
                self.service.log.warning("an accepted lease is not kept by the configuration file", lease=lease)

    def _late(self, config: CloudConfig, now: float) -> list[str]:
        """A line for each accepted lease that `config` would not keep."""
        return [told(late) for late in cast("ProvisionerCore", self.service.core).late_leases(config, now)]

    async def _adopt(self, config: CloudConfig, cause: str, *, late_accepted: bool) -> r.ConfigApplied:
        """Propose `config` and wait until it is in force.  Raises `Refused` (rule 6)."""
        fresh = secrets.token_hex(8)  # outside `compose`, which may run again
        late: list[str] = []

        def compose(now: float, _drafted: Sequence[f.Fact]) -> list[f.Fact]:
            state = self.service.custody.state
            if state.config == config and state.rules == RULES:
                return []
            late[:] = self._late(config, now)
            if late and not late_accepted:
                raise Refused("conflict", refusal(late), "accept_late_leases")
            return [f.ConfigAdopted(cloud=state.cloud or fresh, custody_rules=RULES, config=config)]

        async with asyncio.timeout(ADOPT_S):
            outcome = await self.service.propose(compose, cause)
        self.service.log.info("configuration in force", departments=len(config.departments), position=outcome.position)
        return r.ConfigApplied(position=outcome.position, late_leases=tuple(late))

    async def _on_apply(self, msg: Msg) -> None:
        asked = subjects.parse_request(msg.subject)
        if asked is None or not self.service.is_leader:
            return
        told = self._told(asked, whence(msg))
        as_json = r.is_json(msg.data, (msg.headers or {}).get("Content-Type", ""))
        try:
            wanted = self._read(asked, msg.data, as_json)
            applied = await self._apply(asked, wanted)
            reply: r.Message = applied
            if not wanted.dry_run:
                self._recorder.note(msgspec.structs.replace(told, position=applied.position))
        except Refused as refused:
            reply = refused.problem()
            wrong = {"code": refused.code, "field": refused.field, "message": refused.message[:MESSAGE_MAX]}
            self._recorder.note(msgspec.structs.replace(told, outcome="refused", **wrong))
        except TimeoutError:
            message = f"the configuration was not confirmed within {ADOPT_S:g} s; look at `phoenix config diff`"
            reply = problem("unavailable", message)
        await answer_request(msg, asked.department, reply, as_json=as_json)

    def _told(self, asked: subjects.RequestSubject, found: Found) -> AuditRecord:
        user = (self.service.custody.state.config or self.file).user(asked.user)
        return AuditRecord(
            at=self.service.now(),
            kind="config.apply",
            outcome="granted",
            via="nats",
            user=asked.user,
            department=subjects.OPERATORS,  # whichever user asks: a configuration is their business
            role=user.role if user is not None else "",
            peer=found.peer,
            client=found.client,
        )

    async def close(self) -> None:
        await self._recorder.flush()

    def _read(self, asked: subjects.RequestSubject, data: bytes, as_json: bool) -> r.ConfigApply:
        """What is asked, if it may be.  Raises `Refused`."""
        user = (self.service.custody.state.config or self.file).user(asked.user)
        if user is None or user.role != "operator":
            raise Refused("denied", f"{asked.user} is no operator; only operators apply configurations")
        if len(data) > PAYLOAD_MAX:
            raise Refused("limit", f"a configuration has at most {PAYLOAD_MAX} bytes", "config")
        try:
            request: r.ConfigApply = r.decode("config.apply", data, as_json)
        except r.Malformed as error:
            raise Refused("invalid", error.message, error.field) from None
        # The hypervisor's, whichever user asks (rule 5).
        config = msgspec.structs.replace(request.config, capabilities=self.file.capabilities)
        problems = check_cloud(config)
        if problems:
            raise Refused("invalid", "; ".join(p.line() for p in problems), problems[0].key)
        return msgspec.structs.replace(request, config=config)

    async def _apply(self, asked: subjects.RequestSubject, wanted: r.ConfigApply) -> r.ConfigApplied:
        if wanted.dry_run:
            late = tuple(self._late(wanted.config, self.service.now()))
            return r.ConfigApplied(position=self.service.custody.state.position, late_leases=late)
        cause = f"config.apply by {asked.user}"
        return await self._adopt(wanted.config, cause, late_accepted=wanted.accept_late_leases)
