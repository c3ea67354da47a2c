"""The NATS door: phoenix.request.<department>.<user>.<noun>.<verb>, answered by the leader only.

Rules
  1. The user in the subject is true because the server lets nobody else publish it; department and role come from the adopted
     configuration.
  2. A request whose answer would go anywhere but to the asker's own inbox is not served at all (PROTOCOL S10): nothing is
     written for somebody who tries to steer an answer into the journal.  A request without a reply subject is served.
  3. `config.apply` is the provisioner's: ignored here.
  4. Requests are served side by side, a bounded number at a time; what they propose shares envelopes.
"""

from __future__ import annotations

import asyncio
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from schemas import requests as r
from schemas.subjects import is_reply_allowed, parse_request
from services.admission.asked import Asked, asking
from services.admission.compose import Caller
from services.admission.core import AdmissionCore
from services.admission.desk import Desk
from services.admission.gate import Gate
from services.admission.web import failed
from services.runtime.broker.answer import answer
from services.runtime.broker.whence import Found, whence
from services.runtime.edge import Refused
from services.runtime.log import Log, frames_of

SUBJECTS: Final = "phoenix.request.*.*.*.*"
IN_FLIGHT_MAX: Final = 5_000  # requests served at once; each holds its payload, on average some kB
DRAIN_S: Final = 3.0  # for requests under way when the door closes
FOREIGN: Final = ("config.apply",)
_CONTENT_TYPE: Final = "Content-Type"


class NatsDoor:
    def __init__(self, nc: Client, core: AdmissionCore, desk: Desk, gate: Gate, log: Log) -> None:
        self._nc, self._core, self._desk, self._gate, self._log = nc, core, desk, gate, log
        self._subscription: Subscription | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._subscription = await self._nc.subscribe(SUBJECTS, cb=self._receive)

    async def close(self) -> None:
        """No new requests; those under way get DRAIN_S."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=DRAIN_S)
            for task in late:
                task.cancel()

    async def _receive(self, msg: Msg) -> None:
        if len(self._serving) >= IN_FLIGHT_MAX:
            await self._serve_refusal(msg)
            return
        task = asyncio.create_task(self._serve(msg), name="request")
        self._serving.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("request failed", error=type(error).__name__, trace=frames_of(error))

    async def _serve_refusal(self, msg: Msg) -> None:
        asked = parse_request(msg.subject)
        if asked is not None:
            busy = Refused("unavailable", "the door is full: ask again in a moment")
            await answer(msg, self._own_department(asked.user, asked.department), r.encode(failed(busy)))

    async def _serve(self, msg: Msg) -> None:
        asked = parse_request(msg.subject)
        if asked is None or f"{asked.noun}.{asked.verb}" in FOREIGN:
            return
        home = self._own_department(asked.user, asked.department)
        found = whence(msg)
        if msg.reply and not is_reply_allowed(msg.reply, home):
            await self._refuse_reply(msg, asked.user, home, found)
            return
        as_json = r.is_json(msg.data, (msg.headers or {}).get(_CONTENT_TYPE, ""))
        with asking(self._asked(asked.user, home, f"{asked.noun}.{asked.verb}", found)) as told:
            try:
                reply = await self._reply(asked.user, asked.department, told.kind, msg.data, as_json)
                data = r.encode(reply, as_json)
                self._gate.parts(told, reply)
                self._gate.granted(told)
            except Refused as refused:
                data = r.encode(failed(refused), as_json)
                self._gate.refused(told, refused)
        if msg.reply:
            await answer(msg, home, data)

    def _asked(self, name: str, home: str, kind: str, found: Found) -> Asked:
        user = self._core.user(name)
        role = user.role if user is not None else ""
        return Asked(kind, "nats", user=name, department=home, role=role, peer=found.peer, client=found.client)

    async def _reply(self, name: str, department: str, kind: str, data: bytes, as_json: bool) -> r.Message:
        user = self._core.user(name)
        if user is None:
            raise Refused("denied", f"there is no user {name} in the configuration")
        self._gate.admit(name)
        if kind not in r.REQUESTS:
            raise Refused("unknown", f"there is no request {kind}; there are {', '.join(r.REQUESTS)}")
        try:
            request = r.decode(kind, data, as_json)
        except r.Malformed as error:
            raise Refused("invalid", error.message, error.field) from None
        caller = Caller(user.name, user.department, user.role)
        return await self._desk.handle(caller, department, kind, request)

    def _own_department(self, name: str, fallback: str) -> str:
        """Where the asker's inbox is.  Of somebody unknown: the department of the subject that the server let through."""
        user = self._core.user(name)
        return user.department if user is not None else fallback

    async def _refuse_reply(self, msg: Msg, user: str, home: str, found: Found) -> None:
        await answer(msg, home, b"")  # counted, logged and dropped there
        refused = Refused("denied", f"the reply subject {msg.reply[:200]!r} is not in the inbox of {home}")
        self._gate.refused(self._asked(user, home, msg.subject, found), refused)
