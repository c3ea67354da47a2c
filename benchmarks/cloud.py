"""A cloud for one benchmark: started by `phoenix up` in a directory of its own, ended and deleted afterwards."""

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

import nats
from nats.aio.client import Client

UP_S = 120.0
PHOENIX = [sys.executable, "-m", "phoenix.cli"]


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
            subprocess.run(
                [*PHOENIX, "down", "--data", data, "--purge"], timeout=60.0, check=False, capture_output=True
            )


def run(arguments: Sequence[str], timeout: float) -> str:
    """Output of `phoenix <arguments>`.  CalledProcessError if it fails."""
    done = subprocess.run([*PHOENIX, *arguments], timeout=timeout, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return done.stdout


async def connect(status: dict[str, Any], user: str) -> Client:
    """A plain client of `user`."""
    known = status["credentials"][user]
    seed = known["nkey"]
    return await nats.connect(status["nats_url"], nkeys_seed=seed, inbox_prefix=known["inbox_prefix"].encode())


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
    """User and system CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns; the first row is the head."""
    text = [[f"{c:.3g}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in text) for i in range(len(text[0]))]
    for row in text:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())
