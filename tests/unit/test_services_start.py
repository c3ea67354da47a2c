"""How a service's process starts: what it imports is not searched for garbage (`services`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services import STARTING

ROOT = Path(__file__).resolve().parents[2]
LAST = "import atexit, gc\natexit.register(lambda: print(gc.get_threshold()[0], gc.isenabled()))\n"


@pytest.mark.parametrize(
    ("how", "is_start"),
    [(("-m", "services.domain.exits"), True), (("-c", "import services.domain.exits"), False)],
)
def test_a_start_alone_puts_the_collector_off_and_never_switches_it_off(
    how: tuple[str, ...], is_start: bool, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LAST)
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, *how], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    threshold, enabled = done.stdout.split()
    assert ((int(threshold) == STARTING), enabled) == (is_start, "True"), done.stderr
