"""When the certificates end of what this cloud is reached by, and reaches: doors, broker, OpenNebula.

Theory of operation
  Every address of the configuration that is https or tls is connected to, as its clients do, and its certificate's end read.
  That is what clients meet: a renewed file that no process has read again is seen as the old one that it still serves.

Rules
  1. The certificate is read, never trusted: an untrusted one, or one of another name, ends as well.  Nothing is sent.
  2. Each look has a deadline, and all addresses are looked at at once.  One that cannot be seen is counted and asked again
     sooner; what is known of it stays, since an end is a date and does not grow old.
  3. A NATS server speaks first, in the clear, and then TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.runtime.clock import Clock, system_clock
from services.runtime.config.tables import Config
from services.runtime.families import Label, Table
from services.runtime.log import Log, message_of

LOOK_S: Final = 600.0  # a renewed one is seen soon; an alert comes days before the end
AGAIN_S: Final = 60.0
CONNECT_S: Final = 5.0
_PORTS: Final = {"https": 443, "tls": 4222}
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18  # tags of DER (X.690), as RFC 5280 uses them
_UNSEEN: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)  # no connection, no TLS, no certificate
_ENDPOINT: Final = Label.of("endpoint", ("http", "monitor", "nats", "opennebula"))

TABLE: Final = Table("monitor: certificates")
ENDS: Final = TABLE.gauge(
    "phoenix_certificate_expiry_timestamp_seconds",
    "When the certificate ends that an https or tls address of the configuration shows",
    _ENDPOINT,
)
SEEN: Final = TABLE.gauge(
    "phoenix_certificate_seen_timestamp_seconds", "Time of the last successful check of that certificate", _ENDPOINT
)
LOOKS_FAILED: Final = TABLE.counter(
    "phoenix_certificate_look_failures_total", "Failed checks of that certificate", _ENDPOINT
)


class Endpoint(NamedTuple):
    """`name`: the table of the configuration that names it."""

    name: str
    host: str
    port: int
    is_nats: bool


def endpoints(config: Config) -> tuple[Endpoint, ...]:
    """Those of the configuration's addresses that have a certificate."""
    named = {
        "http": config.http.url,
        "monitor": config.monitor.url,
        "nats": config.nats.url,
        "opennebula": config.opennebula.endpoint,
    }
    found = [(name, urlsplit(url)) for name, url in named.items()]
    return tuple(
        Endpoint(name, url.hostname or "", url.port or _PORTS[url.scheme], url.scheme == "tls")
        for name, url in found
        if url.scheme in _PORTS
    )


class Certificates(Collector):
    """Registers with a Prometheus registry; `run` looks."""

    def __init__(self, found: tuple[Endpoint, ...], log: Log, clock: Clock = system_clock) -> None:
        self.endpoints, self.log, self.clock = found, log, clock
        self.ends: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._failures = {endpoint.name: 0 for endpoint in found}
        self._failing: set[str] = set()  # told in the log once, until it is seen again

    async def run(self) -> None:
        """For ever, if there is anything to look at."""
        while self.endpoints:
            all_seen = await self.look()
            await asyncio.sleep(LOOK_S if all_seen else AGAIN_S)

    async def look(self) -> bool:
        """Look at each; True if all were seen."""
        return all(await asyncio.gather(*map(self._look_at, self.endpoints)))

    async def _look_at(self, endpoint: Endpoint) -> bool:
        try:
            async with asyncio.timeout(CONNECT_S):
                self.ends[endpoint.name] = not_after(await certificate(endpoint))
        except _UNSEEN as error:
            self._failures[endpoint.name] += 1
            if endpoint.name not in self._failing:
                message = message_of(error)
                self.log.warning("certificate not checked", endpoint=endpoint.name, host=endpoint.host, error=message)
            self._failing.add(endpoint.name)
            return False
        self._failing.discard(endpoint.name)
        self._seen[endpoint.name] = self.clock()
        return True

    def collect(self) -> Iterator[Metric]:
        end, seen, failed = ENDS.family(), SEEN.family(), LOOKS_FAILED.family()
        for name, at in self.ends.items():
            end.add_metric([name], at)
            seen.add_metric([name], self._seen[name])
        for name, count in self._failures.items():
            failed.add_metric([name], count)
        yield from (end, seen, failed)


async def certificate(endpoint: Endpoint) -> bytes:
    """The certificate that it shows, DER.  Raises OSError, EOFError, ValueError, LimitOverrunError."""
    tls = None if endpoint.is_nats else _reading()
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=tls)
    try:
        if endpoint.is_nats:  # rule 3
            await reader.readuntil(b"\r\n")
            await writer.start_tls(_reading())
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()  # there is nothing to say good-bye to
    if not shown:
        raise ValueError("it shows no certificate")
    return bytes(shown)


def _reading() -> ssl.SSLContext:
    """TLS that takes any certificate (rule 1): for nothing but looking at it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def not_after(der: bytes) -> float:
    """The end of a certificate's validity, UTC seconds.  Raises ValueError.

    Certificate = SEQUENCE of TBSCertificate, …; TBSCertificate = SEQUENCE of [version], serial, signature, issuer,
    validity = SEQUENCE of notBefore, notAfter; …  (RFC 5280, 4.1).
    """
    certificate = _inside(der, 0, _SEQUENCE)
    at = _inside(der, certificate, _SEQUENCE)
    if der[at : at + 1] == bytes([_VERSION]):
        at = _behind(der, at)
    for _ in ("serial", "signature", "issuer"):
        at = _behind(der, at)
    validity = _inside(der, at, _SEQUENCE)
    tag, begin, end = _element(der, _behind(der, validity))
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:  # two figures for the year: 50 to 99 are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _TIME:
        raise ValueError("no certificate: its end is no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, begin and end of the content of the element at `at`."""
    head = der[at : at + 2]
    if len(head) < 2:
        raise ValueError("no certificate: it is cut short")
    size, begin = head[1], at + 2
    if size & 0x80:
        begin += size & 0x7F
        size = int.from_bytes(der[at + 2 : begin], "big")
    if begin + size > len(der):
        raise ValueError("no certificate: it is cut short")
    return head[0], begin, begin + size


def _inside(der: bytes, at: int, tag: int) -> int:
    found, begin, _ = _element(der, at)
    if found != tag:
        raise ValueError(f"no certificate: tag {found:#x} where {tag:#x} should be")
    return begin


def _behind(der: bytes, at: int) -> int:
    return _element(der, at)[2]
