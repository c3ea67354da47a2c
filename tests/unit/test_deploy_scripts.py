"""What is installed in a site's images passes shellcheck, under every name that it has there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy" / "opennebula"


PARTS = (
    "phoenix-guest-context",
    "phoenix-guest-door",
    "phoenix-guest-launch",
    "phoenix-guest-stay",
)  # what phoenix-guest reads


def scripts() -> list[Path]:
    return sorted(
        x for x in DEPLOY.rglob("*") if x.name in PARTS or (x.is_file() and x.read_bytes().startswith(b"#!/bin/sh"))
    )


def test_the_scripts_are_clean_for_shellcheck() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    assert checker.exists(), f"{checker} is missing: pip install -e '.[dev]'"
    assert DEPLOY / "phoenix-guest" in scripts()
    found = subprocess.run([checker, "-x", *scripts()], capture_output=True, text=True, check=False, timeout=200)
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


def test_an_account_with_other_numbers_takes_no_second_job(tmp_path: Path) -> None:
    """What runs under subordinate user ids is not found by the account's uid."""
    tool, numbers = tmp_path / "newuidmap", tmp_path / "subuid"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    ask = '. "$1"; SUBUID=$2; account=$3 uid=$4; context() { value=YES; }; may_stay && echo stays'
    given = "set -u; kind=job ranks=1 ended=0 terminated=0; "

    def asked(account: str, uid: str) -> str:
        words = ["sh", "-c", given + ask, "sh", str(DEPLOY / "phoenix-guest-stay"), str(numbers), account, uid]
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(words, env=path, capture_output=True, text=True, check=True, timeout=200).stdout.strip()

    def stays(account: str, uid: str) -> bool:
        try:
            return asked(account, uid) == "stays"
        except subprocess.CalledProcessError:
            return False

    assert stays("phoenix", "1001")  # there is no such file
    numbers.write_text("phoenixes:100000:65536\n1002:165536:65536\n")
    assert stays("phoenix", "1001")
    assert not stays("phoenixes", "1001")
    assert not stays("phoenix", "1002")


def test_prometheus_beside_a_cloud_needs_the_monitors_address_alone(tmp_path: Path) -> None:
    """Its list has every process, the agents beside HAProxy too."""
    deploy = tmp_path / "deploy" / "prometheus"
    shutil.copytree(DEPLOY.parent / "prometheus", deploy)
    told = {"cloud": "c", "monitor_url": "http://127.0.0.1:7", "agents": {"web": "http://127.0.0.1:9131/metrics"}}
    seen = tmp_path / "seen"
    for name, script in (
        ("phoenix", f"echo '{json.dumps(told)}'"),
        ("prometheus", f"ls targets >{seen}; grep url: prometheus.yml >>{seen}"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path), "PORT": "1"}
    words = ["sh", deploy / "try.sh"]
    subprocess.run(words, env=environment, capture_output=True, check=False, timeout=200)
    assert seen.read_text().split() == [
        "example.yml.off",
        *("-", "url:", "http://127.0.0.1:7/metrics/targets?direct=1"),
    ]
