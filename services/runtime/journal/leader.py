"""The lease: which process may try to lead.  It elects; the fence on the journal excludes (PROTOCOL S3, NATS.md 3.4).

Rules
  1. A lease is a key in a bucket whose messages expire (bucket TTL; never a TTL per message, which an update would drop).
  2. It is taken by create, renewed by compare-and-set.  It names the instance and a number of this process, so that a lost
     answer can be told from another holder.
  3. Lost means: another holder.  A lease that merely expired while the broker was away is taken again if it is still free:
     had another process led meanwhile, the fence would refuse us.  `left_s` is 0 meanwhile, and callers of the outside stop
     (X8).
  4. A holder that the supervisor has reaped (`reaped`) cannot come back: its lease is taken over at once.
  5. Release leaves a delete marker, which a candidate may overwrite at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
import nats.errors
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError
from nats.js.errors import Error as JetStreamError

from schemas.subjects import LEASES
from services.runtime.log import Log

RENEWALS: Final = 4  # in one TTL: two may be lost without losing the lease
CALL_SHARE: Final = 4  # a call's deadline is TTL / CALL_SHARE
HURRY_S: Final = 0.01  # between tries once the holder is known to stop: it releases the lease a moment later
HURRIES: Final = 100
_TAKEN: Final = (10071, 10164)
_LOST_CALL: Final = (nats.errors.Error, JetStreamError, TimeoutError, OSError)


async def renewed(js: JetStreamContext, writer: str) -> int | None:
    """A number that changes when the lease of `writer` is renewed; None: it has no holder.  Raises what the broker raises."""
    try:
        found = await js.get_last_msg(f"KV_{LEASES}", f"$KV.{LEASES}.{writer}", direct=False)
    except NotFoundError:
        return None
    return None if (found.headers or {}).get("KV-Operation") else found.seq


class LeaseLost(Exception):
    """Another instance holds the lease."""


class Holder(msgspec.Struct, frozen=True):
    """What the lease's key holds."""

    instance: str
    process: str = ""


class Lease:
    """The lease of one writer.  `process` is unique to this process; `reaped` names instances that are surely dead."""

    def __init__(
        self,
        js: JetStreamContext,
        writer: str,
        *,
        instance: str,
        process: str,
        ttl_s: float,
        reaped: frozenset[str],
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._js, self._log, self._monotonic = js, log, monotonic
        self._stream, self._subject = f"KV_{LEASES}", f"$KV.{LEASES}.{writer}"
        self._value = msgspec.json.encode(Holder(instance, process))
        self._process, self._reaped, self._ttl_s = process, reaped, ttl_s
        self._revision = 0
        self._good_until = 0.0
        self.free = asyncio.Event()  # set when a watcher learns that the holder has stopped

    def left_s(self) -> float:
        """Seconds for which no other process can hold it, on our clock; 0 if it is not ours."""
        return max(0.0, self._good_until - self._monotonic())

    async def acquire(self) -> None:
        """Wait until this process holds it."""
        hurry = 0
        while not await self._try():
            try:
                async with asyncio.timeout(HURRY_S if hurry else self._ttl_s / RENEWALS):
                    await self.free.wait()
                hurry = HURRIES
            except TimeoutError:
                hurry = max(0, hurry - 1)
            self.free.clear()

    async def hold(self) -> None:
        """Renew for ever.  Raises `LeaseLost`."""
        while True:
            await asyncio.sleep(self._ttl_s / RENEWALS)
            if not await self._write(self._revision):
                await self._recover()

    async def release(self) -> None:
        """Give it back; best effort, since it expires by itself."""
        self._good_until = 0.0
        headers = {"KV-Operation": "DEL", api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(self._revision)}
        try:
            async with asyncio.timeout(self._call_s):
                await self._js.publish(self._subject, b"", headers=headers)
        except _LOST_CALL as error:
            self._log.warning("lease not released; it expires", error=type(error).__name__)

    @property
    def _call_s(self) -> float:
        return self._ttl_s / CALL_SHARE

    async def _try(self) -> bool:
        try:
            revision, holder = await self._read()
        except _LOST_CALL:
            return False
        if holder is None:
            return await self._write(revision)
        if holder.process == self._process:
            self._revision = revision
            return await self._write(revision)
        if holder.instance in self._reaped:
            self._log.info("lease taken over from a reaped instance", holder=holder.instance)
            return await self._write(revision)
        return False

    async def _recover(self) -> None:
        """A renewal failed: was it an answer that got lost, an expiry, or another holder?"""
        try:
            revision, holder = await self._read()
        except _LOST_CALL:
            return  # the broker is away; the next renewal asks again
        if holder is not None and holder.process != self._process:
            raise LeaseLost(f"instance {holder.instance} holds the lease")
        if holder is None:
            self._log.warning("lease had expired; taking it again")
        self._revision = revision
        await self._write(revision)

    async def _read(self) -> tuple[int, Holder | None]:
        """Revision and holder of the key; 0 if there is no key, None if it has no holder."""
        try:
            async with asyncio.timeout(self._call_s):
                found = await self._js.get_last_msg(self._stream, self._subject, direct=False)
        except NotFoundError:
            return 0, None
        revision = found.seq or 0
        if (found.headers or {}).get("KV-Operation") or not found.data:
            return revision, None
        try:
            return revision, msgspec.json.decode(found.data, type=Holder)
        except msgspec.DecodeError:
            return revision, Holder("unreadable")

    async def _write(self, revision: int) -> bool:
        """Compare and set.  True if it is ours for another TTL, counted from before the call."""
        began = self._monotonic()
        headers = {api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(revision)}
        try:
            async with asyncio.timeout(self._call_s):
                ack = await self._js.publish(self._subject, self._value, headers=headers)
        except APIError as error:
            if error.err_code not in _TAKEN:
                self._log.warning("lease not written", error=error.description)
            return False
        except _LOST_CALL:
            return False
        self._revision = ack.seq
        self._good_until = began + self._ttl_s
        return True
