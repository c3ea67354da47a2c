"""The secrets of an instance that boots, read from their files at that moment (`services.runtime.config.secret_files`).

Rules
  1. A value is read for the guest that asks, and forgotten: it is in no state, log or error.
  2. Without all of them the guest is asked to come back, and does: after the missing one is set, nothing needs a restart.  An
     instance that waits longer than `boot_timeout_s` is a failed start, as any.
  3. What is missing is in the log once in `TOLD_EVERY_S`, by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from services.domain.refusal import Refused
from services.runtime.config import secret_files
from services.runtime.config.secret_files import SecretError
from services.runtime.log import Log

TOLD_EVERY_S: Final = 30.0  # a guest asks again every two seconds
TOLD_MAX: Final = 1000  # departments of which it is remembered


class Secrets:
    """`clock`: monotonic seconds."""

    def __init__(self, directory: Path, clock: Callable[[], float], log: Log) -> None:
        self._directory, self._clock, self._log = directory, clock, log
        self._told: dict[str, float] = {}

    async def of(self, unit: str, dept: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Variable -> value.  Raises `Refused` (unavailable) naming what is missing."""
        if not wanted:
            return {}
        try:
            return await asyncio.to_thread(secret_files.values, self._directory, dept, wanted)
        except SecretError as error:
            self._tell(unit, dept, str(error))
            raise Refused("unavailable", f"{error}; then come back") from None

    async def problem(self, dept: str, wanted: Mapping[str, str]) -> str:
        """What stands in the way; empty if nothing does."""
        try:
            await asyncio.to_thread(secret_files.values, self._directory, dept, wanted)
        except SecretError as error:
            return str(error)
        return ""

    def _tell(self, unit: str, dept: str, why: str) -> None:
        now = self._clock()
        if now - self._told.get(dept, float("-inf")) >= TOLD_EVERY_S:
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told[dept] = now
            self._log.warning("an instance cannot boot", unit=unit, why=why)
