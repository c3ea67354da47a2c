"""A denial is an error at the call that it concerns, at once; everything else is as with the client library alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from services.runtime.broker.denials import Denials, Denied
from tests.integration.nats_process import NatsProcess, settled

OWN = "phoenix.request.hpc.ann.job.submit"
ANOTHERS = "phoenix.request.hpc.bob.job.submit"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsProcess]:
    process = NatsProcess(tmp_path)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


async def test_only_the_denied_call_fails(server: NatsProcess) -> None:
    """Three calls at once: two denied, of the same subject, and one that is answered after them."""
    admission, _ = await server.connect("service-admission")
    release = asyncio.Event()

    async def answer(message: Msg) -> None:
        await asyncio.wait_for(release.wait(), 30)
        await message.respond(b"done")

    await admission.subscribe("phoenix.request.>", cb=answer)
    await settled(admission)
    ann, denials = await server.connect("ann")
    own = asyncio.create_task(denials.request(ann, OWN, timeout_s=30))
    others = [asyncio.create_task(denials.request(ann, ANOTHERS, timeout_s=30)) for _ in range(2)]
    for other in others:
        with pytest.raises(Denied) as caught:
            await asyncio.wait_for(other, 30)
        assert (caught.value.subject, caught.value.action) == (ANOTHERS, "publish")
    assert not own.done()
    release.set()
    assert (await asyncio.wait_for(own, 30)).data == b"done"


async def test_other_failures_are_those_of_the_client_library(server: NatsProcess) -> None:
    ann, denials = await server.connect("ann")
    with pytest.raises(nats.errors.NoRespondersError):
        await denials.request(ann, OWN, timeout_s=30)
    admission, _ = await server.connect("service-admission")
    await admission.subscribe("phoenix.request.>")  # hears, and does not answer
    await settled(admission)
    with pytest.raises(nats.errors.TimeoutError):
        await denials.request(ann, OWN, timeout_s=0.2)
    assert denials.last_error is None


async def test_a_denied_subscription_is_told(server: NatsProcess) -> None:
    ann, denials = await server.connect("ann")
    await ann.subscribe("phoenix.journal.>")
    await settled(ann)
    assert isinstance(denials.last_error, Denied)
    assert "may not subscribe to phoenix.journal.>" in str(denials.last_error)


async def test_what_is_no_denial_goes_to_the_other_listener() -> None:
    heard: list[Exception] = []

    async def other(error: Exception) -> None:
        heard.append(error)

    denials = Denials(other)
    slow = nats.errors.SlowConsumerError("phoenix.event.>", "_INBOX_hpc.ann.1", 1, None)  # type: ignore[arg-type]
    await denials.on_error(slow)
    await denials.on_error(nats.errors.Error('nats: permissions violation for publish to "x.y"'))
    assert heard == [slow]
    assert isinstance(denials.last_error, Denied)
