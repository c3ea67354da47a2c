"""SIGHUP: people and departments come and go without a restart of the server."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import nats
import nats.errors
import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg

from phoenix.local import stack_broker
from phoenix.local.stack_broker import BrokerError
from services.runtime.broker import credentials
from services.runtime.broker.denials import Denials
from services.runtime.config.file import loads
from services.runtime.config.tables import Config
from tests.integration.nats_process import CLOUD, NatsProcess, may_publish, settled
from tests.support.until import until

MORE = (
    CLOUD
    + """
[[department]]
name = "gpu"
kind = "batch"
[[user]]
name = "eve"
department = "gpu"
"""
)


def without_bob(text: str) -> str:
    return text.replace('[[user]]\nname = "bob"\ndepartment = "hpc"\n', "")


async def test_a_reload_adds_and_removes_users_and_departments(tmp_path: Path) -> None:
    """SIGHUP: a new user connects, a removed one is cut off, another's connection works on."""
    server = NatsProcess(tmp_path)
    try:
        await server.start()
        ann, ann_denials = await server.connect("ann")
        gone = asyncio.Event()

        async def disconnected() -> None:
            gone.set()

        bob, _ = await server.connect("bob", disconnected_cb=disconnected, allow_reconnect=False)
        bobs_key = server.config.nats.credentials_dir / "bob.nk"
        kept = bobs_key.read_bytes()
        await server.reload(changed(server, without_bob(MORE)))
        await asyncio.wait_for(gone.wait(), 30)
        assert not bobs_key.exists()
        copy = tmp_path / "copy.nk"
        copy.write_bytes(kept)
        with pytest.raises(nats.errors.Error):
            await nats.connect(server.config.nats.url, nkeys_seed=str(copy), allow_reconnect=False, connect_timeout=30)
        eve, denials = await server.connect("eve")
        assert await may_publish(eve, denials, "phoenix.request.gpu.eve.job.submit")
        assert not await may_publish(eve, denials, "phoenix.request.hpc.eve.job.submit")
        admission, _ = await server.connect("service-admission")
        await admission.subscribe("phoenix.request.*.*.*.*", cb=yes)
        await settled(admission)
        for asker, subject in (
            (eve, "phoenix.request.gpu.eve.job.submit"),
            (ann, "phoenix.request.hpc.ann.job.submit"),
        ):
            await until(partial(is_answered, asker, subject), f"an answer to {subject}")
        await until(lambda: still_works(ann, ann_denials), "ann still works")
        assert bob.is_closed or not bob.is_connected
    finally:
        await server.stop()


async def test_nobody_is_refused_once_a_reload_is_done(tmp_path: Path) -> None:
    """A new client is let in at the first try, each time."""
    server = NatsProcess(tmp_path)
    try:
        await server.start()
        for number in range(20):
            user = f"new-{number}"
            await server.reload(changed(server, f'{CLOUD}[[user]]\nname = "{user}"\ndepartment = "hpc"\n'))
            await server.connect(user, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0)
        assert b"authentication error" not in (tmp_path / "nats.log").read_bytes()
    finally:
        await server.stop()


async def yes(msg: Msg) -> None:
    await msg.respond(b"yes")


async def is_answered(nc: Client, subject: str) -> bool:
    try:
        return (await nc.request(subject, timeout=10)).data == b"yes"
    except nats.errors.Error:
        return False  # reconnecting


async def still_works(nc: Client, denials: Denials) -> bool:
    try:
        return await may_publish(nc, denials, "phoenix.request.hpc.ann.job.submit")
    except nats.errors.Error:
        return False  # reconnecting


def changed(server: NatsProcess, text: str) -> Config:
    return loads(text, base=server.directory)


async def test_a_denial_while_the_server_reloads_is_not_the_last_word(tmp_path: Path) -> None:
    """As the supervisor connects: nats-server denies a client that has not yet shown a key when it reloads its permissions."""
    server = NatsProcess(tmp_path)
    try:
        await server.start()
        more = changed(server, MORE)
        more = replace(more, nats=replace(more.nats, url=server.config.nats.url))
        credentials.ensure(more)
        asking = asyncio.create_task(stack_broker._connected(credentials.user_options(more, "eve")))
        log = tmp_path / "nats.log"
        await until(lambda: contains(log, b"authentication error"), "the refusal is in the log")
        await server.reload(more)
        client = await asyncio.wait_for(asking, 30)
        await client.close()
        credentials.seed_file(more, "eve").unlink()
        credentials.ensure(more)  # another key, of which the server is not told
        with pytest.raises(BrokerError, match="Authorization Violation"):
            await stack_broker._connected(credentials.user_options(more, "eve"))
    finally:
        await server.stop()


async def contains(log: Path, words: bytes) -> bool:
    return words in await asyncio.to_thread(log.read_bytes)
