"""Denials: turns the server's "permissions violation", which arrives beside the conversation, into an error at the call.

A server refuses a publish without an answer: the message is dropped and an error line comes back on the connection,
so that a request looks like a timeout.  `Denials.on_error` is the connection's `error_cb`; `Denials.request` waits for the
answer or the denial of its own subject, whichever comes first.

    denials = Denials()
    nc = await nats.connect(..., error_cb=denials.on_error)
    answer = await denials.request(nc, subject, payload, timeout_s=5)      # raises Denied within a round trip

Rules
  1. A denial reaches every call that waits on that subject: the permission is the same for all of them.
  2. Errors that are no denials go to `other`, or are kept as `last_error`: they are never lost in silence.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg

_VIOLATION: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)


class Denied(Exception):
    """The server does not let this user publish or subscribe to `subject`."""

    def __init__(self, subject: str, action: str) -> None:
        self.subject = subject
        self.action = action
        verb = "publish" if action == "publish" else "subscribe"
        super().__init__(f"not permitted: this user may not {verb} to {subject}")


class Denials:
    """What one connection has denied; `on_error` is its `error_cb`."""

    def __init__(self, other: Callable[[Exception], Awaitable[None]] | None = None) -> None:
        self.last_error: Exception | None = None
        self._other = other
        self._waiting: dict[str, list[asyncio.Future[Msg]]] = {}

    async def on_error(self, error: Exception) -> None:
        violation = _VIOLATION.search(str(error))
        if violation is None:
            self.last_error = error
            if self._other is not None:
                await self._other(error)
            return
        action, subject = violation[1].lower(), violation[2]
        self.last_error = Denied(subject, action)
        for waiting in self._waiting.get(
            subject.lower(), ()
        ):  # the client library lowers the case of the server's message
            if not waiting.done():
                waiting.set_exception(Denied(subject, action))

    async def request(
        self,
        nc: Client,
        subject: str,
        payload: bytes = b"",
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """`nc.request`, but a denial raises `Denied` at once.  Other errors as `nc.request` (`nats.errors.TimeoutError`, …)."""
        denial: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(subject.lower(), [])
        waiting.append(denial)
        call = asyncio.ensure_future(
            nc.request(subject, payload, timeout=timeout_s, headers=dict(headers) if headers else None)
        )
        try:
            await asyncio.wait({call, denial}, return_when=asyncio.FIRST_COMPLETED)
            return denial.result() if denial.done() else call.result()
        finally:
            waiting.remove(denial)
            if not waiting:
                self._waiting.pop(subject.lower(), None)
            await _end(call)


async def _end(call: asyncio.Future[Msg]) -> None:
    """Nothing is left running, and no exception is left unread."""
    call.cancel()
    await asyncio.wait({call})
    if not call.cancelled():
        call.exception()
