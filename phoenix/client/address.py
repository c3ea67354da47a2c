"""Addresses of a cloud: an http or https URL taken apart, and paths with queries put together.  Without imports that cost time:
the command line starts with this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from phoenix.client.errors import Invalid

if TYPE_CHECKING:
    import ssl

PORT_MAX: Final = 65535
_UNSAFE: Final = b' %?#&=+/"<>\\^`{|}'


class Address(NamedTuple):
    tls: bool
    host: str
    port: int
    base: str  # path prefix, without a slash at its end


def quote(text: str) -> str:
    """Percent-encode one path segment or query value."""
    return "".join(chr(b) if 33 <= b < 127 and b not in _UNSAFE else f"%{b:02X}" for b in text.encode())


def query(path: str, values: Mapping[str, object]) -> str:
    """`path` with a query string of those values that are neither None nor empty."""
    parts = [f"{name}={quote(str(value))}" for name, value in values.items() if value is not None and value != ""]
    return f"{path}?{'&'.join(parts)}" if parts else path


def parse_url(url: str) -> Address:
    """Raises `Invalid` if `url` is no http or https address."""
    scheme, separator, rest = url.partition("://")
    authority, _, base = rest.partition("/")
    host, _, port = authority.rpartition(":") if ":" in authority.rsplit("]", 1)[-1] else (authority, "", "")
    plain = url.isascii() and not any(c.isspace() or not c.isprintable() for c in url)
    right = plain and separator and scheme in ("http", "https") and host.strip("[]")
    if not right or (port and not (port.isdecimal() and len(port) <= 5 and 0 < int(port) <= PORT_MAX)):
        raise Invalid(f"{url!r} is no address of a cloud", hint="write http://HOST:PORT")
    return Address(
        scheme == "https", host.strip("[]"), int(port or (443 if scheme == "https" else 80)), base.rstrip("/")
    )


def tls_context() -> ssl.SSLContext:
    """For https addresses: the system's certificate authorities, or those of $SSL_CERT_FILE; host names are checked."""
    import ssl

    return ssl.create_default_context()
