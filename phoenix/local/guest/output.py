"""Streaming of a script's stdout and stderr to admission while it runs.

The guest holds the descriptors of both files since before the script started, so what the job does to their names does
not matter. Each stream is bounded: what exceeds the cap is dropped, and the file is cut back every second so that an
endless `yes` cannot fill the disk (the script appends, so it goes on at the new end).

An instance may live for ever, and so may its streams (`endless`): admission keeps the end of them, and what it has is taken
out of the file, which keeps its length: a hole takes no room. Where a file system cannot do that the cap holds.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

from phoenix.local.guest.door import Door, RefusedError

STREAM_BYTES_MAX = 64 << 20  # the contract's cap
PART_BYTES_MAX = 1 << 20  # the contract's cap on one part
FLUSH_INTERVAL_S = 1.0
HOLE_STEP_BYTES = 1 << 20  # so much at once is taken out …
HOLE_SPARES_BYTES = 64 << 10  # … but for the end, in which the last words are
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01  # fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)


class OutputStream:
    """One stream: how much of it admission has."""

    def __init__(self, door: Door, name: str, fd: int, endless: bool = False) -> None:
        self._door = door
        self.name = name
        self.fd = fd
        self._sent = 0
        self._endless = endless
        self._hole = 0  # bytes at the beginning that are taken out
        self.dropped = False

    async def flush(self) -> None:
        """Send what is new."""
        while not self.dropped:
            left = PART_BYTES_MAX if self._endless else STREAM_BYTES_MAX - self._sent
            if left <= 0:
                self.dropped = os.fstat(self.fd).st_size > self._sent
                break
            part = os.pread(self.fd, min(PART_BYTES_MAX, left), self._sent)
            if not part:
                return
            try:
                await self._door.put_output(self.name, self._sent, part)
            except RefusedError:
                self.dropped = True
                break
            self._sent += len(part)
            if self._endless and self._sent - self._hole >= HOLE_STEP_BYTES:
                self._take_out()
        if self.dropped:
            os.ftruncate(self.fd, 0)

    def _take_out(self) -> None:
        """What admission has needs no room here."""
        end = self._sent - HOLE_SPARES_BYTES
        size = ctypes.c_int64(end)
        if _libc.fallocate(self.fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), size) == 0:
            self._hole = end
        else:
            self._endless = False


class Output:
    """Both streams of a script."""

    def __init__(self, door: Door, stdout_fd: int, stderr_fd: int, endless: bool = False) -> None:
        self.streams = (
            OutputStream(door, "stdout", stdout_fd, endless),
            OutputStream(door, "stderr", stderr_fd, endless),
        )

    async def pump(self) -> None:
        """Flush at once, then once a second, until cancelled."""
        while True:
            await self.flush()
            await asyncio.sleep(FLUSH_INTERVAL_S)

    async def flush(self) -> None:
        for stream in self.streams:
            await stream.flush()

    def note(self) -> str | None:
        """What to tell the user about dropped output."""
        names = [stream.name for stream in self.streams if stream.dropped]
        return f"{' and '.join(names)}: what exceeds the limit was dropped" if names else None

    def close(self) -> None:
        for stream in self.streams:
            os.close(stream.fd)
