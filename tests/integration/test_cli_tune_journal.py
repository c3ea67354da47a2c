"""`phoenix tune --journal` as a person runs it: the past of a cloud, here a simulated one, under other settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.cli import whatif_replay
from phoenix.cli.__main__ import main
from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import Scenario, Work
from services.runtime.config.file import load
from tests.support.whatif import lines

END_S = 20_000.0
CONFIG = """# What this cloud is.
[cloud]
name = "site"

[[department]]
name = "hpc"
kind = "batch"

[department.batch]
order = "fcfs"  # as it always was
victims = "least-work-lost"
"""
SPACE = """
[axis]
hpc.order = ["fcfs", "first-fit", "shortest-first"]
hpc.weight = [1.0, 2.0]
"""
PERIOD = ("--since", "1970-01-01T00:00:01", "--until", "1970-01-01T02:00:00")
GOAL = ("--goal", "min hpc.mean_wait_s", "hpc.completed >= present")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cloud of four hosts, on which wide jobs kept others waiting: twice, so that one time can be held out."""
    (tmp_path / "site.toml").write_text(CONFIG)
    (tmp_path / "space.toml").write_text(SPACE)
    works = [
        Work(
            number=3 * n + k + 1, submit_s=9000.0 * (n // 4) + 100.0 * n + 10 * k, run_s=(600.0, 600.0, 60.0)[k],
            nodes=(3, 4, 1)[k], exclusive=True, walltime_s=700.0, user="ann",
        )
        for n in range(8) for k in range(3)
    ]  # fmt: skip
    scenario = Scenario(
        label="lived", config=load(tmp_path / "site.toml").cloud, hosts=4, jobs={"hpc": tuple(works)}, web={},
        window_s=END_S,
    )  # fmt: skip
    simulation = Simulation(scenario, keep=True)
    simulation.run()
    sent = lines(simulation.journal.kept or [])
    monkeypatch.setattr(whatif_replay, "_lines", lambda _client, _since: iter(sent))
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("PHOENIX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PHOENIX_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(*more: str) -> list[str]:
    files = ["--config", "site.toml", "--space", "space.toml", "--out", "trials.jsonl", "--workers", "1"]
    return ["tune", "--journal", *PERIOD, *files, *GOAL, *more]


def test_the_past_is_played_under_other_settings_and_the_best_is_proposed(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words("--propose", "tuned.toml")) == 0
    out = capsys.readouterr().out
    assert 'department hpc: batch.order "fcfs" → "first-fit"' in out
    assert "phoenix config apply tuned.toml" in out
    text = (site / "tuned.toml").read_text()
    assert text.startswith("# What this cloud is.")
    assert "# as it always was" in text
    assert tomllib.loads(text)["department"][0]["batch"] == {"order": "first-fit", "victims": "least-work-lost"}
    assert load(site / "tuned.toml").cloud.department("hpc") is not None
    assert (site / "site.toml").read_text() == CONFIG


def test_as_it_is_and_present_are_what_happened(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, *words())
    assert found["experiment"] == "journal"
    (size,) = found["sizes"]
    assert size["as_it_is"]["tuned"] == found["against"]["tuned"]
    worst = size["as_it_is"]["tuned"]["hpc.mean_wait_s"]
    best = size["front"][0]
    assert best["settings"] == {"hpc.order": "first-fit"} | {"hpc.weight": best["settings"]["hpc.weight"]}
    assert best["result"]["hpc.mean_wait_s"] < worst * 2 / 3


def test_another_period_is_held_out(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, *words("--holdout", "1970-01-01T02:20:00..1970-01-01T05:00:00"))
    assert found["held_out"] == ["1970-01-01T02:20:00Z to 1970-01-01T05:00:00Z"]
    assert found["sizes"][0]["front"][0]["verdict"] == "generalises"


def test_fewer_hosts_are_an_axis_too(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "space.toml").write_text("[axis]\ncluster.hosts = [4, 5, 8]\n")
    found = answered(capsys, *words())
    waits = [size["front"][0]["result"]["hpc.mean_wait_s"] for size in found["sizes"]]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[-1]


def test_what_is_best_on_more_hosts_than_there_are_is_not_proposed(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On forty hosts no job waits, whatever the order; the cloud has four."""
    (site / "space.toml").write_text('[axis]\ncluster.hosts = [4, 40]\nhpc.order = ["fcfs", "first-fit"]\n')
    assert main(words("--propose", "tuned.toml")) == 0
    assert 'department hpc: batch.order "fcfs" → "first-fit"' in capsys.readouterr().out
    trials = [json.loads(line) for line in (site / "trials.jsonl").read_text().splitlines()[1:]]
    waits = {size: min(t["result"]["hpc.mean_wait_s"] for t in trials if t["point"].get("cluster.hosts") == size)
             for size in (4, 40)}  # fmt: skip
    assert waits[40] == 0.0 < waits[4]


def test_nothing_better_is_nothing_proposed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "space.toml").write_text("[axis]\nhpc.weight = [1.0, 2.0]\n")
    assert main(words("--propose", "tuned.toml")) == 0
    assert "nothing is better than what is in force: tuned.toml is not written" in capsys.readouterr().err
    assert not (site / "tuned.toml").exists()


def test_a_file_that_is_not_what_was_in_force_is_told(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "site.toml").write_text(CONFIG.replace('"least-work-lost"', '"youngest-first"'))
    assert main(words()) == 0
    err = capsys.readouterr().err
    assert "site.toml is not what was in force when the period began" in err
    assert 'batch.victims "least-work-lost" → "youngest-first"' in err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--holdout", "7d"], "--holdout 7d: should be another period of the past"),
        (["--holdout", "1970-01-01..1970-01-02"], "it overlaps what is tuned on"),
        (["--holdout", "1970-01-03..1970-01-02"], "a period begins before it ends"),
        (["--until", "2999-01-01"], "a period begins before it ends, and has ended"),
        (["--since", "yesterday"], "--since: 'yesterday' is no time"),
        (["--web", "x.csv"], "--web is for phoenix-cloud"),
        (["--propose", "no/such/tuned.toml"], "no/such"),
        (["--goal", "hpc.completed > static"], "should be a limit"),
        (["--experiment", "phoenix-cloud"], "not allowed with"),
    ],
)
def test_what_is_odd_is_refused_before_anything_is_played(
    site: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    assert main(words(*more)) == 2
    assert told in capsys.readouterr().err
    assert not (site / "trials.jsonl").exists()


def test_what_belongs_to_a_journal_needs_one(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--space", "space.toml", "--out", "trials.jsonl"]
    assert main(["tune", "--experiment", "phoenix-cloud", "--since", "3h", *files, *GOAL]) == 2
    assert "--since is for --journal" in capsys.readouterr().err
    (site / "space.toml").write_text('[axis]\nhpc.order = ["fcfs", "easyy"]\ncluster.hosts = [0]\n')
    assert main(words()) == 2
    err = capsys.readouterr().err
    assert 'space.toml:2: axis.hpc.order: "easyy"' in err
    assert "space.toml:3: axis.cluster.hosts: 0: should be a whole number between 1 and" in err


def answered(capsys: pytest.CaptureFixture[str], *asked: str) -> dict[str, Any]:
    assert main([*asked, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]
