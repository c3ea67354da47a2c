"""What an embedded OpenNebula consists of: the parts that a call works on, and how they are joined."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from phoenix.local.driver import Driver
from phoenix.local.opennebula.auth import Auth
from phoenix.local.opennebula.events import Events
from phoenix.local.opennebula.hooks import Hooks
from phoenix.local.opennebula.machine import Machine
from phoenix.local.opennebula.monitor import Monitor
from phoenix.local.opennebula.persistence import Persistence
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.steering import Steering
from phoenix.local.opennebula.store import Clock, Store


@dataclass(slots=True)
class Parts:
    """`steering`: None unless it was asked for."""

    settings: Settings
    driver: Driver
    clock: Clock
    steering: Steering | None
    store: Store
    auth: Auth
    machine: Machine
    hooks: Hooks
    monitor: Monitor
    events: Events
    persistence: Persistence

    async def settle(self, timeout_s: float = 10.0) -> None:
        """Wait until nothing is under way but what steering holds. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            # Only tests wait so; an event for each end would cost every operation.
            while self.machine.busy > (self.steering.waiting if self.steering else 0):  # noqa: ASYNC110
                await asyncio.sleep(0)


def parts_of(settings: Settings, driver: Driver, clock: Clock | None, steering: Steering | None) -> Parts:
    """All parts, joined, none of them started."""
    clock, store = clock or Clock(), Store()
    steering = (steering or Steering()) if settings.steering else None
    events = Events(settings.bind, settings.events_port, settings.events)
    hooks = Hooks(store, events)
    machine = Machine(store, driver, clock, steering)
    return Parts(
        settings=settings,
        driver=driver,
        clock=clock,
        steering=steering,
        store=store,
        auth=Auth(store, clock),
        machine=machine,
        hooks=hooks,
        monitor=Monitor(settings, store, machine, hooks, driver, clock),
        events=events,
        persistence=Persistence(store, settings.data_dir),
    )
