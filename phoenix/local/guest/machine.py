"""What a guest needs of the machine it runs in: a room for its files and a way to start processes.

The process hypervisor provides it with rooms, uids and cgroups; a guest inside a real VM would provide it with its own
file system and `fork`. The guest itself decides nothing about isolation and knows nothing about the hypervisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from phoenix.local.guest.workdir import Room


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: `exit` or `signal`, and what it used, its waited-for children included."""

    exit: int | None
    signal: int | None
    cpu_seconds: float
    max_rss_kb: int

    @property
    def code(self) -> int:
        """The exit code as a shell would give it: 128 + signal for a death by signal."""
        return 128 + self.signal if self.signal is not None else self.exit or 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start. `directory` is a wish, `room` the fall-back; `note` a path for "why not there".

    `stdin`: a file to read from, opened as the process's user where it runs; None leaves the descriptor it is given.

    `sole`: when this process ends, everything else of the VM is killed with it.

    `serves`: it is reached from the machine's network, as a web instance is; whatever else runs is in that of jobs.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    room: str
    directory: str | None = None
    note: str | None = None
    stdin: str | None = None
    sole: bool = True
    serves: bool = False


class StartError(Exception):
    """The machine could not start the process; the message says why.  No failure of what was to run."""


class LostError(Exception):
    """The machine has lost the process and killed it: how it would have ended is unknown."""


class Process(Protocol):
    """A process that was started."""

    @property
    def runs(self) -> bool:
        """False once it has ended, also if that has not been reported yet."""

    async def wait(self) -> Ended:
        """Wait until it has ended; cancelling the wait leaves the process alone.  Raises `LostError`."""

    def signal(self, number: int, *, everyone: bool = False) -> None:
        """Signal its process group, or every process of the VM; nothing happens when it has ended."""

    def warn(self, number: int, *, script: bool) -> None:
        """Signal the process alone (`script`), or only what it has started in its process group."""


@dataclass(frozen=True, slots=True)
class Used:
    """`cpu_seconds`: never falls, unless processes are gone that were not waited for; `memory_kb`: now."""

    cpu_seconds: float
    memory_kb: int


class Machine(Protocol):
    """The VM as its guest sees it."""

    cores: float
    core_share: float
    programs: Programs
    environment: Mapping[str, str]  # what only the machine knows: which GPUs it has
    limited: bool  # CPU and memory are limited from outside; a program need not limit itself

    @property
    def room(self) -> Room:
        """The VM's directory; there is none before `settle`."""

    def settle(self, department: str) -> None:
        """Make the room, under a user of this department. Nothing can run before. Raises `StartError`."""

    async def run(self, launch: Launch, stdio: tuple[int, int, int]) -> Process:
        """Start a process with these descriptors as stdin, stdout and stderr. Raises `StartError`."""

    async def renew(self) -> None:
        """Make the machine as if nothing had run here: no process, no file; `settle` comes next. Raises `StartError`."""

    def limit_cpu(self, on: bool) -> None:
        """Lift the CPU limit, or set it again. Where the machine has none nothing happens."""

    def killed_for_memory(self) -> bool:
        """Whether the machine has run out of memory and killed for it."""

    def cpu_seconds(self) -> float | None:
        """CPU time of everything that ran here; None if it is not counted."""

    def used(self) -> Used:
        """What runs here has used until now, as well as this machine can tell."""

    def peak_kb(self) -> int:
        """The most memory that one of the processes here has had resident, or that all have together now if that is more."""


@dataclass(frozen=True, slots=True)
class Programs:
    """What this installation brings into every machine.

    `path`: PATH for jobs, with `phoenix` first. `web_instance`: argv of the default web instance program, None when no
    interpreter is readable by the machine's user.
    """

    path: str
    web_instance: tuple[str, ...] | None
