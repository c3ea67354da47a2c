"""Streaming of a script's stdout and stderr to admission while it runs.

The guest holds the descriptors of both files since before the script started, so what the job does to their names does
not matter. Each stream is bounded: what exceeds the cap is dropped, and the file is cut back every second so that an
endless `yes` cannot fill the disk (the script appends, so it goes on at the new end).
"""

from __future__ import annotations

import asyncio
import os

from phoenix.local.guest.door import Door, RefusedError

STREAM_BYTES_MAX = 64 << 20  # the contract's cap
PART_BYTES_MAX = 1 << 20  # the contract's cap on one part
FLUSH_INTERVAL_S = 1.0


class OutputStream:
    """One stream: how much of it admission has."""

    def __init__(self, door: Door, name: str, fd: int) -> None:
        self._door = door
        self.name = name
        self.fd = fd
        self._sent = 0
        self.dropped = False

    async def flush(self) -> None:
        """Send what is new."""
        while not self.dropped:
            if self._sent >= STREAM_BYTES_MAX:
                self.dropped = os.fstat(self.fd).st_size > self._sent
                break
            part = os.pread(self.fd, min(PART_BYTES_MAX, STREAM_BYTES_MAX - self._sent), self._sent)
            if not part:
                return
            try:
                await self._door.put_output(self.name, self._sent, part)
            except RefusedError:
                self.dropped = True
                break
            self._sent += len(part)
        if self.dropped:
            os.ftruncate(self.fd, 0)


class Output:
    """Both streams of a script."""

    def __init__(self, door: Door, stdout_fd: int, stderr_fd: int) -> None:
        self.streams = (OutputStream(door, "stdout", stdout_fd), OutputStream(door, "stderr", stderr_fd))

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
