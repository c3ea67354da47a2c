"""Where a NATS request came from: the broker's header about the client's connection.

Rules
  1. The broker writes the header when a request comes from another account, over whatever the asker wrote there (`accounts`).
     A broker without accounts, as in tests, would let anybody write it.
  2. Nothing fails: what cannot be read is not known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from nats.aio.msg import Msg

from schemas.audit import TEXT_MAX

HEADER: Final = "Nats-Request-Info"


class Found(NamedTuple):
    """`peer`: an address; `client`: what its program calls itself."""

    peer: str = ""
    client: str = ""


class _Connection(msgspec.Struct):
    host: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""


def whence(msg: Msg) -> Found:
    told = (msg.headers or {}).get(HEADER, "")
    if not told:
        return Found()
    try:
        found = msgspec.json.decode(told, type=_Connection)
    except msgspec.DecodeError:
        return Found()
    return Found(found.host[:TEXT_MAX], program(found.name, found.lang, found.ver))


def program(name: str, lang: str, version: str) -> str:
    """What a client of NATS calls itself: ``alice (python3 2.16.0)``."""
    library = " ".join(part for part in (lang, version) if part)
    return " ".join(part for part in (name, f"({library})" if library else "") if part)[:TEXT_MAX]
