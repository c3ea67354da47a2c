"""Limits of connections to an HTTP server of ours: how many, how long, how slow; and what is counted and logged of that.

Rules
  1. At most `connections_max` connections at once, and `connections_per_address_max` from one address, so that one client can
     close the door to others.  A proxy of `[http] proxies` speaks for many: for its address only the first one counts.
  2. What is over a limit is answered 503 and closed; what is slow is closed.  Each is counted, by its reason.
  3. A flood of refusals is not a flood of lines: of each event one line in `LINE_EVERY_S`, with their number.
  4. A connection on which no token was accepted for `anonymous_s` ends with its next answer, however often it asks: who is
     no connection is held for ever.  A server of the public has no such limit.
  5. Nothing that a client has sent is logged, nor the text of an exception, which may repeat it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from services.runtime.callers.peers import Peers
from services.runtime.config.tables import Http
from services.runtime.families_shell import HTTP_CLOSED, HTTP_REFUSED
from services.runtime.log import Log, frames_of

LINE_EVERY_S: Final = 10.0
ANONYMOUS_S: Final = 120.0  # a page that is looked at before its login, eight scrapes
FILES_RESERVED: Final = 768  # descriptors that are no client's: what the door passes on (512), broker, files, listeners
V6_NETWORK: Final = 64  # bits: the network that one IPv6 client has to itself
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ALL, ADDRESS = HTTP_REFUSED
HEADER, BODY, UNREAD = HTTP_CLOSED


@dataclass(slots=True)
class Counts:
    """Of one process, over all its servers."""

    open: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HTTP_REFUSED, 0))
    closed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HTTP_CLOSED, 0))
    malformed: int = 0
    accept_errors: int = 0


class Guard:
    """Of one server.  `limits`: as `[http]` of the configuration has them."""

    def __init__(
        self,
        log: Log,
        limits: Http | None = None,
        counts: Counts | None = None,
        peers: Peers | None = None,
        now: Callable[[], float] = time.monotonic,
        anonymous_s: float = ANONYMOUS_S,
    ) -> None:
        self.limits, self.counts = limits or Http(), counts or Counts()
        self.most = _within_files(self.limits.connections_max)
        self._log, self._peers, self._now, self._anonymous_s = log, peers or Peers(), now, anonymous_s
        self._open = 0
        self._of: Counter[str] = Counter()
        self._lines: dict[str, tuple[float, int]] = {}  # event -> when it was logged last, and how many came since

    def enter(self, peer: str) -> bool:
        """Rules 1 and 2.  Who is let in leaves with `leave`."""
        network = network_of(peer)
        shared = bool(peer) and not self._peers.is_proxy(peer)
        over = ALL if self._open >= self.most else ""
        if shared and self._of[network] >= self.limits.connections_per_address_max:
            over = ADDRESS
        if over:
            self.counts.refused[over] += 1
            self.tell("connection refused", peer=peer, limit=over, open=self._open)
            return False
        self._open += 1
        self.counts.open += 1
        self._of[network] += 1
        return True

    def leave(self, peer: str) -> None:
        network = network_of(peer)
        self._open -= 1
        self.counts.open -= 1
        self._of[network] -= 1
        if not self._of[network]:
            del self._of[network]

    def deadline(self) -> float:
        """Of a connection that was made, or whose caller was known, now (rule 4)."""
        return self._now() + self._anonymous_s

    def is_over(self, deadline: float) -> bool:
        return self._now() >= deadline

    def too_slow(self, what: str, peer: str) -> None:
        """`what`: of HTTP_CLOSED."""
        self.counts.closed[what] += 1
        self.tell("connection closed", peer=peer, slow=what)

    def malformed(self, peer: str, error: BaseException | None) -> None:
        self.counts.malformed += 1
        self.tell("request not understood", peer=peer, error=type(error).__name__)

    def failed(self, event: str, error: BaseException | None, **fields: object) -> None:
        """A bug, without what the exception says (rule 5)."""
        trace = frames_of(error) if error is not None else ""
        self._log.error(event, **fields, error=type(error).__name__, trace=trace)

    def tell(self, event: str, **fields: object) -> None:
        """Rule 3."""
        at, left_out = self._lines.get(event, (float("-inf"), 0))
        now = self._now()
        if now - at < LINE_EVERY_S:
            self._lines[event] = at, left_out + 1
            return
        self._lines[event] = now, 0
        self._log.warning(event, **fields, **({"left_out": left_out} if left_out else {}))

    def loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception handler of the event loop.  A process without descriptors gets a thousand such errors a second."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _NO_ROOM and "socket" in context:
            self.counts.accept_errors += 1
            self.tell("connection not accepted", error=errno.errorcode[error.errno], open=self._open)
        else:
            loop.default_exception_handler(context)


def network_of(peer: str) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 client's network."""
    if ":" not in peer:
        return peer
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, V6_NETWORK), strict=False))


def _within_files(wanted: int) -> int:
    """As many connections as the process may have files for, which it raises to its own limit first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - FILES_RESERVED))
