"""Experiment phoenix-autoscale: rules on a load, and the measures by which they are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phoenix.cli.errors import CliError
from phoenix.cli.simulate import main
from phoenix.simulate import engine, verify
from phoenix.simulate.text_input import InputError
from phoenix.simulate.workload import Outcome, Series, WebRecord
from phoenix_papers.autoscale import rules, trying
from phoenix_papers.autoscale.rules import PAPER, Followed, Load, followed, ideal, tracking

STEP: Load = ((0.0, 0.5), (600.0, 6.3), (1800.0, 0.5))  # 6.3 busy instances: eight keep 80 %


def simulated(variant: rules.Variant, load: Load = STEP, boot_s: float = 0.0) -> tuple[Outcome, Followed]:
    outcome = engine.run(rules.scenario(variant, load, 3600.0, boot_s))
    return outcome, followed(variant, load, outcome)


def serving(outcome: Outcome, since: float, until: float) -> list[tuple[float, int]]:
    """Changes of the number in service in [since, until)."""
    found: list[tuple[float, int]] = []
    for at, _, there in outcome.web[0].levels:
        if since <= at < until and (not found or found[-1][1] != there):
            found.append((at, there))
    return found


def test_the_papers_rule_takes_a_step_a_window() -> None:
    outcome, measured = simulated(PAPER)
    assert serving(outcome, 600, 1800) == [(600.0 + 20 * n, n + 1) for n in range(1, 8)]
    assert serving(outcome, 1800, 3600) == [(1800.0 + 20 * n, 8 - n) for n in range(1, 8)]
    assert measured.short_instance_s == pytest.approx(20 * (7 + 6 + 5 + 4 + 3 + 2 + 1))
    assert measured.longest_short_s == pytest.approx(140)
    assert measured.overload_instance_s == pytest.approx(20 * (5.3 + 4.3 + 3.3 + 2.3 + 1.3 + 0.3))
    assert measured.used_of_ideal == pytest.approx(1.0)  # it climbs as slowly as it goes down


def test_target_tracking_takes_the_steps_that_an_overload_shows_and_shrinks_after_its_window() -> None:
    outcome, measured = simulated(tracking(down_s=300))
    assert [there for _, there in serving(outcome, 600, 1800)] == [2, 3, 4, 5, 7, 8]  # 1 / 0.8 more each time
    assert serving(outcome, 1800, 3600) == [(2100.0, 1)]
    assert measured.longest_short_s < 140
    assert measured.changes_per_hour == 7


def test_an_up_window_and_a_slow_boot_come_late() -> None:
    at_once, late = simulated(tracking())[1], simulated(tracking(up_s=60))[1]
    assert late.short_instance_s > at_once.short_instance_s
    assert simulated(tracking(), boot_s=30)[1].short_instance_s > at_once.short_instance_s


@pytest.mark.parametrize("variant", [PAPER, tracking(up_s=60, down_s=300)], ids=lambda variant: variant.label)
def test_a_replay_through_separate_folds_gives_the_same_states(variant: rules.Variant) -> None:
    assert verify.verify(rules.scenario(variant, STEP, 3600.0, 30.0)) == []


def test_the_measures_of_a_life_written_by_hand() -> None:
    load: Load = ((0.0, 0.8), (100.0, 3.2))  # ideal: 1, then 4
    levels = [(0.0, 1, 1), (150.0, 4, 2), (160.0, 4, 4)]
    outcome = Outcome(label="", hosts=9, window_s=200.0, host_cores=1, web=[WebRecord(department="web", levels=levels)])
    found = followed(PAPER, load, outcome)
    assert found.short_instance_s == 50 * 3 + 10 * 2
    assert found.longest_short_s == 60
    assert found.overload_instance_s == pytest.approx(50 * 2.2 + 10 * 1.2)
    assert found.mean_deviation == pytest.approx((50 * 3 + 10 * 2) / 200)
    assert found.used_of_ideal == pytest.approx((150 + 20 + 160) / (100 + 400))
    assert found.changes_per_hour == 2 * 18
    assert rules.ideal_of(load, 200.0).peak_all_the_time_instance_s == 800


def test_turns_are_counted_in_any_hour() -> None:
    levels = [(0.0, 1), (10.0, 2), (20.0, 1), (25.0, 1), (30.0, 2), (3620.0, 1), (3629.0, 2), (9000.0, 3)]
    assert rules.turns_in_an_hour(levels) == 3  # those at 30, 3,620 and 3,629: the one at 20 is an hour ago
    assert rules.turns_in_an_hour([(0.0, 1), (10.0, 5), (20.0, 6)]) == 0


def test_a_flap_budget_and_a_floor_by_the_clock_do_what_they_say() -> None:
    load: Load = tuple((300.0 * n, 6.3 if n % 2 else 0.5) for n in range(12))
    free, budget = (simulated(trying.variant(f"down=0{more}"), load) for more in ("", ",turns=4"))
    assert (free[1].turns_in_an_hour_max, budget[1].turns_in_an_hour_max) == (10, 4)
    assert budget[1].short_instance_s < free[1].short_instance_s
    assert budget[1].used_instance_s > free[1].used_instance_s
    outcome, measured = simulated(trying.variant("down=0,schedule=Mon 00:05-00:50 at least 4"))
    assert [there for at, there in serving(outcome, 0, 600)] == [1, 4]
    assert serving(outcome, 1900, 3600) == [(3000.0, 1)]
    assert measured.label == "target 80 %, down 0 s, Mon 00:05-00:50 at least 4"


def test_correlation_is_weighted_by_time() -> None:
    assert rules.correlation([(1.0, 1.0, 10), (5.0, 2.0, 20)]) == pytest.approx(1.0)
    assert rules.correlation([(1.0, 1.0, 20), (5.0, 2.0, 10)]) == pytest.approx(-1.0)
    assert rules.correlation([(1.0, 1.0, 5), (5.0, 2.0, 5)]) is None
    one, two = [(2.0, 1.0, 1), (1.0, 2.0, 1), (1.0, 2.0, 3)], [(1.0, 1.0, 1)] * 2 + [(1.0, 2.0, 1), (1.0, 2.0, 3)]
    assert rules.correlation(one) == pytest.approx(rules.correlation(two))


def test_the_busiest_interval_needs_the_peak_at_80_percent() -> None:
    series = Series(unit="requests", starts=(0.0, 60.0, 120.0), values=(600.0, 0.0, 61.0))
    capacity = rules.capacity_for(series, 64, 2.22)
    load = rules.load_of(series, capacity, 2.22)
    assert [ideal(busy) for _, busy in load] == [64, 1, 7]
    assert capacity == pytest.approx(2.22 * 10 / 51.2)
    with pytest.raises(InputError, match="no request"):
        rules.capacity_for(Series(unit="requests", starts=(0.0, 60.0), values=(0.0, 0.0)), 64, 1.0)


# --------------------------------------------------------------------------------------------------------------- command


@pytest.fixture
def web_csv(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    counts = [60, 60, 300, 900, 1200, 1200, 600, 300, 120, 60] * 3
    path.write_text("second,requests\n" + "".join(f"{60 * i},{n}\n" for i, n in enumerate(counts)))
    return path


def test_a_persons_own_table_gives_a_table_and_the_same_json_each_time(
    web_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["phoenix-autoscale", "--web", str(web_csv), "--capacity", "2", "--workers", "1"]
    assert main([*words, "--try", "target=0.5,down=120"]) == 0
    table = capsys.readouterr().out
    assert "load.csv, 0.02083 days; an instance serves 2 requests/s" in table
    assert "Ideal at 80.0 %: 13 instances at the peak" in table
    assert "target 50 %, down 120 s" in table
    documents = []
    for _ in range(2):
        assert main([*words, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
        for found in documents[-1]["runs"]:
            del found["wall_s"]
    assert documents[0] == documents[1]
    runs = {found["label"]: found for found in documents[0]["runs"]}
    assert documents[0]["runs"][0]["label"] == PAPER.label
    down_0, down_300 = runs["target 80 %, down 0 s"], runs["target 80 %, down 300 s"]
    assert down_0["used_instance_s"] < down_300["used_instance_s"]
    assert down_0["short_instance_s"] >= down_300["short_instance_s"]
    assert documents[0]["input"]["capacity_requests_per_s"] == 2


def test_without_a_table_a_load_is_generated_and_the_output_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHOENIX_TRACES", str(tmp_path))
    monkeypatch.setattr("phoenix_papers.autoscale.experiment.GENERATED_DAYS", 0.2)
    assert main(["phoenix-autoscale", "--seed", "7", "--json", "--workers", "1"]) == 0
    output = capsys.readouterr()
    assert "the load is generated (seed 7)" in output.err
    assert json.loads(output.out)["input"]["generated"] is True
    assert json.loads(output.out)["ideal"]["peak_instances"] == 64


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--capacity", "2", "--peak", "9"], "both say how much an instance serves"),
        (["--capacity", "0.00001"], "too many to simulate"),
        (["--try", "goal=0.5"], "should be one of target="),
        (["--try", "target=80"], "0.8 is 80 %"),
        (["--try", "turns=1"], "at least 2"),
        (["--try", "turns=many"], "should have a whole number"),
        (["--try", "up-limit=4"], 'should be such as "4 in 60s"'),
        (["--try", "rule=guess"], "should be one of threshold, target-tracking"),
        (["--boot", "soon"], "should be a number"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    words: list[str], expected: str, web_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((CliError, SystemExit)) as caught:
        main(["phoenix-autoscale", "--web", str(web_csv), *words])
    assert expected in str(caught.value) + capsys.readouterr().err


@pytest.mark.long
def test_plots_are_made(web_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "figures"
    assert main(["phoenix-autoscale", "--web", str(web_csv), "--peak", "8", "--plots", str(folder)]) == 0
    capsys.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == [
        f"autoscale{part}.{ending}" for part in ("-peak", "") for ending in ("png", "svg")
    ]
