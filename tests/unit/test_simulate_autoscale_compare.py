"""What `--compare` says, worked out again: both rules written plainly, without the product, and sums of half seconds."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest

from phoenix.cli.simulate import main
from phoenix.simulate import engine
from phoenix.simulate.plots_style import save
from phoenix_papers.autoscale import compare, rules
from phoenix_papers.autoscale.rules import PAPER, Load, Variant, tracking

BOOT_S, DRAIN_S, WINDOW_S = 30.5, 5.0, 5400.0  # the half second: nothing comes into service just when load is told
LOAD: Load = tuple(
    (60.0 * minute, 6.0 + 5.5 * math.sin(minute / 14.0) + (4.0 if 40 <= minute < 46 else 0.0)) for minute in range(90)
)


def busy_at(at: float) -> float:
    return LOAD[min(int(at // 60), len(LOAD) - 1)][1]


class Plain:
    """One department, second by second: `wanted` is asked after each observation."""

    def __init__(self, wanted: Callable[[Plain, float], int]) -> None:
        self.serving, self.current, self.changed = 0, 1, 0.0
        self.ready = [BOOT_S]  # when those that boot will serve
        self.told: list[tuple[float, float, float]] = []  # (start, end, utilisation) since the number last changed
        self.asked: list[tuple[float, int]] = []  # (end, recommendation)
        self.levels: list[tuple[float, int]] = [(0.0, 0)]
        self.moves = [(0.0, 1)]  # (when, host that comes or goes)
        for second in range(1, int(WINDOW_S) + 1):
            self._tick(float(second), wanted)

    def _tick(self, now: float, wanted: Callable[[Plain, float], int]) -> None:
        for at in [at for at in self.ready if at <= now]:
            self.ready.remove(at)
            self._serve(at, self.serving + 1)
        begun = max(now - 1.0, BOOT_S)  # nothing was in service before
        if self.serving and begun >= self.changed:
            self.told.append((begun, now, min(1.0, busy_at(now - 1.0) / self.serving)))
            before, self.current = self.current, wanted(self, now)
            for _ in range(before, self.current):
                self.ready.append(now + BOOT_S)
                self.moves.append((now, 1))
            for _ in range(self.current, before):
                self._end_one(now)

    def _serve(self, at: float, serving: int) -> None:
        self.serving, self.changed, self.told = serving, at, []
        if self.levels[-1][0] == at:  # the last word of an instant counts
            self.levels.pop()
        self.levels.append((at, serving))

    def _end_one(self, now: float) -> None:
        if self.ready:
            self.ready.pop()
            self.moves.append((now, -1))
        else:
            self._serve(now, self.serving - 1)
            self.moves.append((now + DRAIN_S, -1))


def threshold(life: Plain, now: float) -> int:
    """Above 80 % over the last 20 s one more, and only one on its way; one fewer if that would be below 80 % as well."""
    if life.told[0][0] > now - 20.0:
        return life.current
    spans = [(end - max(start, now - 20.0), u) for start, end, u in life.told if end > now - 20.0]
    mean = sum(seconds * u for seconds, u in spans) / sum(seconds for seconds, _ in spans)
    if mean >= 0.8:
        return max(life.current, life.serving + 1)
    return min(life.current, life.serving - 1) if mean < 0.8 * (life.serving - 1) / life.serving else life.current


def target(level: float, tolerance: float, down_s: float) -> Callable[[Plain, float], int]:
    """As many as keep `level`; fewer when no more were wanted for `down_s`."""

    def wanted(life: Plain, now: float) -> int:
        ratio = life.told[-1][2] / level
        steady = abs(ratio - 1) <= tolerance + 1e-6
        asked = life.serving if steady else max(1, math.ceil(life.serving * ratio - 1e-6))
        life.asked.append((now, asked))
        recent = max(number for at, number in life.asked if at > now - down_s)
        if asked > life.current:
            return asked
        return recent if recent < life.current and now - BOOT_S >= down_s else life.current

    return wanted


VARIANTS = (
    (PAPER, threshold),
    (tracking(), target(0.8, 0.0, 300.0)),
    (tracking(tolerance=0.1), target(0.8, 0.1, 300.0)),
    (tracking(0.7, down_s=60, tolerance=0.1), target(0.7, 0.1, 60.0)),
)


def changes(rows: list[tuple[float, int]]) -> list[tuple[float, int]]:
    return [row for before, row in zip([(-1.0, -1), *rows], rows, strict=False) if before[1] != row[1]]


@pytest.mark.parametrize(("variant", "wanted"), VARIANTS, ids=[variant.label for variant, _ in VARIANTS])
def test_a_plain_reckoning_says_the_same(variant: Variant, wanted: Callable[[Plain, float], int]) -> None:
    outcome = engine.run(rules.scenario(variant, LOAD, WINDOW_S, BOOT_S, DRAIN_S, 1.0))
    found, life = rules.followed(variant, LOAD, outcome), Plain(wanted)
    serving = [(at, there) for at, _, there in outcome.web[0].levels]
    assert changes(serving) == changes(life.levels)
    under = over = overload = 0.0
    for half in range(int(2 * WINDOW_S)):
        at = half / 2
        busy, there = busy_at(at), life.levels[bisect_right(life.levels, (at, 1000)) - 1][1]
        needed = max(1, math.ceil(busy / 0.8 - 1e-9))
        under += max(0, needed - there) / 2
        over += max(0, there - needed) / 2
        overload += max(0.0, busy - there) / 2
    held = sum(sign * (WINDOW_S - min(at, WINDOW_S)) for at, sign in life.moves)
    assert found.short_instance_s == pytest.approx(under)
    assert found.over_instance_s == pytest.approx(over)
    assert found.overload_instance_s == pytest.approx(overload)
    assert found.held_host_s == pytest.approx(held)
    assert found.hosts_moved == sum(1 for at, _ in life.moves if 0 < at < WINDOW_S)
    assert found.peak_instances == max(number for _, number in life.levels)
    assert found.hosts_moved > 20


def test_numbers_that_never_change_are_over_or_under() -> None:
    ideal = rules.ideal_of(LOAD, WINDOW_S)
    mean, peak = compare.fixed(LOAD, WINDOW_S, ideal)
    assert (mean.label, peak.label) == ("always 9 (mean)", "always 15 (peak)")
    assert (peak.short_instance_s, peak.hosts_moved, peak.held_host_s) == (0.0, 0, 15 * WINDOW_S)
    assert peak.over_instance_s == pytest.approx(15 * WINDOW_S - ideal.used_instance_s)
    assert mean.over_instance_s - mean.short_instance_s == pytest.approx(9 * WINDOW_S - ideal.used_instance_s)


def test_the_busiest_day_begins_with_the_end_of_the_day_before() -> None:
    hours = tuple((3600.0 * hour, 9.0 if hour == 30 else float(hour % 24) / 9) for hour in range(72))
    load, window_s = compare.busiest_day(hours)
    assert window_s == 26 * 3600.0
    assert load[:3] == ((0.0, 22 / 9), (3600.0, 23 / 9), (7200.0, 0.0))
    assert load[8] == (8 * 3600.0, 9.0)
    assert len(load) == 26
    assert compare.busiest_day(hours[:24])[1] == 24 * 3600.0


def test_the_table_and_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "VARIANTS", compare.VARIANTS[:2])
    path = tmp_path / "load.csv"
    path.write_text("second,requests\n" + "".join(f"{at:g},{60 * busy}\n" for at, busy in LOAD[:20]))
    words = ["phoenix-autoscale", "--compare", "--web", str(path), "--capacity", "1", "--workers", "1"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "30 s until a new instance serves; one that goes drains for 5 s; a signal each 1 s" in told
    assert [line.split()[0] for line in told.splitlines() if "always" in line] == ["always", "always"]
    assert main([*words, "--json", "--boot", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["runs"]) == len(compare.VARIANTS) + 2
    assert (document["input"]["boot_s"], document["input"]["signal_s"]) == (1.0, 1.0)


def test_a_bar_for_each_rule(tmp_path: Path) -> None:
    runs = [*compare.fixed(LOAD, WINDOW_S, rules.ideal_of(LOAD, WINDOW_S))]
    figure = compare.plot(runs, "made up")
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["always 9 (mean)", "always 15 (peak)"]
    widths = [patch.get_width() for patch in figure.axes[1].patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([run.over_instance_s / 3600.0 for run in runs])
    save(figure, tmp_path / "capacity.svg")
    assert (tmp_path / "capacity.svg").stat().st_size > 1000
