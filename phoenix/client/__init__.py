"""The client library: submit jobs, wait for them, read what they wrote, follow events, publish signals.

    from phoenix.client import Client

    async with Client.find() as phoenix:
        job = await phoenix.submit(argv=["echo", "hello"])
        await phoenix.wait(job, timeout_s=60)
        print(await phoenix.read_output(job))

`SyncClient` has the same calls for programs without an event loop.  How to: docs/howto/clients.md; every call:
docs/reference/client.md.

Names are imported when they are first used: the command line takes errors and addresses from here, and would wait for asyncio.
They stand once, in `__init__.pyi`, which is all that type checkers read of this module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _places() -> dict[str, str]:
    """The module of each public name, from lines ``from MODULE import NAME as NAME``."""
    with open(f"{__file__.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in words}


_PLACE = _places()
__all__ = sorted(_PLACE)  # noqa: PLE0605  # a list of text, which ruff cannot see


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACE[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
