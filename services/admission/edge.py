"""Admission's side to the outside world: what opens when this replica leads, what closes when it stops.

Rules
  1. Only the leader has doors: a standby listens nowhere, so on one machine both can have the same address, and a load
     balancer in front of two machines sees which one serves.
  2. Closing: no new requests, those under way are answered, then the listener goes.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

from aiohttp import web

from schemas import facts as f
from schemas.facts import Fact
from schemas.subjects import OBJECTS
from services.admission.answers import errors_as_answers
from services.admission.commands.dispatcher import Desk
from services.admission.commands.request_audit import Gate
from services.admission.commands.whatif import Foretelling, Schedulers
from services.admission.core.admission import AdmissionCore
from services.admission.guests.guest_queue import GuestTurns
from services.admission.guests.guests import Guests
from services.admission.guests.tokens import GuestTokens
from services.admission.guests.usage_reports import Usages
from services.admission.http.door import HttpDoor, body_room
from services.admission.nats_api import SUBJECTS, NatsDoor
from services.admission.storage.checkpoints import Checkpoints
from services.admission.storage.log_retention import Logs
from services.admission.storage.output import Files, Outputs
from services.admission.storage.payloads import Payloads
from services.admission.storage.quotas import Shares
from services.admission.storage.removed import Removed
from services.admission.storage.retention import Retention
from services.admission.storage.secrets import Secrets
from services.domain.custody.meta import Meta
from services.runtime.callers.audit import Recorder
from services.runtime.callers.identity import Identities
from services.runtime.callers.peers import Peers
from services.runtime.http.answers import as_asked, made_safe
from services.runtime.http.background import beside
from services.runtime.http.guard import Guard
from services.runtime.http.server import Site
from services.runtime.request_queue import Turns
from services.runtime.service import Edge, Service

BIND_S: Final = 10.0  # a predecessor on this machine lets go of the address within its own end
BIND_EVERY_S: Final = 0.1
# for answers under way: some ms each.  Long polls are cut and asked again; a successor waits for this
SHUTDOWN_S: Final = 0.5
BACKLOG: Final = 1024  # a hundred guests boot at once
_OF_UNIT: Final = (f.UnitPlaced, f.AttemptClosed, f.AttemptReported, f.AttemptBegan, f.VmEnded)


class Doors(Edge):
    """The one edge of admission."""

    def __init__(self) -> None:
        self._service: Service
        self._outputs: Outputs
        self._guests: Guests
        self._nats: NatsDoor | None = None
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, service: Service) -> None:
        self._service = service
        core = cast("AdmissionCore", service.core)
        self._custody = core.custody
        objects = self.shares = Shares(service.js, OBJECTS, core, service.registry)
        payloads, self._outputs, files = Payloads(objects), Outputs(objects), Files(objects)
        self._logs = Logs(core, self._outputs)
        self.recorder = Recorder(service.nc.publish, service.log)
        service.spawn("audit", self.recorder.run())
        gate = Gate(self.recorder, service.now, service.registry, service.log)
        secrets = Secrets(service.config.secrets.directory, time.monotonic, service.log)
        desk = Desk(service, core, payloads, service.registry, secrets, Foretelling(core, Schedulers(service.nc).ask))
        tokens = GuestTokens.load(service.config.guest_key_file)
        self.room = room = body_room(core)
        self._usages = Usages(service.nc.publish, time.monotonic, service.registry)
        checkpoints = Checkpoints(objects)
        removed = Removed(objects)
        self.retention = Retention(core, objects, payloads, self._outputs, files, checkpoints, removed, service.log)
        peers = Peers(service.config.http.proxies)
        self.guest_turns = GuestTurns(core, tokens, peers)
        self._guests = Guests(
            service,
            core,
            payloads,
            self._outputs,
            files,
            checkpoints,
            tokens,
            self.guest_turns,
            self._usages,
            secrets,
            room,
        )
        self.turns = Turns()
        self._nats = NatsDoor(service, core, desk, gate, self.turns)
        identities = Identities.load(service.config)
        self._guard = Guard(service.log, service.config.http, service.http, peers)
        self._http = HttpDoor(
            core,
            desk,
            gate,
            self.turns,
            self._outputs,
            files,
            identities,
            service.nc,
            service.config.monitor.url,
            peers,
            room,
            objects,
            removed,
        )

    async def lead(self) -> None:
        self.retention.opening()
        app = made_safe(web.Application(middlewares=[as_asked, errors_as_answers(self._service.log)]))
        app.router.add_routes([*self._guests.routes(), *self._http.routes()])
        app.cleanup_ctx.extend(
            [
                self._http.open,
                beside(self._guests.checkpoints.remove, "checkpoints-removed"),
                beside(self._usages.run, "measures"),
                beside(self._guests.jobs.run, "jobs-measured"),
                beside(self._logs.remove, "logs-removed"),
                beside(self.retention.run, "retention"),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        assert self._nats is not None
        await self._nats.open()
        await self._listen(self._runner)

    def listens(self, user: str) -> bool:
        """Whether requests of that user over NATS are heard."""
        return self._nats is not None and self._nats.lines.hears(SUBJECTS.format(user))

    async def _listen(self, runner: web.AppRunner) -> None:
        host, _, port = self._service.config.http.listen.rpartition(":")
        deadline = time.monotonic() + BIND_S
        while True:
            try:
                await Site(runner, host, int(port), self._guard, backlog=BACKLOG).start()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    self._service.fail(f"cannot listen on {host}:{port}: {error.strerror}")
                    return
            await asyncio.sleep(BIND_EVERY_S)
        self.port = runner.addresses[0][1]
        self._service.log.info("listening", listen=f"{host}:{self.port}")

    async def close(self) -> None:
        if self._nats is not None:
            await self._nats.close()
        if self._runner is not None:
            await self._runner.cleanup()
            await self.recorder.flush()

    def applied(self, fact: Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        self._guests.applied(fact, meta.broken)
        self._logs.applied(fact)
        self.retention.applied(fact)
        if isinstance(fact, _OF_UNIT):
            self._outputs.news.tell(fact.unit)
        elif isinstance(fact, f.Cancelled):
            for unit in self._custody.changed:
                self._outputs.news.tell(unit)
        elif isinstance(fact, f.ConfigAdopted) and self._nats is not None:
            self._nats.lines.changed()
