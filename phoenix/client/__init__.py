"""The client library: submit jobs, wait for them, read what they wrote, follow events, publish signals.

    from phoenix.client import Client

    async with Client.find() as phoenix:
        job = await phoenix.submit(argv=["echo", "hello"])
        await phoenix.wait(job, timeout_s=60)
        print(await phoenix.read_output(job))

`SyncClient` has the same calls for programs without an event loop.  How to: docs/howto/clients.md; every call:
docs/reference/client.md.

Names are imported when they are first used: the command line takes errors and addresses from here, and would wait for asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phoenix.client.answers import (
        Department,
        Deployed,
        Event,
        Explanation,
        File,
        Host,
        Instance,
        Job,
        Lease,
        LeaseGranted,
        Prediction,
        Queue,
        Release,
        Start,
        Step,
        Story,
        Submitted,
    )
    from phoenix.client.blocking import (
        SyncClient,
    )
    from phoenix.client.client import (
        Client,
    )
    from phoenix.client.errors import (
        Conflict,
        Denied,
        Gone,
        Invalid,
        OverLimit,
        PhoenixError,
        Refused,
        TimedOut,
        Unavailable,
        Unknown,
        Unreadable,
        Untrusted,
    )
    from phoenix.client.options import (
        JobOptions,
        LeaseOptions,
        ReleaseOptions,
    )

__all__ = [
    "Client",
    "Conflict",
    "Denied",
    "Department",
    "Deployed",
    "Event",
    "Explanation",
    "File",
    "Gone",
    "Host",
    "Instance",
    "Invalid",
    "Job",
    "JobOptions",
    "Lease",
    "LeaseGranted",
    "LeaseOptions",
    "OverLimit",
    "PhoenixError",
    "Prediction",
    "Queue",
    "Refused",
    "Release",
    "ReleaseOptions",
    "Start",
    "Step",
    "Story",
    "Submitted",
    "SyncClient",
    "TimedOut",
    "Unavailable",
    "Unknown",
    "Unreadable",
    "Untrusted",
]

_PLACES = {
    "answers": (
        "Department Deployed Event Explanation File Host Instance Job Lease LeaseGranted Prediction Queue Release Start Step "
        "Story Submitted"
    ),
    "blocking": "SyncClient",
    "client": "Client",
    "errors": "Conflict Denied Gone Invalid OverLimit PhoenixError Refused TimedOut Unavailable Unknown Unreadable Untrusted",
    "options": "JobOptions LeaseOptions ReleaseOptions",
}
_PLACE = {name: place for place, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACE[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
