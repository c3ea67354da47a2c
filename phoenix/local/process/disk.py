"""What VMs hold on the machine's disks, and the end of one that holds too much: no job fills the disk of the cloud.

Theory of operation
  A directory has no size of its own, and quotas of file systems are rarely switched on.  So the hypervisor looks: often at how
  much is free, which costs a system call, and now and then at what each VM holds, with `du`, which walks through it.  A VM over
  its quota is ended, with the reason.  Where less than the reserve is free the largest is ended at once, and emptied: nothing
  of that needs the journal, which could not be written on a full disk.

Rules
  1. A VM holds its room, what its user has in the machine's directories for temporary files, and files that it has deleted and
     still has open.
  2. It is looked for no more than a twentieth of the time, and within `DU_S`; a VM that takes longer counts as the largest when
     room is short, and as nothing otherwise: the disk may be slow.
  3. The reserve is for services that end jobs: journal, object store, logs.  No VM is ended for it that holds less than
     `LEAST_BYTES`: that would not help, something else fills the disk.  The same holds for a file system's number of files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

LOOK_S: Final = 0.25  # a disk takes some GB a second at the most, and a job has a share of a core to fill it
EVERY_S: Final = 2.0
RESTS: Final = 20.0  # times as long as a look took: rule 2
DU_S: Final = 10.0  # a million files and more
DESCRIPTORS_MAX: Final = 10_000  # of a VM, that are looked at: some ten milliseconds
MEGABYTE: Final = 1 << 20
RESERVE_BYTES: Final = 1 << 30  # four times what the journal may grow between two of its trimmings
RESERVE_SHARE: Final = 4  # a small file system keeps a quarter
RESERVE_FILES_SHARE: Final = 50  # of the files that it can have
LEAST_BYTES: Final = 16 * MEGABYTE
LEAST_FILES: Final = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """By one VM: the directories and files that are its, and its processes."""

    places: tuple[str, ...]
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Measure:
    """What is counted: `flag` of du, how much a unit of it is, and what is too little to matter."""

    flag: str
    unit: int
    least: float


BYTES: Final = _Measure("-k", 1024, LEAST_BYTES)
FILES: Final = _Measure("--inodes", 1, LEAST_FILES)


class Disk:
    """The watch of one hypervisor.  `held`: of each VM that runs, asked in a thread.  `end` a VM for a reason, and empty it at
    once or not.  `places`: a directory on each file system that jobs may write to."""

    def __init__(
        self,
        places: Iterable[str],
        quota_mb: int,
        held: Callable[[], Mapping[int, Held]],
        end: Callable[[int, str, bool], Awaitable[None]],
    ) -> None:
        self._devices = {os.stat(place).st_dev: place for place in places if os.path.isdir(place)}
        self._quota_mb, self._held, self._end = quota_mb, held, end
        self._told = False

    async def watch(self) -> None:
        """Until cancelled."""
        due_at, was_short = time.monotonic() + EVERY_S, False
        while True:
            await asyncio.sleep(LOOK_S)
            short = self._short()
            began, is_new, was_short = time.monotonic(), short is not None and not was_short, short is not None
            if began < due_at and not is_new:
                continue
            ended = False
            try:
                ended = await self._look(short)
            except Exception:  # whatever a job has made of its directories: the watch continues
                _log.exception("disk use of VMs cannot be measured")
            took_s = time.monotonic() - began
            due_at = began if ended and was_short else time.monotonic() + max(EVERY_S, RESTS * took_s)

    async def _look(self, short: tuple[int, _Measure] | None) -> bool:
        """Whether a VM was ended."""
        vms = await asyncio.to_thread(self._held)
        sizes = await asyncio.to_thread(self._sizes, vms, self._devices, BYTES)
        over = [vm for vm, size in sizes.items() if math.isfinite(size) and size > self._quota_mb * MEGABYTE]
        for vm in over:
            mb = int(sizes[vm]) // MEGABYTE
            await self._end(vm, f"killed: it held {mb} MiB on the disk, of the {self._quota_mb} MiB of a job", False)
        if short is None or over:
            self._told = self._told and short is not None
            return bool(over)
        device, measure = short
        sizes = await asyncio.to_thread(self._sizes, vms, (device,), measure)
        largest = max(sizes, key=lambda vm: (sizes[vm], -vm), default=0)
        if sizes.get(largest, 0.0) < measure.least:
            if not self._told:
                _log.warning("%s is almost full, and no VM uses much of it", self._devices[device])
            self._told = True
            return False
        size = f"{sizes[largest] // MEGABYTE:.0f} MiB" if measure is BYTES else f"{sizes[largest]:.0f} files"
        counted = size if math.isfinite(sizes[largest]) else "more files than can be counted"
        await self._end(largest, f"killed: the machine's disk was almost full, and it used most of it: {counted}", True)
        return True

    def _short(self) -> tuple[int, _Measure] | None:
        """A file system with less room than the reserve."""
        for device, place in self._devices.items():
            with contextlib.suppress(OSError):
                found = os.statvfs(place)
                reserve = min(RESERVE_BYTES, found.f_blocks * found.f_frsize // RESERVE_SHARE)
                if found.f_bavail * found.f_frsize < reserve:
                    return device, BYTES
                if found.f_favail < found.f_files // RESERVE_FILES_SHARE:
                    return device, FILES
        return None

    def _sizes(self, vms: Mapping[int, Held], devices: Collection[int], measure: _Measure) -> dict[int, float]:
        """On these file systems; infinite: more than can be counted."""
        of_vm = {vm: [place for place in held.places if _device(place) in devices] for vm, held in vms.items()}
        sizes = usage([place for places in of_vm.values() for place in places], measure)
        found = {vm: sum(sizes.get(place, 0.0) for place in places) for vm, places in of_vm.items()}
        return {vm: size + deleted(vms[vm].pids, devices, measure) for vm, size in found.items()}


def usage(places: Collection[str], measure: _Measure = BYTES) -> dict[str, float]:
    """What is below each; infinite for one that is not counted within `DU_S`.  One that is gone is left out."""
    if not places:
        return {}
    try:
        # -x: no other file system; -0: a name may have line breaks.  What vanishes meanwhile is a message and an exit code.
        argv = ["du", "-sx0", measure.flag, "--", *places]
        done = subprocess.run(argv, capture_output=True, timeout=DU_S, check=False, cwd="/")
    except subprocess.TimeoutExpired:
        if len(places) == 1:
            return dict.fromkeys(places, math.inf)
        return {place: size for each in places for place, size in usage([each], measure).items()}
    except OSError as error:
        _log.warning("disk use of VMs is unknown: du: %s", error.strerror)
        return {}
    rows = (row.partition(b"\t") for row in done.stdout.split(b"\0") if row)
    return {os.fsdecode(name): float(count) * measure.unit for count, _, name in rows}


def deleted(pids: Iterable[int], devices: Collection[int], measure: _Measure = BYTES) -> float:
    """Those files that have no name any more and are open."""
    found: dict[tuple[int, int], int] = {}
    looked = 0
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for number in numbers:
            looked += 1
            if looked > DESCRIPTORS_MAX:
                return math.inf
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{number}")
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_dev in devices:
                    found[status.st_dev, status.st_ino] = status.st_blocks * 512 if measure is BYTES else 1
    return float(sum(found.values()))


def _device(place: str) -> int | None:
    try:
        return os.lstat(place).st_dev
    except OSError:
        return None
