"""After a crash: find and kill what an earlier hypervisor of the same data directory left, and nothing else.

Normally there is nothing: the nursery kills all VMs when its hypervisor is gone. This is for the case that both were
killed. Three independent searches, none of which can hit a stranger:

1. the recorded nursery, if the process with that pid started at the recorded time (a pid alone may be another process's);
2. our control groups, by their name, which contains a digest of the data directory;
3. processes whose environment carries our marker: the path of a VM's directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from phoenix.local.process import processes
from phoenix.local.process.cgroups import Cgroups

MARKER = "PHOENIX_ROOM="
DIE_DEADLINE_S = 5.0


def started_at(pid: int) -> str | None:
    """When a process started, as a value to compare (boot id and clock ticks since boot); None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{fields[19]}"
    except OSError:
        return None


def record_nursery(record: Path, pid: int) -> None:
    record.write_text(json.dumps({"nursery_pid": pid, "started": started_at(pid)}))


def sweep(record: Path, cgroups: Cgroups | None, *rooms: Path) -> int:
    """Kill and remove left-overs; returns how many processes were killed.  `rooms`: directories of VMs' rooms."""
    killed = _kill_nursery(record)
    for path in cgroups.leftovers() if cgroups is not None else []:
        killed += len(processes.owned_pids([path], None, None))
        processes.purge([path], None, None)
        with contextlib.suppress(OSError):
            os.rmdir(path)
    killed += sum(_kill_marked(f"{MARKER}{directory}/".encode()) for directory in rooms)
    record.unlink(missing_ok=True)
    return killed


def _kill_nursery(record: Path) -> int:
    try:
        saved = json.loads(record.read_text())
        pid, started = int(saved["nursery_pid"]), saved["started"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    if started is None or started_at(pid) != started:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + DIE_DEADLINE_S
    while started_at(pid) == started and time.monotonic() < deadline:
        time.sleep(0.01)
    return 1


def _kill_marked(marker: bytes) -> int:
    killed = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
            if environ.startswith(marker) or b"\0" + marker in environ:
                os.kill(int(name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    return killed
