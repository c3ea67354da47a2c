"""The services' own shell under generated permissions: every process of a cloud, side by side, and not one denial.

The matrix says what is allowed; this says that it is enough: streams by the admin, then lease, snapshot, replay, append and the
orderly end by the real `Service`.  The server's log holds every violation, whatever its client.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from services.domain.custody.custody import Custody
from services.runtime.broker.objects import Objects
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.tables import Metrics, processes
from services.runtime.service import Service
from tests.integration.nats_process import NatsProcess, settled
from tests.support.toy import ToyCore, next_job
from tests.support.until import DEADLINE_S, until


def quiet_core(custody: Custody) -> ToyCore:
    return ToyCore(custody)


def violations(server: NatsProcess) -> list[str]:
    log = (server.directory / "nats.log").read_text()
    return [line for line in log.splitlines() if "Violation" in line or "violation" in line]


def services_of(server: NatsProcess) -> dict[str, Service]:
    config = msgspec.structs.replace(server.config, metrics=Metrics())  # no listeners: other tests may have the ports
    made = {}
    for process in processes(config.cloud):
        writer = None if process == "monitor" else process
        made[process] = Service(writer, quiet_core, config, instance=f"{process}-1", name=process)
    return made


async def test_every_service_lives_and_ends_with_its_permissions_alone(tmp_path: Path) -> None:
    server = NatsProcess(tmp_path)
    try:
        await server.start()
        admin, _ = await server.connect("service-admin")
        await ensure_streams(admin.jetstream(timeout=30), server.config)
        services = services_of(server)
        runs = {name: asyncio.create_task(service.run()) for name, service in services.items()}

        async def all_lead() -> bool:
            ended = {name: run.result() for name, run in runs.items() if run.done()}
            assert ended == {}
            return all(s.is_leader or s.writer is None for s in services.values())

        await until(all_lead)
        outcome = await services["admission"].propose(next_job(services["admission"].custody))
        for service in services.values():
            await service.wait_for(outcome.position, DEADLINE_S)
        for service in services.values():
            service.stop()
        codes = {name: await asyncio.wait_for(run, 30) for name, run in runs.items()}
        assert codes == dict.fromkeys(services, 0)
        assert violations(server) == []
    finally:
        await server.stop()


async def test_admission_keeps_objects_and_a_scheduler_cannot(tmp_path: Path) -> None:
    server = NatsProcess(tmp_path)
    try:
        await server.start()
        admin, _ = await server.connect("service-admin")
        await ensure_streams(admin.jetstream(timeout=30), server.config)
        nc, denials = await server.connect("service-admission")
        objects = Objects(nc.jetstream(timeout=30), "PHOENIX_OBJECTS")
        for content in (b"#!/bin/sh\n", b"x" * 1_000_000):
            await objects.put("job/1", content)
            assert await objects.get("job/1") == content
        assert await objects.delete("job/1")
        assert denials.last_error is None
        assert violations(server) == []
        other, refusals = await server.connect("service-scheduler.hpc")
        await other.publish("$O.PHOENIX_OBJECTS.C.x", b"x")
        await settled(other)
        assert refusals.last_error is not None
        assert len(violations(server)) == 1
    finally:
        await server.stop()
