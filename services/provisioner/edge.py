"""The arbiter's edge: configuration becomes a fact.

Theory of operation
  Cores never read files (PROTOCOL S7).  A new leader compares its configuration file with the configuration in force and
  proposes the file's where they differ; an operator's `config.apply` does the same at run time.  The cloud's random id is made
  once, with the first adoption, and kept for ever: every VM's tag starts with it (X6).

Rules
  1. Only operators apply a configuration; the server's permissions make the user in the subject true.
  2. A configuration is checked as a whole before it is proposed; an invalid one is refused with every problem.
  3. What is already in force is not adopted again.
  4. Who asked, and what came of it, goes to the audit (`services.runtime.callers.audit`).
  5. What the hypervisor can do is read from our own file, with the rest of what says where things run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from schemas import facts as f
from schemas import subjects
from schemas.audit import MESSAGE_MAX, AuditRecord
from schemas.config import CloudConfig
from schemas.custody import RULES
from services.runtime.broker.answer import answer
from services.runtime.broker.whence import Whence
from services.runtime.callers.audit import Recorder
from services.runtime.config.file import check_cloud
from services.runtime.service import Edge, Refused, Service

ADOPT_S: Final = 10.0
PAYLOAD_MAX: Final = 1 << 20


class _Apply(msgspec.Struct):
    config: CloudConfig


class ConfigEdge(Edge):
    def __init__(self, file: CloudConfig) -> None:
        self.file = file

    async def start(self, service: Service) -> None:
        self.service = service
        self._whence = Whence(service.nc)
        await self._whence.open()
        self._recorder = Recorder(service.nc.publish, service.log, self._whence)
        service.spawn("audit", self._recorder.run())
        await service.nc.subscribe(subjects.request("*", "*", "config", "apply"), cb=self._on_apply)

    async def lead(self) -> None:
        state = self.service.custody.state
        if state.config != self.file or state.rules != RULES:
            await self._adopt(self.file, "configuration file")

    async def _adopt(self, config: CloudConfig, cause: str) -> int:
        """Propose `config` and wait until it is in force; returns its position."""
        fresh = secrets.token_hex(8)  # outside `compose`, which may run again

        def compose(_now: float, _drafted: Sequence[f.Fact]) -> list[f.Fact]:
            state = self.service.custody.state
            if state.config == config and state.rules == RULES:
                return []
            return [f.ConfigAdopted(cloud=state.cloud or fresh, custody_rules=RULES, config=config)]

        async with asyncio.timeout(ADOPT_S):
            outcome = await self.service.propose(compose, cause)
        self.service.log.info("configuration in force", departments=len(config.departments), position=outcome.position)
        return outcome.position

    async def _on_apply(self, msg: Msg) -> None:
        asked = subjects.parse_request(msg.subject)
        if asked is None or not self.service.is_leader:
            return
        told = await self._told(asked, msg.reply)
        try:
            position = await self._apply(asked, msg.data)
            reply: dict[str, Any] = {"ok": True, "position": position}
            self._recorder.note(msgspec.structs.replace(told, position=position))
        except Refused as refused:
            wrong = {"code": refused.code, "field": refused.field, "message": refused.message[:MESSAGE_MAX]}
            self._recorder.note(msgspec.structs.replace(told, outcome="refused", **wrong))
            error = {"code": refused.code, "field": refused.field, "message": refused.message}
            reply = {"ok": False, "error": error}
        except TimeoutError:
            message = f"the configuration was not confirmed within {ADOPT_S:g} s; look at `phoenix config diff`"
            reply = {"ok": False, "error": {"code": "unavailable", "field": None, "message": message}}
        as_json = msg.data[:1] == b"{"
        body = msgspec.json.encode(reply) if as_json else msgspec.msgpack.encode(reply)
        await answer(msg, asked.department, body, {"Content-Type": "application/json"} if as_json else None)

    async def _told(self, asked: subjects.RequestSubject, reply: str) -> AuditRecord:
        user = (self.service.custody.state.config or self.file).user(asked.user)
        return AuditRecord(
            at=self.service.now(),
            kind="config.apply",
            outcome="granted",
            via="nats",
            user=asked.user,
            department=subjects.OPERATORS,  # whoever asks: a configuration is their business
            role=user.role if user is not None else "",
            peer=await self._whence.ask(reply, user.department if user is not None else asked.department, asked.user),
        )

    async def close(self) -> None:
        await self._recorder.flush()

    async def _apply(self, asked: subjects.RequestSubject, data: bytes) -> int:
        config = self.service.custody.state.config or self.file
        user = config.user(asked.user)
        if user is None or user.role != "operator":
            raise Refused("denied", f"{asked.user} is no operator; only operators apply configurations")
        if len(data) > PAYLOAD_MAX:
            raise Refused("limit", f"a configuration has at most {PAYLOAD_MAX} bytes", "config")
        try:
            codec = msgspec.json if data[:1] == b"{" else msgspec.msgpack
            wanted = codec.decode(data, type=_Apply).config
        except msgspec.DecodeError as error:
            raise Refused("invalid", str(error), "config") from error
        wanted = msgspec.structs.replace(wanted, capabilities=self.file.capabilities)  # the hypervisor's, whoever asks
        problems = check_cloud(wanted)
        if problems:
            raise Refused("invalid", "; ".join(p.line() for p in problems), problems[0].key)
        return await self._adopt(wanted, f"config.apply by {asked.user}")
