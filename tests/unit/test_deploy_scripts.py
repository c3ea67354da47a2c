"""What is installed in a site's images passes shellcheck, under every name that it has there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy" / "opennebula"


PARTS = ("phoenix-guest-door", "phoenix-guest-stay")  # what phoenix-guest reads


def scripts() -> list[Path]:
    return sorted(
        x for x in DEPLOY.rglob("*") if x.name in PARTS or (x.is_file() and x.read_bytes().startswith(b"#!/bin/sh"))
    )


def test_the_scripts_are_clean_for_shellcheck() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    assert checker.exists(), f"{checker} is missing: pip install -e '.[dev]'"
    assert DEPLOY / "phoenix-guest" in scripts()
    found = subprocess.run([checker, "-x", *scripts()], capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stdout) == (0, "")


def test_nothing_of_a_user_is_evaluated() -> None:
    """The rule that shellcheck has none for: no eval, no sourced file, no sh -c with an expanded text."""
    for script in scripts():
        for line in script.read_text().splitlines():
            words = line.split("#")[0].split()
            assert "eval" not in words, line
            if words[:1] in (["."], ["source"]):
                assert line in [f'. "${{0%/*}}/{part}"' for part in PARTS], line
            if "sh -c" in line:
                assert "sh -c '" in line, line
