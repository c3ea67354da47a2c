"""A run of pytest within a test: on two workers, with the rules of this house's conftest, and none of the outer run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_OUTER: Final = ("ALLOW_MISSING", "PYTEST_XDIST_WORKER")
_ONLY_THESE: Final = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plug-ins: others cost more to import than the run takes


class Inner(NamedTuple):
    """`last`: the line that counts, without how long it took."""

    code: int
    said: str
    last: str


def run_inner(tests: Path, text: str, *options: str, **environment: str) -> Inner:
    """Of one file with this text, in the directory `tests`."""
    tests.joinpath("test_it.py").write_text(text)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-p",
        "pytest_asyncio",
        "-n",
        "2",
        "-p",
        "tests.conftest",
    ]
    words += ["--rootdir", str(tests), *options, str(tests)]
    clean = {key: value for key, value in os.environ.items() if key not in _OUTER} | _ONLY_THESE | environment
    done = subprocess.run(words, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=200, check=False)
    return Inner(done.returncode, done.stdout, done.stdout.splitlines()[-1].split(" in ")[0])
