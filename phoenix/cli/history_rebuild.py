"""`phoenix history rebuild`: history.sqlite rebuilt from archive and journal, while the cloud runs.

A program of the monitor's writes the new file beside the old one; then the monitor is asked to end, and the one that the
supervisor starts takes the new file over, and adds what came meanwhile.  Only readers of history and page notice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from phoenix.cli.errors import FAILED, OK, UNREACHABLE, CliError
from phoenix.local import control
from phoenix.local.stack_layout import Layout

BACK_S: Final = 120.0  # for the monitor to be there again
LOOK_S: Final = 0.1


def run(data: Path, config: Path) -> int:
    words = [sys.executable, "-m", "services.monitor.history.rebuild", "--config", str(config)]
    began = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise CliError(FAILED, "no new history was made; the one in use is as it was")
    taken_s = time.monotonic() - began
    _restart_monitor(Layout(data.absolute()))
    print(f"history rebuilt up to journal position {done.stdout.strip()} in {taken_s:.1f} s")
    return OK


def _restart_monitor(layout: Layout) -> None:
    before = _monitor(layout)
    if before.get("pid"):
        os.kill(before["pid"], signal.SIGTERM)
    end = time.monotonic() + BACK_S
    while True:
        now = _monitor(layout)
        if now.get("pid") not in (None, before.get("pid")) and now.get("health") == "ok":
            return
        if time.monotonic() > end:
            raise CliError(FAILED, "the monitor is not back: `phoenix status` and its log have details")
        time.sleep(LOOK_S)


def _monitor(layout: Layout) -> dict[str, Any]:
    try:
        told = control.call(layout, {"op": "status"})
    except control.NotRunningError as error:
        raise CliError(UNREACHABLE, f"{error}; the new history is taken over when the cloud is up again") from None
    found = next((dict(one) for one in told["processes"] if one["name"] == "monitor"), None)
    if found is None:
        raise CliError(FAILED, "no monitor runs here", "restart it where it runs: it takes over the new history")
    return found
