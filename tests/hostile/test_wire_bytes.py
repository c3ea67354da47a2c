"""What a department's user can write into the wire does not deafen a service, nor choose which subscription hears it.

A user may publish below `phoenix.request.<department>.<user>.`, and the server lets every byte into a subject but those that
end its parts.  A service hears what it can read, under the subscription that it belongs to, and counts the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from services.runtime.broker import credentials
from services.runtime.broker.client import MALFORMED
from services.runtime.broker.connect import connect, service_key
from services.runtime.log import get_log
from tests.integration.nats_process import NatsProcess, settled
from tests.support.wire import Wire, hpub, pub

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = b"phoenix.request.hpc.ann."
CONTROL = [*range(32), *range(127, 256)]
SEPARATORS = b"\t\n\r "  # at these the server ends a part of the line itself, at CR only before LF
SEPARATED = [byte for byte in CONTROL if byte in SEPARATORS]
WITHIN = [byte for byte in CONTROL if byte not in SEPARATORS]


class Heard(NamedTuple):
    subject: str
    reply: str
    data: bytes


class Service:
    """A connection as services have it, with two subscriptions."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.requests: list[Heard] = []
        self.queries: list[Heard] = []  # sid 2: which nobody here asks

    async def listen(self) -> None:
        async def requested(msg: Msg) -> None:
            self.requests.append(Heard(msg.subject, msg.reply, msg.data))

        async def queried(msg: Msg) -> None:
            self.queries.append(Heard(msg.subject, msg.reply, msg.data))

        await self.client.subscribe("phoenix.request.>", cb=requested)
        await self.client.subscribe("phoenix.query.admission.>", cb=queried)
        await settled(self.client)

    async def hears(self, wire: Wire, *said: bytes) -> list[Heard]:
        """What it heard of that, once it has heard what was said after it."""
        self.requests.clear()
        for each in said:
            await wire.say(each)
        await wire.say(pub(OWN + b"job.list", b"last"))
        assert await wire.settled()
        await settled(self.client)
        async with asyncio.timeout(30):
            while not self.requests or self.requests[-1].data != b"last":
                await settled(self.client)
        assert self.queries == []
        return self.requests[:-1]


@pytest_asyncio.fixture(loop_scope="module")
async def service(broker: NatsProcess) -> AsyncIterator[Service]:
    inbox, seed = service_key(broker.config, "admission")
    client = await connect(broker.config.nats.url, name="admission", inbox=inbox, log=get_log(), seed_file=seed)
    made = Service(client)
    try:
        await made.listen()
        yield made
        assert client.stats["reconnects"] == 0
    finally:
        await client.close()


async def ann(broker: NatsProcess) -> Wire:
    return await Wire.open(broker.config.nats.url, credentials.seed_file(broker.config, "ann"))


def dropped() -> float:
    return sum(sample.value for family in MALFORMED.collect() for sample in family.samples)


async def test_every_byte_in_a_subject_is_heard_as_it_is_or_dropped_and_counted(
    broker: NatsProcess, service: Service
) -> None:
    wire, before = await ann(broker), dropped()
    heard = await service.hears(wire, *(pub(OWN + b"job.submit" + bytes([byte])) for byte in WITHIN))
    assert [each.subject for each in heard] == [f"{OWN.decode()}job.submit{chr(b)}" for b in WITHIN if b < 128]
    assert dropped() - before == 128
    wire.close()


async def test_whatever_the_reply_subject_the_service_hears_one_that_the_broker_has_made(
    broker: NatsProcess, service: Service
) -> None:
    wire, before = await ann(broker), dropped()
    inbox = b"_INBOX_hpc.ann.x"
    said = [pub(OWN + b"job.submit", reply=inbox + bytes([byte])) for byte in WITHIN]
    heard = await service.hears(wire, *said)
    assert len(heard) == len(WITHIN)
    assert dropped() == before
    assert all(each.reply.startswith("_R_.") for each in heard)
    assert {each.subject for each in heard} == {"phoenix.request.hpc.ann.job.submit"}
    wire.close()


@pytest.mark.parametrize("byte", SEPARATED)
@pytest.mark.parametrize("sid", [b"1", b"2"])
async def test_what_ends_a_part_ends_it_for_the_server(
    broker: NatsProcess, service: Service, byte: int, sid: bytes
) -> None:
    wire, later = await ann(broker), await ann(broker)
    at = bytes([byte])
    await wire.say(pub(OWN + b"job.submit" + at + sid) + pub(OWN + b"job.submit", reply=b"_INBOX_hpc.ann.x" + at + sid))
    await wire.settled()
    heard = await service.hears(later)
    whole = (at + sid).decode() if at == b"\r" else ""
    assert {each.subject for each in heard} <= {f"{OWN.decode()}job.submit{end}" for end in ("", whole)}
    wire.close()
    later.close()


@pytest.mark.parametrize("space", [b"\x0b", b"\x0c", b"\x1c", b"\x1f", b"\x85", b"\xa0", b"\xc2\xa0", b"\xe2\x80\xa8"])
async def test_no_sender_chooses_the_subscription(broker: NatsProcess, service: Service, space: bytes) -> None:
    """`MSG <subject>\\x0b2 1 1`: a subject, and a number that looks like the one of the subscription to queries."""
    wire = await ann(broker)
    heard = await service.hears(
        wire, pub(OWN + b"job.submit" + space + b"2"), pub(OWN + b"a" + space + b"2" + space + b"9")
    )
    assert all(each.data == b"x" and each.subject.startswith(OWN.decode()) for each in heard)
    wire.close()


GOOD = b"NATS/1.0\r\nContent-Type: application/json\r\n\r\n"
STATUS = b"NATS/1.0 503\r\nA: b\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"NATS",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.0 \xff\xff\xff\r\n\r\n",
        b"NATS/1.0 503 \xff\r\n\r\n",
        b"NATS/1.0 503\r\nA: \xff\r\n\r\n",
        b"NATS/1.0 100 x\r\n\xff: \xff\r\n\r\n",
        b"NATS/1.0\xff\r\n\r\n",
        b"NATS/1.0\x0b503\r\n\r\n",
        b"\xff" * 32,
    ],
)
async def test_headers_that_cannot_be_read_are_dropped(broker: NatsProcess, service: Service, headers: bytes) -> None:
    wire, before = await ann(broker), dropped()
    said = [hpub(OWN + b"job.submit", each) for each in (headers, GOOD, STATUS)]
    assert len(await service.hears(wire, *said)) == 2
    assert dropped() - before == 1
    wire.close()


async def test_header_values_that_are_no_text_are_heard(broker: NatsProcess, service: Service) -> None:
    """They cannot harm: a name that is no ASCII is left out, a value is shown with replacement characters."""
    wire = await ann(broker)
    heard = await service.hears(wire, hpub(OWN + b"job.submit", b"NATS/1.0\r\n\xff: a\r\nB: \xff\r\n\r\n"))
    assert len(heard) == 1
    wire.close()
