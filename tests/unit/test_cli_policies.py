"""`phoenix policies`: what it lists, with and without a cloud."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phoenix.cli.__main__ import main
from tests.support.plugins import install, order

SITE = """[cloud]
name = "site"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "lab"
kind = "batch"
batch = { order = "easy", victims = "youngest-first" }
[[department]]
name = "shop"
kind = "web"
"""


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PHOENIX_DATA", raising=False)


def runs(where: Path) -> None:
    """What a running cloud leaves: where its configuration is."""
    (where / "site.toml").write_text(SITE)
    (where / ".phoenix" / "run").mkdir(parents=True)
    (where / ".phoenix" / "run" / "cloud.json").write_text(json.dumps({"config": str(where / "site.toml")}))


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["policies", *argv]) == 0
    return capsys.readouterr().out


def test_without_a_cloud_all_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys).splitlines()
    at = next(n for n, line in enumerate(lines) if line.split()[:2] == ["order", "first-fit"])
    assert lines[at].split()[2:4] == ["-", "phoenix-cloud"]
    assert lines[at + 1] == "    First fit: in the order of the queue, whatever fits starts."
    assert lines[at + 2] == "    Source: Phoenix Cloud paper, III-D."


def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs(tmp_path)
    (tmp_path / "site.toml").write_text(SITE.replace('"batch"', '"bath"'))
    assert main(["policies"]) == 0
    assert "which departments use which cannot be read: " in capsys.readouterr().err


def test_with_a_cloud_it_says_who_uses_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs(tmp_path)
    listed = json.loads(told(capsys, "--json"))["policies"]
    used = {(p["kind"], p["name"]): p["departments"] for p in listed if p["departments"]}
    assert used == {
        ("order", "first-fit"): ["hpc"],
        ("order", "easy"): ["lab"],
        ("victims", "smallest-shortest-spared"): ["hpc"],
        ("victims", "youngest-first"): ["lab"],
        ("scaling", "target-tracking"): ["shop"],
    }
    assert "used by:  lab" in told(capsys, "show", "easy")
    assert "used by:  none" in told(capsys, "show", "fcfs")


def test_one_kind_only(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(told(capsys, "--kind", "scaling", "--json"))["policies"]
    assert [(p["name"], p["departments"]) for p in listed] == [("threshold", None), ("target-tracking", None)]


def test_one_is_shown_with_its_theory_and_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "show", "multi-factor")
    assert "1. Age: seconds since the job was submitted" in text
    assert "  multi_factor.half_life_s = 604800.0" in text
    assert "none of its own" in told(capsys, "show", "fcfs")


def test_a_broken_plug_in_is_shown_what_breaks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    install(tmp_path / "site", "never", order())
    assert main(["policies", "check", "never", "--examples", "5"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("never (order) of acme-never 1.2, 5 situations for each rule:\n  ok      O1 ")
    assert (
        "  BROKEN  O10  a job alone, for which there is room, starts\n              one job (1 x 1 core and 256 MiB"
        in text
    )
    assert text.endswith("9 of 10 rules hold\n")
    assert main(["policies", "check", "never", "--examples", "5", "--json"]) == 1
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert [rule["rule"] for rule in rules if rule["seen"]] == ["O10"]


def test_what_cannot_be_loaded_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    install(tmp_path / "site", "ruined", "import nothing_of_that_name")
    assert main(["policies", "check", "ruined"]) == 1
    assert "ModuleNotFoundError: No module named 'nothing_of_that_name'" in capsys.readouterr().err
    assert "not usable: is of acme-ruined 1.2" in told(capsys)
