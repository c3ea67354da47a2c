"""The read model and the history made again: processor seconds, facts a second, size of files; and a start from a snapshot.

    python -m benchmarks.rebuild [--facts 1000000] [--users 200]

The journal of `benchmarks.accounting` (jobs of 200 users over 30 days on 100 hosts) lies in a real archive; it is read, folded
by the monitor's core, and folded with the history written, as `phoenix history rebuild` does but for the broker's part.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.accounting import messages
from benchmarks.cloud import table
from services.monitor.core.monitor import MonitorCore
from services.monitor.history.file import History
from services.monitor.history.retention import Kept, rows
from services.monitor.history.takeover import Recorder
from services.runtime.journal import snapshots
from services.runtime.journal.archive import SEGMENT_MAX, Archive
from services.runtime.journal.fold import Fold

JOURNAL = "bench"


def written(directory: Path, facts: int, users: int) -> Archive:
    archive, stream = Archive(directory, JOURNAL), messages(facts, users)
    while part := list(itertools.islice(stream, SEGMENT_MAX)):
        archive.append(part)
    return archive


def folded(archive: Archive, make: Any) -> Fold:
    fold = Fold(None, make)
    for message in archive.read():
        fold.feed(message)
    return fold


def with_history(archive: Archive, path: Path) -> tuple[Fold, History]:
    history = History(path, Kept.of(400, 4096))
    history.open(JOURNAL)
    fold = folded(archive, Recorder(history).make)
    history.commit()
    return fold, history


def taken(work: Any, *words: Any) -> tuple[Any, float]:
    """What came of it, and the seconds of processor that it took, its threads together: not what others on the machine do."""
    began = time.process_time()
    return work(*words), time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        archive, wrote_s = taken(written, Path(name) / "archive", args.facts, args.users)
        size = sum(path.stat().st_size for path in (Path(name) / "archive").iterdir())
        _, read_s = taken(archive.verify)
        fold, fold_s = taken(folded, archive, MonitorCore)
        snapshot, take_s = taken(lambda: snapshots.pack(snapshots.take("monitor", JOURNAL, fold)))
        _, load_s = taken(lambda: snapshots.restore(snapshots.unpack(snapshot), Fold(None, MonitorCore)))
        (_, history), all_s = taken(with_history, archive, Path(name) / "history.sqlite")
        count = rows(history.database)
        history.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        file = (Path(name) / "history.sqlite").stat().st_size
        told: list[list[object]] = [
            ["what", "processor seconds", "facts/s"],
            [f"write the archive: {archive.end} messages, {args.facts} facts, {size / 1e6:.1f} MB", wrote_s, ""],
            ["read and check the archive", read_s, args.facts / read_s],
            ["… and fold the read model", fold_s, args.facts / fold_s],
            ["… and write the history", all_s, args.facts / all_s],
            [f"take a snapshot, {len(snapshot) / 1e6:.1f} MB", take_s, ""],
            ["start from it instead", load_s, ""],
        ]
        table(told)
        print(f"history.sqlite: {file / 1e6:.1f} MB, {count} rows, {file / count:.0f} bytes a row")


if __name__ == "__main__":
    main()
