"""A run for people and for files: a table, CSV of the requests, JSON of the results."""

from __future__ import annotations

import csv
import io
import math
import sys
from pathlib import Path

import msgspec

from phoenix.cli import files, tables
from phoenix.load.calibrate import FIRST as LOWEST
from phoenix.load.record import Record, kind
from phoenix.load.results import Results, Spread

HEAD = ("due_s", "taken_s", "sent_s", "ended_s", "outcome", "status", "connection", "method")


def milliseconds(seconds: float | None) -> str:
    """For tables; what falls on a failure has no time."""
    if seconds is None:
        return "failed"
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def text(results: Results) -> str:
    """The table at the end of `phoenix load`."""
    failures = ", ".join(f"{count} {name}" for name, count in results.failures.items())
    whole = f"{results.seconds:.1f} s{', interrupted' if results.interrupted else ''}"
    rows = [
        ("requests", f"{results.requests:,} in {whole}"),
        ("answered", f"{results.answered:,}"),
        ("failed", f"{results.failed:,}{f' ({failures})' if failures else ''}"),
        ("latency", _spread(results.latency_s)),
    ]
    if results.failed and results.answered:
        rows.append(("of the answered", _spread(results.answered_latency_s)))
    return tables.pairs([*rows, *_own(results)])


def _spread(found: Spread) -> str:
    if found.max is None:
        return "-"
    named = (("p50", found.p50), ("p90", found.p90), ("p99", found.p99), ("p99.9", found.p999), ("max", found.max))
    return ", ".join(f"{name} {milliseconds(value)}" for name, value in named)


def _own(results: Results) -> list[tuple[str, str]]:
    own = results.generator
    rows = [
        ("sent late by", _spread(own.lag_s)),
        (
            "generator",
            f"{own.cpu_share:.0%} of a core; {own.connections_most} connections at once, {own.connections} in all",
        ),
    ]
    if own.ceiling is not None:
        # Nothing reached is no rate: the machine was too busy for the lowest one that is tried.
        reached = f"{own.ceiling:,.0f}/s" if own.ceiling else f"below {LOWEST:,.0f}/s, the lowest rate tried,"
        rows.append(("ceiling", f"{reached} against a server that does nothing; asked: {own.peak_rate:,.1f}/s"))
    verdict = "; ".join(own.bottleneck) or "no: latencies are the service's"
    return [*rows, ("bottleneck", f"yes: {verdict}" if own.bottleneck else verdict)]


def rows_csv(record: Record) -> str:
    """A line for each request that was due, in that order."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for row in record.rows():
        times = ("" if math.isnan(at) else f"{at:.6f}" for at in (row.due, row.taken, row.sent, row.ended))
        writer.writerow(
            (*times, kind(row), row.status or "", "fresh" if row.fresh else "kept", "POST" if row.post else "GET")
        )
    return out.getvalue()


def write_csv(record: Record, path: Path) -> None:
    """To standard output if that is meant.  OSError if it cannot be written."""
    if path == files.STDOUT:
        sys.stdout.write(rows_csv(record))
    else:
        path.write_text(rows_csv(record), encoding="utf-8")


def json(results: Results) -> bytes:
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"
