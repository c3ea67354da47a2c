"""`make demo` in a checkout that is set up: it asks for the tools that a cloud uses, and begins without those that it cannot
have."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.frame_source import ROOT


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_demo_brings_its_tools_and_begins(tmp_path: Path, exit_code: int) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    executable(tmp_path / "deploy" / "tools.sh", f'echo "tool $1"; exit {exit_code}')
    executable(tmp_path / ".venv" / "bin" / "python", 'echo "python $*"')
    (tmp_path / ".venv" / ".ready").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "--no-print-directory", "demo"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["tool haproxy", "tool passt", "python -m phoenix.local.demo"]
    assert done.returncode == 0
