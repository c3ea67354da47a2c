"""Restart: time to fold 100,000 facts from the journal, with and without a snapshot; facts a second of the bare fold.

    python -m benchmarks.fold [--facts 100000]

A real nats-server holds the journal of a busy day (jobs submitted, placed, begun, reported; VMs allocated, started, ended);
the service is the provisioner's, started as a process would be.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from benchmarks.cloud import table
from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department
from schemas.envelope import Envelope, encode
from schemas.subjects import journal
from services.domain.custody.rules import RULES
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.journal import snapshots
from services.runtime.journal.fold import Fold, Stored
from services.scheduler.core.batch.core import BatchCore

HOSTS = 100


def day(facts: int) -> Iterator[Envelope]:
    """Envelopes with `facts` facts or a few more."""
    config = CloudConfig(name="bench", departments=(Department(name="hpc", kind="batch", batch=BatchPolicy()),))
    number = 0

    def envelope(writer: str, *content: f.Fact) -> Envelope:
        nonlocal number
        number += 1
        return Envelope(id=f"e{number}", writer=writer, epoch=1, at=1e9 + number / 100, facts=content)

    yield envelope("provisioner", f.ConfigAdopted(cloud="bench", custody_rules=RULES, config=config))
    for n in range(HOSTS):
        described = f.HostDescribed(host=f"h{n}", one_id=n, cores=8, memory_mb=16384)
        yield envelope("executor", described, f.HostCleared(host=f"h{n}"))
        yield envelope("provisioner", f.HostGranted(host=f"h{n}", dept="hpc"))
    written, job = 1 + 3 * HOSTS, 0
    while written < facts:
        job += 1
        yield from life(envelope, str(job), f"h{job % HOSTS}")
        written += 7


def life(envelope: object, job: str, host: str) -> Iterator[Envelope]:
    make = envelope
    assert callable(make)
    yield make("admission", f.JobSubmitted(job=job, dept="hpc", user="a", name="n", payload="p" * 64, walltime_s=60.0))
    yield make("scheduler.hpc", f.UnitPlaced(unit=job, attempt=1, hosts=(host,), cores=1, memory_mb=64))
    yield make("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=int(job), host=host))
    yield make("executor", f.VmStarted(unit=job, attempt=1, rank=0))
    yield make("admission", f.AttemptBegan(unit=job, attempt=1, addresses=(None,)))
    yield make("admission", f.AttemptReported(unit=job, attempt=1, exit=0))
    yield make("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="done"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=100_000)
    count = parser.parse_args().facts
    messages = [Stored(n, journal(e.writer), encode(e), e.at) for n, e in enumerate(day(count), 1)]
    rows: list[list[object]] = [["what", "seconds", "facts/s"]]
    for name, make in (("provisioner", ProvisionerCore), ("scheduler.hpc", lambda c: BatchCore(c, "hpc"))):
        fold = Fold(name, make)
        began = time.perf_counter()
        for message in messages:
            fold.feed(message)
        taken = time.perf_counter() - began
        rows.append([f"{name}: decode and fold {count} facts", taken, count / taken])
        began = time.perf_counter()
        snapshot = snapshots.take(name, "bench", fold)
        rows.append([f"{name}: take a snapshot", time.perf_counter() - began, ""])
        began = time.perf_counter()
        snapshots.restore(snapshot, Fold(name, make))
        rows.append([f"{name}: load it", time.perf_counter() - began, ""])
    table(rows)


if __name__ == "__main__":
    main()
