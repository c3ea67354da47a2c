"""The embedded OpenNebula: `POST /RPC2`, answered as `oned` 7.4 does.

1. One process, one event loop, no lock: a call is decided in one step unless its handler awaits.
2. The caller is checked first, then the parameters, then the method decides. What goes wrong unforeseen is error
   8192, never a lost answer.
3. Methods live in `methods_*`; states in `machine`; this module only carries.
4. `phoenix.dummy.steer` exists only if steering was asked for.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Sequence

from aiohttp import web

from phoenix.local.driver import Driver
from phoenix.local.opennebula import (
    methods_host,
    methods_steer,
    methods_system,
    methods_user,
    methods_vm,
    methods_vmpool,
    xmlrpc,
)
from phoenix.local.opennebula.calls import METHODS, Call
from phoenix.local.opennebula.errors import FAULT_NO_METHOD, INTERNAL, Fault, OneError
from phoenix.local.opennebula.model import IMAGE_READY
from phoenix.local.opennebula.pace import Door, Pace
from phoenix.local.opennebula.parts import parts_of
from phoenix.local.opennebula.seed import seed
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import Lcm, VmState
from phoenix.local.opennebula.steering import Steering
from phoenix.local.opennebula.store import Clock
from phoenix.local.opennebula.vm_build import has_images
from services.runtime.http.guard import Guard
from services.runtime.http.server import Site
from services.runtime.log import get_log

_LOG = logging.getLogger("phoenix.opennebula")

# The modules whose import registers the methods.
METHOD_MODULES = (
    methods_host,
    methods_steer,
    methods_system,
    methods_user,
    methods_vm,
    methods_vmpool,
)

# A template of a million characters in base64 within XML still fits.
BODY_BYTES_MAX = 16 * 1024 * 1024

# Connections in flight at the end get this long to finish.
SHUTDOWN_S = 2.0


# Methods that change nothing end so.
_READING = (".info", ".infoset", ".infoextended", ".monitoring", ".version", ".config")


class OpenNebula:
    """The server. `start`, then `url` and `session`; `close` stops the driver and what it runs."""

    def __init__(
        self, settings: Settings, driver: Driver, clock: Clock | None = None, steering: Steering | None = None
    ) -> None:
        self.parts = parts_of(settings, driver, clock, steering)
        self.settings, self.driver, self.clock = settings, driver, self.parts.clock
        self.steering, self.store, self.auth = self.parts.steering, self.parts.store, self.parts.auth
        self.machine, self.monitor, self.hooks = self.parts.machine, self.parts.monitor, self.parts.hooks
        self.events, self.persistence = self.parts.events, self.parts.persistence
        self._pace = Pace() if settings.pace else None
        self.machine.pace = self._pace
        self._door: Door | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """The XML-RPC endpoint."""
        return f"http://{self.settings.bind}:{self.port}/RPC2"

    @property
    def session(self) -> str:
        """The administrator's session."""
        return f"{self.settings.user}:{self.settings.password}"

    @property
    def port(self) -> int:
        """The port listened on."""
        if self._door is not None:
            return self._door.address[1]
        assert self._runner is not None, "the server has not been started"
        addresses: Sequence[tuple[str, int]] = self._runner.addresses
        return addresses[0][1]

    async def start(self) -> None:
        """Load what was persisted, start the driver, listen."""
        seed(self.store, self.settings)
        self.persistence.load(self.clock.second())
        self.machine.listeners.append(self.hooks.vm_changed)
        self.machine.listeners.append(self.monitor.vm_changed)
        self.machine.listeners.append(self.persistence.changed)
        self.persistence.open()
        await self.driver.start(self.monitor.vm_ended)
        await self.events.start()
        self.monitor.start()
        await self._listen()

    def image_is_copied(self, image_id: int) -> None:
        """A LOCKED image is there: VMs that waited for it go where they would have been without."""
        self.store.images[image_id].state = IMAGE_READY
        for vm in [vm for vm in self.store.vms.values() if vm.state == VmState.CLONING]:
            if has_images(vm, self.store):
                self.machine.move(
                    vm, (VmState.HOLD if vm.template.has("SUBMIT_ON_HOLD") else VmState.PENDING, Lcm.LCM_INIT)
                )

    async def _listen(self) -> None:
        bind, port = self.settings.bind, self.settings.port
        door = Door(self._handle) if self._pace is not None else None
        runner = web.ServerRunner(door or web.Server(self._handle, access_log=None), shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        self._runner = runner
        if door is None:
            guard = Guard(get_log(service="opennebula"), anonymous_s=math.inf)  # its tokens stand in bodies
            await Site(runner, bind, port, guard, backlog=512).start()
        else:
            door.open(bind, port)
            self._door = door

    async def close(self) -> None:
        """Stop listening, stop the driver, persist."""
        if self._door:
            await self._door.close()
        if self._runner:
            await self._runner.cleanup()
        await self.monitor.close()
        await self.machine.close()
        await self.driver.close()
        await self.events.close()
        await self.persistence.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/RPC2":
            return web.Response(status=404, text="XML-RPC is at /RPC2\n")
        if request.method != "POST":
            return web.Response(status=405, text="XML-RPC is POST only\n", headers={"Allow": "POST"})
        content = await _read(request)
        if content is None:
            return web.Response(status=413, text=f"A call has at most {BODY_BYTES_MAX} bytes\n")
        if self._door is not None:
            self._door.heard(request.transport)
        response = web.Response(body=await self.answer(content), headers={"Content-Type": "text/xml; charset=utf-8"})
        if self._door is not None:
            response.force_close()
        return response

    async def answer(self, body: bytes) -> bytes:
        """One call, encoded, to one answer, encoded."""
        name = ""
        params: list[object] = []
        try:
            name, params = xmlrpc.decode(body)
            value = await self._call(name, params)
        except Fault as fault:
            return xmlrpc.encode_fault(fault)
        except OneError as error:
            self._report(name, params, error)
            return xmlrpc.encode_error(name, error)
        except Exception as error:
            _LOG.exception("the method %s failed", name)
            return xmlrpc.encode_error(name, OneError(INTERNAL, f"Internal error: {type(error).__name__}: {error}"))
        self._report(name, params, value)
        if not name.startswith("one.vm") and not name.endswith(_READING):
            self.persistence.pools_changed()
        return xmlrpc.encode(value)

    async def _call(self, name: str, params: list[object]) -> str | int | bool:
        method = METHODS.get(name)
        if method is None or (method.name == methods_steer.METHOD and self.steering is None):
            raise Fault(FAULT_NO_METHOD, f"Method '{name}' not defined")
        if not params or not isinstance(params[0], str):
            method.arguments(["", *params[1:]] if params else [""])
        user = self.auth.user(params[0] if params and isinstance(params[0], str) else "")
        arguments = method.arguments(params)
        self.store.requests += 1
        if self._pace is not None and name == "one.vm.allocate":
            await self._pace.allocations.turn()
        value = method.handler(Call(self.parts, user, self.store.requests, name), *arguments)
        if inspect.isawaitable(value):
            value = await value
        result: str | int | bool = value
        return result

    def _report(self, name: str, params: list[object], outcome: str | int | bool | OneError) -> None:
        if self.hooks.active and name.startswith("one.") and not name.endswith(_READING):
            self.hooks.called(name, params, outcome)


async def _read(request: web.BaseRequest) -> bytes | None:
    """The body, or None if it is longer than any call."""
    if (request.content_length or 0) > BODY_BYTES_MAX:
        return None
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
        parts.append(part)
    return b"".join(parts)
