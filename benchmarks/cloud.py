"""A cloud for one benchmark: started by `phoenix up` in a directory of its own, ended and deleted afterwards.

With BENCH_TREE it is the cloud of another checkout, which has an environment of its own in .venv (`make bench AGAINST=…`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from services.runtime.broker.client import connected

UP_S = 120.0
TREE = os.environ.get("BENCH_TREE")
PHOENIX = [f"{TREE}/.venv/bin/python" if TREE else sys.executable, "-m", "phoenix.cli"]


@contextlib.contextmanager
def cloud(*options: str, config: str | None = None) -> Iterator[dict[str, Any]]:
    """`phoenix up --detach` with `options`; yields what `phoenix status --json` says."""
    with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as directory:
        os.chmod(directory, 0o711)
        data = str(Path(directory) / "data")
        given = list(options)
        if config is not None:
            file = Path(directory) / "phoenix.toml"
            file.write_text(config)
            given += ["--config", str(file)]
        try:
            run(["up", "--detach", "--data", data, *given], timeout=UP_S)
            yield json.loads(run(["status", "--data", data, "--json"], timeout=30.0))
        finally:
            down = [*PHOENIX, "down", "--data", data, "--purge"]
            subprocess.run(down, cwd=TREE, timeout=60.0, check=False, capture_output=True)


def run(arguments: Sequence[str], timeout: float) -> str:
    """Output of `phoenix <arguments>`.  CalledProcessError if it fails."""
    command = [*PHOENIX, *arguments]
    done = subprocess.run(command, cwd=TREE, timeout=timeout, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return done.stdout


async def connect(status: dict[str, Any], user: str) -> Client:
    """A plain client of `user`."""
    known = status["credentials"][user]
    seed = known["nkey"]
    return await connected(status["nats_url"], nkeys_seed=seed, inbox_prefix=known["inbox_prefix"].encode())


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def memory_mb(pid: int) -> float:
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return math.nan


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of a process and of the children that it has waited for; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu_below(pid: int) -> float:
    """The same with all processes that it has started, and they: the VMs of the embedded OpenNebula, for one."""
    try:
        children = [child for task in Path(f"/proc/{pid}/task").iterdir() for child in _read(task / "children").split()]
    except FileNotFoundError:
        children = []
    return cpu_seconds(pid) + sum(cpu_below(int(child)) for child in children)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Cpu:
    """What each process of a cloud uses from now on."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._pids = {process["name"]: process["pid"] for process in status["processes"]}
        self._before = self._now()

    def used_s(self) -> dict[str, float]:
        """CPU seconds by process, the most first."""
        used = {name: max(0.0, now_s - self._before[name]) for name, now_s in self._now().items()}
        return dict(sorted(used.items(), key=lambda each: (-each[1], each[0])))

    def _now(self) -> dict[str, float]:
        return {name: cpu_below(pid) for name, pid in self._pids.items()}


def tell(figures: dict[str, float], used_s: dict[str, dict[str, float]], units: int) -> None:
    """One line of JSON for `benchmarks.against`: figures by name, and CPU by load and process, milliseconds a unit of work."""
    cpu_ms = {load: {name: 1000 * s / units for name, s in by.items()} for load, by in used_s.items()}
    print(json.dumps({"figures": {k: v for k, v in figures.items() if not math.isnan(v)}, "cpu_ms": cpu_ms}))


def table(rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns; the first row is the head."""
    text = [[f"{c:.3g}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in text) for i in range(len(text[0]))]
    for row in text:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())
