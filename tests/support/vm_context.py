"""A VM whose files are below a directory of the test, and which `phoenix-context` configures by its CONTEXT."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.script_guest import SCRIPT, context_file

PROGRAM = SCRIPT.with_name("phoenix-context")


def prepared(root: Path, given: str) -> subprocess.CompletedProcess[str]:
    """What phoenix-context has answered to the file `given`."""
    for name in ("etc", "root"):
        (root / name).mkdir()
    (root / "given").write_bytes(given.encode(errors="surrogateescape"))
    environment = {"PATH": os.environ["PATH"], "PHOENIX_CONTEXT_ROOT": str(root)}
    return subprocess.run(
        [PROGRAM, root / "given"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        errors="replace",
    )


def configured(root: Path, context: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What phoenix-context says on the console, and networkd's files that it writes below `root`."""
    done = prepared(root, context_file(context))
    assert done.returncode == 0, done.stderr
    files = sorted((root / "run" / "systemd" / "network").iterdir())
    return done.stderr, {x.name: x.read_text() for x in files}
