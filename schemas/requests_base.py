"""What all requests stand on (`schemas.requests` has the rules)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

REQUEST_ID_MAX: Final = 128
WALLTIME_MAX_S: Final = 10 * 365 * 86400.0
GRACE_MAX_S: Final = 1500.0  # SIGTERM to SIGKILL; systemd gives a VM half an hour to shut down
INSTANCES_MAX: Final = 100_000

Count = Annotated[int, Meta(ge=0, le=INSTANCES_MAX)]
RequestId = Annotated[str, Meta(max_length=REQUEST_ID_MAX)]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A request, a reply, or a part of one."""


class Request(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request or a part of one: a field that it does not have is refused, since it would ask for something."""
