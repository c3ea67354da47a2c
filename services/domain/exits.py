"""Why a process of Phoenix ends: exit codes that a supervisor can act on, and the exception that asks for one."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes.  After INCOMPATIBLE, STUCK and POLICY a restart alone does not help; after the others it does."""

    OK = 0
    FAILED = 1  # a bug, or the outside is gone for too long; the last log line says which
    USAGE = 2  # arguments or configuration
    DEPOSED = 3  # another instance leads now: restart as standby
    INCOMPATIBLE = 4  # the journal holds custody facts or rules that this version does not know (PROTOCOL S8)
    STUCK = 5  # the same fact came back void again and again (PROTOCOL S4)
    SKEWED = 6  # this machine's clock and the broker's disagree (PROTOCOL S6)
    POLICY = 7  # a policy that the configuration names is not installed here, or that of a plug-in has failed


class Stop(Exception):
    """End the process with `code`; the message says why, for the person who reads the log."""

    def __init__(self, code: Exit, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why

    def __reduce__(self) -> tuple[type[Stop], tuple[Exit, str]]:
        """So that it survives the way back from a process that simulated."""
        return type(self), (self.code, self.why)
