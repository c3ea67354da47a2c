"""Sessions on file, so that a page that is open stays logged in when the monitor is restarted or upgraded.

    <data directory>/sessions.json   0600   sha256(id) -> {sha256(token), user, end}

Theory of operation
  The file has hashes alone: neither a cookie nor a token can be made of it.  It is rewritten with every login and logout, in
  a thread; those that come while it is written share the next writing.

Rules
  1. A login or logout is answered when it is on file: a session that was reported as over is over after a crash as well.
  2. What is on file is believed only as far as the token is still on file too, and is of the same user (`Sessions.restore`).
  3. No file, or one that cannot be read or written, costs the sessions, never the monitor; the log reports it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from schemas.config import CloudConfig
from services.monitor.http.sessions import SESSIONS_MAX, Pass, Sessions
from services.runtime import private_file
from services.runtime.log import Log

FILE: Final = "sessions.json"
BYTES_MAX: Final = SESSIONS_MAX * 1024  # one has about 250; a larger file is not ours


class KeptSessions:
    """Made once, when the fold knows who is a user."""

    def __init__(self, sessions: Sessions, directory: Path, log: Log) -> None:
        self.sessions, self.path, self.log = sessions, directory / FILE, log
        self._written = 0  # changes that are on file
        self._one = asyncio.Lock()

    def restore(self, cloud: CloudConfig | None) -> None:
        """Rules 2 and 3."""
        try:
            with self.path.open("rb") as file:
                content = msgspec.json.decode(file.read(BYTES_MAX), type=dict[str, Pass])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._say("browsers' sessions are not read: people log in again", error)
            return
        self.sessions.restore(content, cloud)

    async def keep(self) -> None:
        """Return when all that has changed so far is on file."""
        passes = self.sessions.passes
        wanted = passes.changes
        async with self._one:
            if self._written >= wanted:
                return  # another one's writing held it
            changes, content = passes.changes, msgspec.json.encode(passes.kept)
            try:
                await asyncio.to_thread(private_file.replace, self.path, content)
            except OSError as error:
                self._say("browsers' sessions are not stored: they end with the monitor", error)
            self._written = changes  # also if not: the next change tries again

    def _say(self, event: str, error: Exception) -> None:
        self.log.warning(event, path=str(self.path), error=str(error))
