"""Whom the load is for: one address, resolved before the run, and on this machine unless the user names the other host.

Rules
  1. Loopback only.  Load on anybody else's machine is an attack if it is a mistake, so another host must be named twice: in the
     URL and with `--other-host`.
  2. A name is looked up once, before the run: a slow name server is not the service's latency.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

import msgspec

from phoenix.load.curve import LoadError

BODY_BYTES_MAX: Final = 1 << 20  # of a POST: more measures the loopback, not the service


class Target(msgspec.Struct, frozen=True):
    """`address` and `port` to connect to; `host` as in the Host header; `path` with its query."""

    address: str
    port: int
    host: str
    path: str


def parse(url: str, other_host: str | None = None) -> Target:
    """The target of a URL.  LoadError if it is none, or not this machine and not named."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host = None
    if not host or not url.isprintable() or not host.isascii():
        raise LoadError(f"{url!r} is no address: write http://127.0.0.1:8080/path")
    if parts.scheme != "http":
        raise LoadError(f"{url}: only http:// can be played, without TLS")
    address = _resolve(host)
    if not ipaddress.ip_address(address).is_loopback and other_host != host:
        raise LoadError(f"{host} is another machine; if you may put load on it, say so: --other-host {host}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or any(sign <= " " for sign in path):
        raise LoadError(f"{url}: the path has characters that must be written as %XX")
    return Target(address, port, parts.netloc.rpartition("@")[2], path)


def _resolve(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a name that none can be
        raise LoadError(f"{host}: {getattr(error, 'strerror', None) or 'this is no name of a machine'}") from None
    return str(found[0][4][0])
