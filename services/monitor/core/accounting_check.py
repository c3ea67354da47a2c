"""Invariants of accounting: rows add up to departments, open attempts are those of custody, and what was used is judged."""

from __future__ import annotations

from services.monitor.core.accounting import Accounting
from services.monitor.core.buckets import department


def check(accounting: Accounting) -> list[str]:
    state, found = accounting.state, []
    for begin, bucket in [*state.book.kept.items(), *state.fresh.kept.items()]:
        rows: dict[str, int] = {}
        for name, row in bucket.rows.items():
            dept = department(name)
            rows[dept] = rows.get(dept, 0) + row.used
        found += [
            f"usage of {dept} at {begin} is {span.used} and its rows say {rows.get(dept, 0)}"
            for dept, span in bucket.spans.items()
            if span.used != rows.get(dept, 0)
        ]
    opened = {unit for units in accounting.custody.index.open.values() for unit in units}
    if opened != state.runs.keys():
        found.append(f"open attempts {sorted(opened)} are counted as {sorted(state.runs)}")
    return found + accounting.goodput.check(_used(accounting))


def _used(accounting: Accounting) -> dict[str, int]:
    """By department, of attempts that are over."""
    state = accounting.state
    found = state.book.used()
    for dept, amount in state.fresh.used().items():
        found[dept] = found.get(dept, 0) + amount
    for run in state.runs.values():
        dept = department(run.key)
        found[dept] = found.get(dept, 0) - run.settled
    return found
