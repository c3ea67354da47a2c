"""What accounting costs the monitor: microseconds a fact, size of its state, time of an answer.

    python -m benchmarks.accounting [--facts 1000000] [--users 200]

The journal of `benchmarks.fold` (jobs placed, begun, reported on 100 hosts), made by many users and stretched over many days,
folded by the monitor's core with and without accounting; decoding and custody are in both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import msgspec

from benchmarks.cloud import table
from benchmarks.fold import day
from schemas import facts as f
from schemas.envelope import Envelope, encode
from schemas.subjects import journal
from services.domain.custody.meta import Meta
from services.monitor.core.monitor import MonitorCore
from services.monitor.views.usage import EVER, usage
from services.runtime.journal.fold import Fold, Stored

DAYS = 30
ASKED = 20


class Without(MonitorCore):
    """The read model as it would be without accounting."""

    def _fold(self, fact: f.Fact, meta: Meta) -> None:
        self.accounting.apply = _nothing  # type: ignore[method-assign, assignment]
        super()._fold(fact, meta)


def _nothing(_fact: f.Fact, _meta: Meta) -> None: ...


def messages(facts: int, users: int) -> Iterator[Stored]:
    began = 0.0
    for number, envelope in enumerate(day(facts), 1):
        began = began or envelope.at
        at = began + (envelope.at - began) * (DAYS * 86_400.0 / (facts / 100))
        content = tuple(_by(fact, users) for fact in envelope.facts)
        told = Envelope(id=envelope.id, writer=envelope.writer, epoch=1, at=at, facts=content)
        yield Stored(number, journal(envelope.writer), encode(told), at)


def _by(fact: f.Fact, users: int) -> f.Fact:
    if isinstance(fact, f.JobSubmitted):
        return msgspec.structs.replace(fact, user=f"u{int(fact.job) % users}")
    return fact


def folded(core: type[MonitorCore], facts: int, users: int) -> tuple[Fold, float]:
    """The fold after all messages, and the seconds that it took; making them is not counted."""
    fold, taken = Fold(None, core), 0.0
    batch: list[Stored] = []
    for message in messages(facts, users):
        batch.append(message)
        if len(batch) == 10_000:
            taken += _feed(fold, batch)
    return fold, taken + _feed(fold, batch)


def _feed(fold: Fold, batch: list[Stored]) -> float:
    began = time.perf_counter()
    for message in batch:
        fold.feed(message)
    batch.clear()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=200)
    args = parser.parse_args()
    _, without = folded(Without, args.facts, args.users)
    fold, taken = folded(MonitorCore, args.facts, args.users)
    core = fold.core
    assert isinstance(core, MonitorCore)
    state = core.accounting.state
    began = time.perf_counter()
    for _ in range(ASKED):
        answer = usage(core.accounting, "user", None, 0.0, EVER, fold.custody.state.at)
    asked = (time.perf_counter() - began) / ASKED
    us = 1e6 / args.facts
    table(
        [
            ["what", "value", "unit"],
            [f"{args.facts} facts, without accounting", without * us, "us a fact"],
            [f"{args.facts} facts, with accounting", taken * us, "us a fact"],
            ["accounting", (taken - without) * us, "us a fact"],
            ["its state", len(msgspec.msgpack.encode(state)) / 1e6, "MB"],
            ["… rows, buckets", state.book.rows, len(state.book.kept)],
            [f"an answer by user, {len(answer['rows'])} users over {DAYS} days", asked * 1000, "ms"],
        ]
    )


if __name__ == "__main__":
    main()
