"""The NATS door: phoenix.request.<department>.<user>.<noun>.<verb>, answered by the leader only.

Rules
  1. The user in the subject is true because the server lets no other client publish it; department and role come from the
     adopted configuration.
  2. The reply subject is the broker's (PROTOCOL S10).  A broker without accounts leaves it to the asker: there a request whose
     answer would go anywhere but to the asker's own inbox is not served at all.  One without a reply subject is served.
  3. `config.apply` is the provisioner's: ignored here.
  4. Each request waits for its turn (`runtime.request_queue`), undecoded and without a task; a caller with too
     many waiting requests is refused.
     What is served side by side shares envelopes.
  5. The requests of each department's users, the operators' too, come on a connection of its own (`flood_connections`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from nats.aio.msg import Msg

from schemas import requests as r
from schemas.subjects import RequestSubject, is_reply_allowed, parse_request
from services.admission.commands.audit_context import Asked, asking
from services.admission.commands.compose import Caller
from services.admission.commands.costs import cost_of
from services.admission.commands.dispatcher import Desk
from services.admission.commands.request_audit import Gate
from services.admission.core.admission import AdmissionCore
from services.domain.refusal import Refused
from services.runtime.broker.origin import Found, whence
from services.runtime.broker.reply import REPLIES_DROPPED, answer, answer_request
from services.runtime.flood_connections import Lines
from services.runtime.log import frames_of
from services.runtime.request_queue import Turn, Turns
from services.runtime.service import Service
from services.runtime.token_bucket import Bucket

SUBJECTS: Final = "phoenix.request.*.{}.*.*"  # of a user
FOREIGN_PER_S: Final = 2.0  # wrong reply subjects that log and audit report; all are counted
FOREIGN_BURST: Final = 20.0
DRAIN_S: Final = 3.0  # for requests under way when the door closes
FOREIGN: Final = ("config.apply",)
_CONTENT_TYPE: Final = "Content-Type"


class NatsDoor:
    def __init__(self, service: Service, core: AdmissionCore, desk: Desk, gate: Gate, turns: Turns) -> None:
        self._core, self._desk, self._gate, self._log = core, desk, gate, service.log
        self._turns = turns
        self.lines = Lines(service, "requests", self._subjects, self._receive)
        self._serving: set[asyncio.Task[None]] = set()
        self._foreign = Bucket(FOREIGN_PER_S, FOREIGN_BURST, 0.0)

    def _subjects(self) -> dict[str, list[str]]:
        """Rule 5."""
        config = self._core.custody.state.config
        found: dict[str, list[str]] = {}
        for user in config.users if config is not None else ():
            found.setdefault(user.department, []).append(SUBJECTS.format(user.name))
        return found

    async def open(self) -> None:
        await self.lines.open()

    async def close(self) -> None:
        """No new requests; those under way get DRAIN_S."""
        await self.lines.close()
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=DRAIN_S)
            for task in late:
                task.cancel()
        await self.lines.end()

    async def _receive(self, msg: Msg) -> bool:
        """Rule 4; whether it was refused.  What a flood costs is what is done here."""
        asked = parse_request(msg.subject)
        if asked is None or (kind := f"{asked.noun}.{asked.verb}") in FOREIGN:
            return False
        home = self._own_department(asked.user, asked.department)
        if msg.reply and not is_reply_allowed(msg.reply, home):
            await self._refuse_reply(msg, asked.user, home)
            return True

        def start(turn: Turn | None) -> None:
            if turn is not None:
                task = asyncio.create_task(self._serve(msg, asked, home, kind, turn), name="request")
                self._serving.add(task)
                task.add_done_callback(self._served)

        refused = self._turns.put(home, asked.user, cost_of(kind), len(msg.data), start)
        if refused is not None and self._turns.answers(home, asked.user):
            await self._refuse(msg, self._asked(asked.user, home, kind, whence(msg)), refused)
        return refused is not None

    async def _refuse(self, msg: Msg, asked: Asked, refused: Refused) -> None:
        self._gate.refused(asked, refused)
        as_json = r.is_json(msg.data[:1], (msg.headers or {}).get(_CONTENT_TYPE, ""))
        await answer_request(msg, asked.department, refused.problem(), as_json=as_json)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("request failed", error=type(error).__name__, trace=frames_of(error))

    async def _serve(self, msg: Msg, asked: RequestSubject, home: str, kind: str, turn: Turn) -> None:
        as_json = r.is_json(msg.data, (msg.headers or {}).get(_CONTENT_TYPE, ""))
        with asking(self._asked(asked.user, home, kind, whence(msg))) as told:
            try:
                reply = await self._reply(asked.user, asked.department, told.kind, msg.data, as_json)
                self._gate.parts(told, reply)
                self._gate.granted(told)
            except Refused as refused:
                reply = refused.problem()
                self._gate.refused(told, refused)
            finally:
                turn.leave(told.cost)
        if msg.reply:
            await answer_request(msg, home, reply, as_json=as_json)

    def _asked(self, name: str, home: str, kind: str, found: Found) -> Asked:
        user = self._core.user(name)
        role = user.role if user is not None else ""
        return Asked(kind, "nats", user=name, department=home, role=role, peer=found.peer, client=found.client)

    async def _reply(self, name: str, department: str, kind: str, data: bytes, as_json: bool) -> r.Message:
        user = self._core.user(name)
        if user is None:
            raise Refused("denied", f"there is no user {name} in the configuration")
        if kind not in r.REQUESTS:
            raise Refused("unknown", f"there is no request {kind}; there are {', '.join(r.REQUESTS)}")
        try:
            request = r.decode(kind, data, as_json)
        except r.Malformed as error:
            raise Refused("invalid", error.message, error.field) from None
        caller = Caller(user.name, user.department, user.role)
        return await self._desk.handle(caller, department, kind, request)

    def _own_department(self, name: str, fallback: str) -> str:
        """The caller's inbox.  Of an unknown caller: the department of the subject that the server let through."""
        user = self._core.user(name)
        return user.department if user is not None else fallback

    async def _refuse_reply(self, msg: Msg, user: str, home: str) -> None:
        """Rule 2."""
        if not self._foreign.take(time.monotonic()):
            REPLIES_DROPPED.labels("foreign").inc()
            return
        await answer(msg, home, b"")  # counted, logged and dropped there
        refused = Refused("denied", f"the reply subject {msg.reply[:200]!r} is not in the inbox of {home}")
        self._gate.refused(self._asked(user, home, msg.subject, whence(msg)), refused)
