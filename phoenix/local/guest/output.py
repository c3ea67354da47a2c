"""Streaming of a script's stdout and stderr to admission while it runs.

The guest holds the descriptors of both files since before the script started, so what the job does to their names does
not matter. Each stream is bounded: what exceeds the cap is dropped, and the file is cut back every second so that an
endless `yes` cannot fill the disk (the script appends, so it continues at the new end).

An instance may live for ever, and so may its streams (`endless`): admission keeps the end of them, and what it has is taken
out of the file, which keeps its length: a hole takes no room. Where a file system cannot do that the cap holds. Of what it
writes between two flushes the end is sent, LOG_BYTES_MAX, and before it a line with how much is left out: a program
that prints without end must not fill the department's store with output that is never read.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

from phoenix.local.guest.door import Door, RefusedError

STREAM_BYTES_MAX = 64 << 20  # the contract's cap
PART_BYTES_MAX = 1 << 20  # the contract's cap on one part
FLUSH_INTERVAL_S = 1.0
LOG_BYTES_MAX = 1 << 20  # of an instance's stream at one flush: some ten thousand lines; four times that is kept
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
        self._sent = 0  # of the file
        self._told = 0  # where admission's stream ends: the same, but for what was left out
        self._endless = endless
        self._hole = 0  # bytes at the beginning that are taken out
        self.dropped = False
        self.why = ""  # it was

    async def flush(self) -> None:
        """Send what is new; of an endless stream no more than there is at the beginning, since more may come for ever."""
        end = os.fstat(self.fd).st_size
        if self._endless and end - self._sent > LOG_BYTES_MAX and not self.dropped:
            left_out = end - self._sent - LOG_BYTES_MAX
            self._sent += left_out
            await self._send(f"\n[{left_out} bytes left out: more than {LOG_BYTES_MAX} at once]\n".encode())
        while not self.dropped:
            left = end - self._sent if self._endless else STREAM_BYTES_MAX - self._sent
            if left <= 0:
                self.dropped = not self._endless and os.fstat(self.fd).st_size > self._sent
                self.why = f"at most {STREAM_BYTES_MAX} bytes of a stream are kept"
                break
            part = os.pread(self.fd, min(PART_BYTES_MAX, left), self._sent)
            if not part:
                return
            await self._send(part)
            if self.dropped:
                break
            self._sent += len(part)
            if self._endless and self._sent - self._hole >= HOLE_STEP_BYTES:
                self._take_out()
        if self.dropped:
            os.ftruncate(self.fd, 0)

    async def _send(self, part: bytes) -> None:
        try:
            await self._door.put_output(self.name, self._told, part)
        except RefusedError as error:
            self.dropped, self.why = True, error.why
        else:
            self._told += len(part)

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
        cut = [f"the rest of {stream.name} was dropped: {stream.why}" for stream in self.streams if stream.dropped]
        return "; ".join(cut) or None

    def close(self) -> None:
        for stream in self.streams:
            os.close(stream.fd)
