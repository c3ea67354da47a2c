"""How often the journal was refused to this process name: counted beyond the process's own life.

A leader that finds that another one leads ends at once (exit code 3), before anybody could scrape it.  So the count is in a
small file of the data directory, `refused.<process>.json`, which the next process of that name reads.

Rules
  1. It is a count for people, never asked before anything is decided: a file that cannot be read or written costs the count,
     and a line in the log.
  2. A file is replaced whole, so that a crash leaves the old count or the new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from services.runtime.families_shell import REFUSED
from services.runtime.log import Log

DEPOSED, FULL = REFUSED
BYTES_MAX: Final = 1 << 10


class Refusals:
    def __init__(self, directory: Path, process: str, log: Log) -> None:
        self._file, self._log = directory / f"refused.{process}.json", log
        self.counts = dict.fromkeys(REFUSED, 0) | self._read()

    def add(self, reason: str) -> None:
        self.counts[reason] += 1
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(self.counts))
            new.replace(self._file)
        except OSError as error:
            self._log.warning("count of refused appends not saved", error=str(error))

    def _read(self) -> dict[str, int]:
        try:
            with self._file.open("rb") as file:
                found = msgspec.json.decode(file.read(BYTES_MAX), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            self._log.warning("count of refused appends starts again at 0", error=str(error))
            return {}
        return {reason: count for reason, count in found.items() if reason in REFUSED and count >= 0}
