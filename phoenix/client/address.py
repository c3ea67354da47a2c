"""Addresses of a cloud: an http or https URL taken apart, and paths with queries put together.  Without imports that cost time:
the command line starts with this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from phoenix.client.errors import Invalid, Untrusted

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

PORT_MAX: Final = 65535
HOSTNAME_MISMATCH: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
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


def tls_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """For https addresses; host names are checked.  `ca_file`: the certificate authorities to trust, as PEM; None: those of
    $SSL_CERT_FILE, else the system's.  Raises `Invalid` if it cannot be read."""
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise Invalid(f"{ca_file}: there is no certificate in it", hint="it holds certificates in PEM form") from error
    except OSError as error:
        raise Invalid(f"{ca_file}: cannot read the certificates: {error.strerror}") from error


def untrusted(url: str, error: BaseException) -> Untrusted | None:
    """What is wrong with the certificate of the server at `url`; None if `error` is another one."""
    import ssl

    found = error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error
    if not isinstance(found, ssl.SSLCertVerificationError):
        return None
    hint = "name the file of its certificate authority: ca_file, or $SSL_CERT_FILE"
    if found.verify_code in HOSTNAME_MISMATCH:
        hint = "use the name in the address that its certificate has"
    return Untrusted(f"{url} is not trusted: {found.verify_message.rstrip('.')}", hint=hint)
