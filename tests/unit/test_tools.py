"""Tools: a missing one fails a test, or leaves it out and counts it; one is brought from a Debian mirror, not installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from phoenix.local.programs import program
from tests.support.inner import run_inner
from tests.support.tools import tool

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "tools.sh"
TESTS = """
from tests.support.inner import run_inner
from tests.support.tools import tool
def test_first(): tool("no-such-tool")
def test_second(): tool("no-such-tool")
def test_third(): assert tool("sh")
"""
HAPROXY = """#!/bin/sh
echo "haproxy $*, libraries in $LD_LIBRARY_PATH"
"""


def test_a_test_whose_tool_is_missing_fails_and_says_how_to_get_it(tmp_path: Path) -> None:
    code, said, last = run_inner(tmp_path, TESTS)
    assert (code, last) == (1, "2 failed, 1 passed")
    assert "the tool no-such-tool is missing: make setup brings it (deploy/tools.sh)" in said


def test_where_it_may_be_missing_the_last_line_counts_what_was_left_out(tmp_path: Path) -> None:
    code, _, last = run_inner(tmp_path, TESTS, ALLOW_MISSING="1")
    assert (code, last) == (0, "1 passed, 2 skipped as no-such-tool is missing")


def test_an_installed_program_is_found_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "haproxy"
    own.write_text(HAPROXY)
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert program("haproxy") == own
    assert program("no-such-tool") is None


def deb(directory: Path, name: str, depends: str = "", **files: str) -> str:
    """Builds a package and returns its paragraph of the mirror's list."""
    about = "Version: 1.0\nArchitecture: all\nMaintainer: test <test@example.org>\nDescription: test"
    control = f"Package: {name}\n{about}\n{depends}"
    for place, content in {"DEBIAN/control": control, **files}.items():
        file = directory / name / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(0o644 if "DEBIAN" in place else 0o755)
    package = directory / f"{name}.deb"
    subprocess.run(
        [tool("dpkg-deb"), "--build", directory / name, package], check=True, capture_output=True, timeout=200
    )
    content = package.read_bytes()
    return f"{control}Filename: ./{name}.deb\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """apt's configuration: a mirror in a directory, and a machine with no package that has not read its lists yet."""
    house = tmp_path / "mirror"
    needs = "Depends: phoenix-test-library\n"
    listed = [
        deb(house, "haproxy", needs, **{"usr/sbin/haproxy": HAPROXY}),
        deb(house, "phoenix-test-library", **{"usr/lib/x86_64-linux-gnu/libtest.so": ""}),
    ]
    (house / "Packages").write_text("\n".join(listed))
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{house} ./\n")
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    (tmp_path / "status").touch()
    settings = {"State::lists": "lists", "State::status": "status", "Cache": "cache", "Etc::sourcelist": "sources.list"}
    lines = [f'Dir::{key} "{tmp_path / value}";' for key, value in settings.items()]
    configuration = tmp_path / "apt.conf"
    configuration.write_text("\n".join([*lines, 'Dir::Etc::sourceparts "-";', ""]))
    return configuration


def bring(into: Path, configuration: Path, *tools: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", str(SCRIPT), "--own", "--into", str(into), *tools]
    environment = {"PATH": "/usr/bin:/bin", "APT_CONFIG": str(configuration)}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_a_tool_is_brought_with_what_it_needs_and_only_once(tmp_path: Path, mirror: Path) -> None:
    tool("apt-get")
    into = tmp_path / "tools here"
    assert bring(into, mirror, "haproxy").stdout == f"bringing haproxy into {into} (once)\n"
    said = subprocess.run(
        [into / "bin" / "haproxy", "-v"], capture_output=True, text=True, check=True, timeout=200
    ).stdout
    assert said.startswith("haproxy -v, libraries in ")
    assert f"{into}/haproxy/usr/lib/x86_64-linux-gnu" in said
    (tmp_path / "sources.list").unlink()
    again = bring(into, mirror, "haproxy")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_what_cannot_be_had_is_said_with_what_to_do(tmp_path: Path, mirror: Path) -> None:
    tool("apt-get")
    (tmp_path / "mirror" / "haproxy.deb").unlink()
    failed = bring(tmp_path / "tools", mirror, "haproxy")
    assert failed.returncode == 1
    assert "tools: haproxy cannot be had here: as root, apt-get install haproxy; or make its mirror" in failed.stderr
    assert not list((tmp_path / "tools").glob(".haproxy*")), "nothing half done stays"
    assert not (tmp_path / "tools" / "bin" / "haproxy").exists()
    unknown = bring(tmp_path / "tools", mirror, "varnish")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("tools: there is no tool varnish: haproxy, ")


NPM = """#!/bin/sh
echo "$@" >> "$LOG"
test ! -e "$LOG.fails" || { echo "no such registry"; exit 1; }
mkdir node_modules && cp package-lock.json node_modules/copied
"""


@pytest.mark.parametrize(("name", "place"), [("contracts", "tests/contracts"), ("redoc", "deploy/redoc")])
def test_packages_are_brought_from_npm_once_for_each_lock_file(tmp_path: Path, name: str, place: str) -> None:
    checkout, log = tmp_path / "checkout", tmp_path / "log"
    for file_name, content in (
        ("deploy/tools.sh", SCRIPT.read_text()),
        (f"{place}/package.json", "{}"),
        (f"{place}/package-lock.json", "first"),
        ("bin/npm", NPM),
    ):
        file = checkout / file_name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(0o755)
    copied = checkout / ".tools" / name / "node_modules" / "copied"

    def bring_again() -> subprocess.CompletedProcess[str]:
        words = ["sh", str(checkout / "deploy" / "tools.sh"), name]
        environment = {"PATH": f"{checkout}/bin:/usr/bin:/bin", "LOG": str(log)}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)

    assert bring_again().returncode == bring_again().returncode == 0
    assert copied.read_text() == "first"
    once = "ci --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error\n"
    assert log.read_text() == once, "once, and no script runs"
    (checkout / place / "package-lock.json").write_text("second")
    Path(f"{log}.fails").touch()
    failed = bring_again()
    assert failed.returncode == 1
    assert "no such registry" in failed.stderr
    assert f"tools: {name} cannot be had here" in failed.stderr
    assert copied.read_text() == "first", "what was there stays"
    Path(f"{log}.fails").unlink()
    assert bring_again().returncode == 0
    assert copied.read_text() == "second"
    assert [file.name for file in (checkout / ".tools").iterdir()] == [name], "nothing half done stays"


def test_the_script_is_clean_for_shellcheck() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    found = subprocess.run([checker, SCRIPT], capture_output=True, text=True, check=False, timeout=200)
    assert (found.returncode, found.stdout) == (0, "")


def test_a_path_that_is_overwritten_in_a_program_keeps_its_length() -> None:
    said = dict(
        line.split("=", 1) for line in SCRIPT.read_text().splitlines() if line.startswith(("TEMPLATES=", "BY_"))
    )
    assert len(said["TEMPLATES"]) == len(said["BY_DESCRIPTOR"])
