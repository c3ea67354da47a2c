"""`phoenix simulate intergrid --sweep`: for which external leases does the order of the paper's Table II hold?

Source: M. A. Salehi, A. N. Toosi and R. Buyya, Software: Practice and Experience 2013, section 5.  A point is four runs a seed,
one for each policy, on the paper's log.

Rules
  1. The order: the four inequalities of `rules.CLAIMS`; its size: MWT costs 1.86 times what MOV does.
  2. Also told: the three policies' overhead, wait and makespan; and that without preemption every local lease is rejected.
     What agrees: overhead within a fifth, wait within a tenth, makespan within a twentieth, on average less than one lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import LogJob, digest, mean
from phoenix_papers.intergrid import rules
from phoenix_papers.intergrid.rules import Workload
from phoenix_papers.study import Claim, Column, Row, Study, Told

EXTERNALS_MAX: Final = 1000  # of `Workload.externals`
RATIO: Final = rules.TABLE_II["mwt"][0] / rules.TABLE_II["mov"][0]
STATED: Final = {
    "externals": "the first 60 requests are stated",
    "locals": "the 13 leases of Table I are stated",
    "local_lengths": "the durations of Table I are stated",
    "suspend_mb_per_s": "40 MB/s are stated",
    "resume_mb_per_s": "40 MB/s are stated",
    "alpha": "0.31 is stated",
}
COLUMNS: Final = (
    *(Column(f"{policy.upper()}-OVERHEAD", f"{policy}_overhead_s") for policy in ("mwt", "mov", "cp")),
    *(Column(f"{policy.upper()}-WAIT", f"{policy}_wait_s") for policy in ("mwt", "mov", "cp")),
    Column("MAKESPAN", "mwt_makespan_s"),
)


def study(requests: tuple[LogJob, ...]) -> Study:
    order = [
        Claim(
            f"{name.upper()}:{left.upper()}≤{right.upper()}",
            f"{name}: {left} ≤ {right}",
            partial(_less, name, left, right),
        )
        for name, left, right in rules.CLAIMS
    ]
    ratio = Claim("1.86", "overhead: mwt ≥ 1.86 mov", lambda own: own["mwt_overhead_s"] - RATIO * own["mov_overhead_s"])
    return Study(
        name="intergrid",
        parameters=Workload,
        stated=STATED,
        measure=partial(measure, requests),
        columns=COLUMNS,
        claims=(*order, ratio),
        told=_told(),
        level=partial(_kept, len(order)),
        level_label="inequalities of the order that hold on average",
        inputs=digest(requests),
    )


def _less(name: str, left: str, right: str, own: Mapping[str, float]) -> float:
    return own[f"{right}_{name}_s"] - own[f"{left}_{name}_s"]


def _kept(count: int, row: Row) -> float:
    return float(sum(mean(each) >= 0 for each in row.differences[:count]))


def _told() -> tuple[Told, ...]:
    found = []
    for policy, figures in rules.TABLE_II.items():
        for name, figure, part in zip(("overhead", "wait", "makespan"), figures, (0.2, 0.1, 0.05), strict=True):
            text = f"{policy}: {name} {figure:,.0f} s"
            found.append(Told(text, f"{policy}_{name}_s", round((1 - part) * figure), round((1 + part) * figure)))
    return (*found, Told("no preemption: all 13 rejected", "none_on_time", 0, 0.999))


def measure(requests: tuple[LogJob, ...], point: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Of one seed: every policy."""
    given = msgspec.convert(point, Workload)
    found: dict[str, float] = {}
    for policy in rules.POLICIES:
        run = rules.made(requests, policy, given.alpha, seed, given)
        found |= {
            f"{policy}_overhead_s": run.overhead_s,
            f"{policy}_wait_s": run.mean_wait_s,
            f"{policy}_makespan_s": run.makespan_s,
            f"{policy}_on_time": float(run.local_on_time),
            f"{policy}_suspended": float(run.preemptions),
        }
    return found
