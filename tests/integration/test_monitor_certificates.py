"""Ends of certificates, read from real TLS servers: in both forms of a date, expired, untrusted, behind a NATS server's
greeting; and what shows none."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.monitor.metrics.certificates import Certificates, Endpoint, endpoints, not_after
from services.runtime.config.file import loads
from tests.integration.nats_process import CLOUD
from tests.support.nats import NatsServer
from tests.support.ports import free_port
from tests.support.shells import LOG

MADE = Path(__file__).parents[1] / "fixtures" / "tls"
ENDS = {
    "20200102030405Z": datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
    "20491231235959Z": datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
    "20520304050607Z": datetime(2052, 3, 4, 5, 6, 7, tzinfo=UTC),
}
DER = ssl.PEM_cert_to_DER_cert(
    "-----BEGIN CERT" + (MADE / "until-20491231235959Z.pem").read_text().split("BEGIN CERT")[1]
)


def pem(end: str) -> Path:
    return MADE / f"until-{end}.pem"


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that says nothing."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def serving(end: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem(end))
    return context


def value(found: Certificates, name: str, endpoint: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(found)
    return registry.get_sample_value(f"phoenix_certificate_{name}", {"endpoint": endpoint})


@pytest.mark.parametrize("end", ENDS)
async def test_the_end_is_what_the_server_shows_whoever_trusts_it(end: str) -> None:
    async with listening(serving(end)) as port:
        found = Certificates((Endpoint("http", "127.0.0.1", port, False),), LOG, clock=lambda: 1000.0)
        assert await found.look()
    assert value(found, "expiry_timestamp_seconds", "http") == ENDS[end].timestamp()
    assert value(found, "seen_timestamp_seconds", "http") == 1000
    assert value(found, "look_failures_total", "http") == 0


async def test_one_that_is_renewed_is_seen_and_one_that_is_gone_is_counted() -> None:
    async with listening(serving("20200102030405Z")) as port:
        found = Certificates((Endpoint("opennebula", "127.0.0.1", port, False),), LOG)
        assert await found.look()
    renewed = await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", port, ssl=serving("20491231235959Z"), reuse_address=True
    )
    async with renewed:
        assert await found.look()
    assert not await found.look()
    assert value(found, "expiry_timestamp_seconds", "opennebula") == ENDS["20491231235959Z"].timestamp()
    assert value(found, "look_failures_total", "opennebula") == 1


async def test_what_speaks_no_tls_hides_none_of_the_others() -> None:
    async with listening() as plain, listening(serving("20491231235959Z")) as port:
        wanted = (Endpoint("http", "127.0.0.1", plain, False), Endpoint("monitor", "127.0.0.1", port, False))
        found = Certificates((*wanted, Endpoint("nats", "127.0.0.1", plain, True)), LOG)
        assert not await found.look()
    assert value(found, "look_failures_total", "http") == 1
    assert value(found, "look_failures_total", "nats") == 1
    assert value(found, "expiry_timestamp_seconds", "http") is None
    assert value(found, "expiry_timestamp_seconds", "monitor") == ENDS["20491231235959Z"].timestamp()


async def test_a_nats_server_greets_first(tmp_path: Path) -> None:
    file = pem("20520304050607Z")
    server = NatsServer(tmp_path, extra=f'tls {{ cert_file: "{file}", key_file: "{file}" }}')
    server.start()
    try:
        found = Certificates((Endpoint("nats", "127.0.0.1", server.port, True),), LOG)
        assert await found.look()
        assert value(found, "expiry_timestamp_seconds", "nats") == ENDS["20520304050607Z"].timestamp()
    finally:
        server.stop()


def test_addresses_with_a_certificate_are_those_of_the_configuration() -> None:
    assert endpoints(loads(CLOUD)) == ()
    text = CLOUD + (
        '[http]\nurl = "https://phoenix.example.org"\n[monitor]\nurl = "https://phoenix.example.org:8443/"\n'
        '[nats]\nurl = "tls://broker"\n[opennebula]\nendpoint = "https://one.example.org:2634/RPC2"\n'
    )
    assert endpoints(loads(text)) == (
        Endpoint("http", "phoenix.example.org", 443, False),
        Endpoint("monitor", "phoenix.example.org", 8443, False),
        Endpoint("nats", "broker", 4222, True),
        Endpoint("opennebula", "one.example.org", 2634, False),
    )


async def test_nobody_there_is_a_failure() -> None:
    found = Certificates((Endpoint("http", "127.0.0.1", free_port(), False),), LOG)
    assert not await found.look()


def test_whatever_is_shown_is_an_end_or_refused() -> None:
    """Cut at each place, and with each byte another: never anything but ValueError."""
    shown = [DER[:end] for end in range(len(DER))]
    shown += [
        DER[:at] + bytes([byte]) + DER[at + 1 :] for at in range(len(DER)) for byte in (0, 0x7F, 0x80, 0x84, 0xFF)
    ]
    for der in shown:
        with contextlib.suppress(ValueError):
            assert isinstance(not_after(der), float)
