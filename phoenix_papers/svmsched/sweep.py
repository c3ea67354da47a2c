"""`phoenix simulate svmsched --sweep`: in which workloads do short jobs that borrow gain what the sources tell?

Sources: R. Chakode's thesis, section 7.2.2; and the paper that it takes its 96 jobs from (R. Chakode, B. O. Yenke and J.-F.
Méhaut, CLOSER 2011, section 6).  A point is the small workload, spread with a third each (Fig. 7.3), and at once with shares as
many as the jobs (Fig. 7.4), each static and with the threshold.

Rules
  1. The gain.  The paper: 17.5 cores of 48 on average after 15, which is 5.2 points, or 17 % more; and 32,700 s after 35,000.
     The thesis, of the same runs: "17 % with respect to" static, and then 48 % after 31 %, which is 17 points.
  2. Also told, with the band that agrees: see `TOLD`.  "A little less than 20 %" of the durations are short ones'.
  3. Peaks are of cores in use; utilisation is as `rules`, rule 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from phoenix.plugin.simulation import Outcome, engine, mean
from phoenix_papers.study import Claim, Column, Study, Told
from phoenix_papers.svmsched import rules
from phoenix_papers.svmsched.rules import Run, Setting, Workload

PAPER_POINTS: Final = 100 * 2.5 / 48
THESIS_POINTS: Final = 17.0
PAPER_SAVED: Final = 2300 / 35_000
THIRDS, SIZED = rules.SETTINGS[:2]
_OWN: Final = THIRDS.workload


class Swept(Workload, frozen=True, kw_only=True):
    """The small workload's parameters, and what of its setting is stated."""

    hosts: Annotated[int, msgspec.Meta(ge=3, le=1000)] = THIRDS.hosts
    threshold_s: Annotated[float, msgspec.Meta(ge=60, le=3600)] = THIRDS.threshold_s
    short_part: Annotated[float, msgspec.Meta(ge=0, le=1)] = THIRDS.short_part


STATED: Final = {
    "hosts": "6 hosts of 8 cores are stated",
    "threshold_s": "30 minutes are stated",
    "short_part": "36 % of the jobs are stated",
    "best_effort": "it is stated that all jobs are production",
    "start_s": "15.0 s are stated",
}
COLUMNS: Final = (
    Column("STATIC-%", "static_pct", 1),
    Column("GAIN", "gain_points", 1),
    Column("MAKESPAN", "makespan_static_s"),
    Column("LESS-%", "saved_pct", 1),
)
CLAIMS: Final = (
    Claim("5.2", "5.2 points gained (2.5 of 48 cores: the paper)", lambda own: own["gain_points"] - PAPER_POINTS),
    Claim("17", "17 points gained (the thesis)", lambda own: own["gain_points"] - THESIS_POINTS),
    Claim("SHORTER", "6.6 % shorter (32,700 s: the paper)", lambda own: own["saved_pct"] - 100 * PAPER_SAVED),
)
TOLD: Final = (
    Told("short jobs: a little less than 20 % of the durations", "short_pct", 16, 20),
    Told("static: 15 cores of 48 on average", "static_pct", 100 * 14 / 48, 100 * 16 / 48),
    Told("static: 35,000 s", "makespan_static_s", 33_000, 37_000),
    Told("static: at most 27 cores", "peak_static", 24, 30),
    Told("flexible: at most 40 cores", "peak", 36, 44),
    Told("static at once: 67 %", "once_static_pct", 64, 70),
    Told("flexible at once: more than 72 %", "once_pct", 70, 76),
    Told("services of low demand end no later", "low_later_s", -math.inf, 60),
)


def study() -> Study:
    return Study(
        name="svmsched",
        parameters=Swept,
        stated=STATED,
        measure=measure,
        columns=COLUMNS,
        claims=CLAIMS,
        told=TOLD,
        level=lambda row: mean(row.measures["gain_points"]),
        level_label="utilisation beyond static (points)",
    )


def measure(point: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Of one seed: both settings, each static and with the threshold."""
    given = msgspec.convert({**msgspec.structs.asdict(_OWN), **point}, Swept)
    thirds, sized = (
        setting._replace(hosts=given.hosts, threshold_s=given.threshold_s, short_part=given.short_part, workload=given)
        for setting in (THIRDS, SIZED)
    )
    (static, before), (flexible, after) = (_run(thirds, level_s, seed) for level_s in (0.0, given.threshold_s))
    (once_static, _), (once, _) = (_run(sized, level_s, seed) for level_s in (0.0, given.threshold_s))
    jobs = rules.works(thirds, seed)
    short = math.fsum(work.run_s for work in jobs if work.run_s < given.threshold_s)
    return {
        "static_pct": 100 * static.utilisation,
        "flexible_pct": 100 * flexible.utilisation,
        "gain_points": 100 * (flexible.utilisation - static.utilisation),
        "makespan_static_s": static.makespan_s,
        "makespan_s": flexible.makespan_s,
        "saved_pct": 100 * (1 - flexible.makespan_s / static.makespan_s),
        "peak_static": peak(before),
        "peak": peak(after),
        "once_static_pct": 100 * once_static.utilisation,
        "once_pct": 100 * once.utilisation,
        "short_pct": 100 * short / math.fsum(work.run_s for work in jobs),
        "low_later_s": max(flexible.completed_s[s] - static.completed_s[s] for s in ("app2", "app3")),
    }


def _run(setting: Setting, threshold_s: float, seed: int) -> tuple[Run, Outcome]:
    outcome = engine.run(rules.scenario(setting, threshold_s, seed))
    return rules.measured(setting, threshold_s, seed, outcome, 0), outcome


def peak(outcome: Outcome) -> float:
    """The most cores in use at once: who ends at a time has ended."""
    changes = [(record.start_s or 0.0, record.cores * record.nodes) for record in outcome.jobs]
    changes += [(record.end_s or 0.0, -record.cores * record.nodes) for record in outcome.jobs]
    most = now = 0
    for _, cores in sorted(changes):
        now += cores
        most = max(most, now)
    return float(most)
