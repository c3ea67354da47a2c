"""What a search found, for people and for programs.

Rules
  1. Beside what was wanted stands what a mean hides: the tails of bounded slowdown (p95, p99), work lost to preemption, and how
     alike users fare.
  2. A gain is against the experiment's own settings at the same size, in the same world: times and slowdowns in parts of
     theirs, counts as a difference.  More is better, whatever the aim.
  3. Worlds in which a point does as well as the experiment's own settings say nothing of a gain.  Of the others three in four
     have it, and the mean of all is one: it *generalises*.  No more than half have it: it was *luck*.  Else it holds *in part*.
     A point is as good as the worst of its gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from phoenix.cli.tables import render
from phoenix.search.space import Point, Space
from phoenix.search.trials import Trial
from phoenix.simulate import report
from phoenix.simulate.tables import NOTHING, durations, host_hours, ratio
from phoenix.tune.goals import HOSTS, Aim, Values
from phoenix.tune.searching import Found

FORMAT: Final = 1
HOLDS: Final = 0.75  # rule 3
LUCK: Final = 0.5
_OF_MANY: Final = ("_node_s", "_host_s", "_instance_s")
_BESIDE: Final = ("preemption_lost_node_s", "p95_bounded_slowdown", "p99_bounded_slowdown", "user_fairness")
_HEADS: Final = {
    "mean_turnaround_s": "TURNAROUND",
    "completed": "DONE",
    "preemption_lost_node_s": "LOST",
    "mean_bounded_slowdown": "SLOWDOWN",
    "p95_bounded_slowdown": "P95-SLOWDOWN",
    "p99_bounded_slowdown": "P99-SLOWDOWN",
    "user_fairness": "FAIRNESS",
}


class Gain(NamedTuple):
    """Of one aim of one point: where it was tuned, and in each world (rule 2)."""

    aim: Aim
    tuned: float | None
    held_out: dict[str, float]

    @property
    def better(self) -> int:
        """In how many worlds it is one."""
        return sum(each > 0 for each in self.held_out.values())

    @property
    def mean(self) -> float:
        return math.fsum(self.held_out.values()) / len(self.held_out)

    @property
    def verdict(self) -> str:
        """Rule 3; empty: there was no gain to look for, or no world tells."""
        telling = sum(each != 0 for each in self.held_out.values())
        if self.tuned is None or self.tuned <= 0 or not telling:
            return ""
        if self.better >= HOLDS * telling and self.mean > 0:
            return "generalises"
        return "luck" if self.better <= LUCK * telling else "in part"


def gains(found: Found, trial: Trial, hosts: Any) -> list[Gain]:
    """A gain for each aim."""
    tuned_own, held_out = found.own_result(hosts, ""), found.held_out(trial)
    return [
        Gain(
            aim,
            _gain(aim, trial.result, tuned_own),
            {
                world: gain
                for world, values in held_out.items()
                if (gain := _gain(aim, values, found.own_result(hosts, world))) is not None
            },
        )
        for aim in found.aims.aims
    ]


def verdict(of: Sequence[Gain]) -> str:
    """Rule 3."""
    told = [gain.verdict for gain in of]
    return next((word for word in ("luck", "in part", "generalises") if word in told), "no gain")


def _gain(aim: Aim, values: Values, own: Values) -> float | None:
    mine, theirs = values.get(aim.metric), own.get(aim.metric)
    if mine is None or theirs is None:
        return None
    gain = aim.sign * (theirs - mine)
    return gain / abs(theirs) if _in_parts(aim) and theirs else gain


def _in_parts(aim: Aim) -> bool:
    return aim.metric.endswith(("_s", "slowdown"))


def name_of(space: Space, point: Point) -> str:
    """The settings that a point has and another could have otherwise, but for its size: words as they are, other values with
    the last part of their name."""
    shown = [axis.name for axis in space.axes if axis.count != 1 and axis.name != HOSTS and axis.name in point]
    values = [(name.rpartition(".")[2], point[name]) for name in shown]
    told = (value if isinstance(value, str) else f"{last} {_plain(value)}" for last, value in values)
    return ", ".join(told) or "what is fixed"


def _plain(value: Any) -> str:
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


# -------------------------------------------------------------------------------------------------------------- for people


def told(found: Found) -> str:
    """The table, what was held out, and how much was looked at."""
    parts = [_table(found)]
    if found.bench.worlds:
        parts.append(_held_out(found))
    refused = (
        f"; {len(found.refused):,} points were left out: {next(iter(found.refused.values()))}" if found.refused else ""
    )
    parts.append(f"{len(found.trials):,} trials, {found.about}{refused}")
    return "\n\n".join(parts) + "\n"


def metrics_shown(found: Found) -> list[str]:
    """What was wanted, then what stands beside it (rule 1)."""
    batch = [name for name, kind in found.bench.kinds.items() if kind == "batch"]
    return list(dict.fromkeys([*found.aims.metrics, *(f"{dept}.{name}" for dept in batch for name in _BESIDE)]))


def _table(found: Found) -> str:
    shown = metrics_shown(found)
    several = len([kind for kind in found.bench.kinds.values() if kind == "batch"]) > 1
    heads = [_head(name, several) for name in shown]
    rows: list[tuple[str, str, str, Values]] = []
    if "" in found.references:
        rows.append((NOTHING, found.bench.against, NOTHING, found.references[""]))
    for hosts in found.sizes():
        size = NOTHING if hosts is None else f"{hosts:,}"
        trials = found.of_size(hosts)
        reference = found.references.get("", {})
        own = found.own_result(hosts, "")
        rows.append((size, "as it is", _kept(found, own, reference), own))
        front = found.front(hosts)
        nearest = found.aims.nearest(trials, reference) if not front else None
        for trial in [*front, *([nearest] if nearest else [])]:
            kept = _kept(found, trial.result, reference)
            rows.append((size, name_of(found.space, trial.point), kept, trial.result))
    columns = [_column(name, [values.get(name) for *_, values in rows]) for name in shown]
    cells = [[*words, *values] for (*words, _), *values in zip(rows, *columns, strict=True)]
    table = render(["HOSTS", "SETTINGS", "KEEPS", *heads], cells, right=" ".join(["HOSTS", *heads]))
    about = (
        "The best of each size: what no other trial that keeps the limits beats in one aim without losing in another."
    )
    none = [str(hosts) for hosts in found.sizes() if not found.front(hosts)]
    if none and found.aims.limits:
        where = "" if none == ["None"] else f" at {', '.join(none)} hosts"
        about += f"\nNo trial keeps every limit{where}: shown is the one that misses least."
    return f"{table}\n\n{about}"


def _kept(found: Found, values: Values, reference: Values) -> str:
    over = found.aims.over(values, reference)
    return "all" if not any(over) else f"{over.count(0.0)} of {len(over)}"


def _head(name: str, several: bool) -> str:
    department, _, metric = name.partition(".")
    head = _HEADS.get(metric, metric.replace("_", "-").upper())
    return f"{department}.{head}" if several or department in ("web", "cloud") else head


def _column(name: str, values: Sequence[float | None]) -> list[str]:
    """In one unit, so that they can be compared."""
    if name.endswith("_s") and not name.endswith(_OF_MANY):
        return durations(values)
    return [NOTHING if value is None else _cell(name, value) for value in values]


def _cell(name: str, value: float) -> str:
    if name.endswith(_OF_MANY):
        return host_hours(value)
    return f"{value:,.0f}" if value == int(value) and not name.endswith("slowdown") else ratio(value)


def _held_out(found: Found) -> str:
    """A line for each point and aim: the gain where it was tuned, and where it was not."""
    head = ("HOSTS", "SETTINGS", "VERDICT", "KEEPS-LIMITS", "AIM", "TUNED", "HELD-OUT", "LEAST", "MOST", "BETTER-IN")
    rows: list[tuple[str, ...]] = []
    for hosts in found.sizes():
        for trial in found.judged(hosts):
            mine = gains(found, trial, hosts)
            first = (
                "" if hosts is None else f"{hosts:,}",
                name_of(found.space, trial.point),
                verdict(mine),
                _kept_worlds(found, trial),
            )
            for gain in mine:
                rows.append((*first, str(gain.aim), *_gain_cells(gain)))
                first = ("", "", "", "")
    worlds = ", ".join(found.bench.worlds)
    about = f"Held out: {worlds}.  Gains are against the experiment's own settings at the same size, in the same world."
    return f"{about}\n\n{render(head, rows, right=' '.join(('HOSTS', *head[5:])))}"


def _kept_worlds(found: Found, trial: Trial) -> str:
    """In how many worlds every limit holds."""
    held_out = found.held_out(trial)
    if not found.aims.limits:
        return NOTHING
    kept = sum(found.aims.kept(values, found.references.get(world, {})) for world, values in held_out.items())
    return f"{kept} of {len(held_out)}"


def _gain_cells(gain: Gain) -> list[str]:
    if gain.tuned is None or not gain.held_out:
        return [NOTHING] * 5
    values = gain.tuned, gain.mean, min(gain.held_out.values()), max(gain.held_out.values())
    numbers = [
        f"{100 * each:+.1f} %" if _in_parts(gain.aim) else f"{each:+,.2f}".removesuffix(".00") for each in values
    ]
    return [*numbers, f"{gain.better} of {len(gain.held_out)}"]


# ------------------------------------------------------------------------------------------------------------ for programs


def as_json(found: Found) -> str:
    """Every size with its front, and what became of it elsewhere."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "experiment": found.bench.name,
        "goals": [str(aim) for aim in found.aims.aims],
        "limits": [limit.asked for limit in found.aims.limits],
        "trials": len(found.trials),
        "chosen": found.about,
        "left_out": len(found.refused),
        "held_out": list(found.bench.worlds),
        "against": {world or "tuned": values for world, values in found.references.items()},
        "sizes": [_size(found, hosts) for hosts in found.sizes()],
        "notes": found.bench.notes,
    }
    return report.as_json(document)


def _size(found: Found, hosts: Any) -> Mapping[str, Any]:
    own = {world or "tuned": found.own_result(hosts, world) for world in ("", *found.bench.worlds)}
    judged = {trial.number for trial in found.judged(hosts)} if found.bench.worlds else set()
    return {
        "hosts": hosts,
        "trials": len(found.of_size(hosts)),
        "as_it_is": own,
        "front": [
            {
                "trial": trial.number,
                "settings": found.space.with_fixed(trial.point),
                "result": trial.result,
                **(_judged(found, trial, hosts) if trial.number in judged else {}),
            }
            for trial in found.front(hosts)
        ],
    }


def _judged(found: Found, trial: Trial, hosts: Any) -> Mapping[str, Any]:
    mine = gains(found, trial, hosts)
    return {
        "verdict": verdict(mine),
        "limits_kept_in": _kept_worlds(found, trial),
        "gains": [{"aim": str(g.aim), "tuned": g.tuned, "held_out": g.held_out, "verdict": g.verdict} for g in mine],
        "held_out": found.held_out(trial),
    }
