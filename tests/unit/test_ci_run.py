"""`.ci/run`: the test command in a clone with nothing beside it, and the tests that take long; then what reads the traces; one
closing line for all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import tool
from tests.unit.frame_source import ROOT

SCRIPT = ROOT / ".ci" / "run"
MAKEFILE = """
test:
\t@test ! -e ../shared && test -z "$$PHOENIX_TRACES" && echo "in a clone: `ls -A`"
\t@echo '{alone}'
\t@exit {code}

test-long:
\t@test ! -e ../shared && test -z "$$PHOENIX_TRACES"
\t@echo '{long}'

test-traces:
\t@test -e ../shared && echo '{traces}'
"""


def run_of(
    tmp_path: Path, alone: str, traces: str, code: int = 0, long: str = "10 passed in 9.00s"
) -> tuple[int, list[str]]:
    """Exit code and output, where the three runs close with these lines."""
    here = tmp_path / "checkout"
    here.joinpath(".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, here / ".ci" / "run")
    here.joinpath("Makefile").write_text(MAKEFILE.format(alone=alone, traces=traces, code=code, long=long))
    tmp_path.joinpath("shared").mkdir()
    git = [tool("git"), "-C", here, "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True, timeout=200)
    here.joinpath("not committed").touch()
    environment = {"PATH": "/usr/bin:/bin", "PHOENIX_TRACES": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = ["bash", here / ".ci" / "run"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "shared"], "nothing stays"
    return done.returncode, done.stdout.splitlines()


def test_the_closing_line_has_the_sums_and_what_neither_run_has_run(tmp_path: Path) -> None:
    alone = (
        "7 passed, 2 skipped as haproxy is missing, 1 left out without the public a.swf and b.csv in 500.10s (0:08:20)"
    )
    traces = "1 passed, 4 deselected, 1 left out without the public c.swf in 3.00s"
    code, said = run_of(tmp_path, alone, traces)
    assert (code, said[-1]) == (0, "18 passed, 0 failed, 3 skipped")
    assert "in a clone: .ci .git Makefile" in " ".join(said)


@pytest.mark.parametrize(
    ("alone", "traces", "last"),
    [
        ("1 failed, 6 passed, 2 errors in 5.00s", "1 passed in 3.00s", "17 passed, 3 failed, 0 skipped"),
        ("Found 1 error.", "1 passed in 3.00s", "11 passed, 1 failed, 0 skipped"),
    ],
    ids=["a test", "before the tests"],
)
def test_what_fails_is_counted_and_the_other_run_is_made_all_the_same(
    tmp_path: Path, alone: str, traces: str, last: str
) -> None:
    code, said = run_of(tmp_path, alone, traces, code=1)
    assert (code, said[-1]) == (1, last)
    assert any(line.startswith("make test ended with 2") for line in said)


def test_a_failure_with_traces_alone_is_a_failure(tmp_path: Path) -> None:
    code, said = run_of(tmp_path, "7 passed in 5.00s", "1 failed' && false '")
    assert (code, said[-2:]) == (1, ["make test-traces ended with 2", "17 passed, 1 failed, 0 skipped"])


def test_a_failure_of_a_long_test_alone_is_a_failure(tmp_path: Path) -> None:
    code, said = run_of(
        tmp_path, "7 passed in 5.00s", "1 passed in 3.00s", long="1 failed, 9 passed in 9.00s' && false '"
    )
    assert (code, said[-2:]) == (1, ["make test-long ended with 2", "17 passed, 1 failed, 0 skipped"])


def test_the_script_is_clean_for_shellcheck() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    found = subprocess.run([checker, SCRIPT], capture_output=True, text=True, check=False, timeout=200)
    assert (found.returncode, found.stdout) == (0, "")
