"""A toy service on the real runtime: a core whose bytes tell every fold, and how to start it in a test or as a process.

python -m tests.support.toy --config FILE --instance ID      an admission that submits jobs as fast as it can, for ever
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from schemas.config import CloudConfig
from schemas.facts import Fact, JobCancelled, JobSubmitted, kind_of
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.refusal import Refused
from services.runtime import main
from services.runtime.config.tables import Config, Metrics, Nats, Runtime
from services.runtime.journal.fold import Fold
from services.runtime.service import Edge, Service


class ToyState(msgspec.Struct):
    count: int = 0
    chain: bytes = b""
    due: dict[str, float] = {}  # job -> when it is to be cancelled


class ToyCore:
    """Chains a hash over all facts; cancels every third job `delay_s` after it was submitted."""

    delay_s = 0.0

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.state = ToyState()

    def apply(self, fact: Fact, meta: Meta) -> None:
        told = f"{meta.position}.{meta.index} {meta.writer} {meta.at!r} {meta.void} {meta.broken} {kind_of(fact)}"
        self.state.chain = hashlib.sha256(self.state.chain + told.encode()).digest()
        self.state.count += 1
        if meta.void is None and isinstance(fact, JobSubmitted) and int(fact.job) % 3 == 0:
            self.state.due[fact.job] = meta.at + self.delay_s
        if isinstance(fact, JobCancelled):
            self.state.due.pop(fact.job, None)

    def decide(self, now: float) -> list[Fact]:
        return [JobCancelled(job=job, user="toy") for job, due in self.state.due.items() if due <= now]

    def wake_at(self) -> float:
        return min(self.state.due.values(), default=NEVER)

    def check(self) -> list[str]:
        return []

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=ToyState)


def job(number: int, *, payload: str = "p") -> JobSubmitted:
    return JobSubmitted(job=str(number), dept="hpc", user="ann", name="toy", payload=payload, walltime_s=60.0)


def next_job(custody: Custody) -> Callable[[float, object], list[Fact]]:
    """A proposal: the job after the last one, folded or drafted."""

    def compose(_now: float, drafted: object) -> list[Fact]:
        assert isinstance(drafted, list)
        return [job(custody.state.job_last + len(drafted) + 1)]

    return compose


def toy_config(
    url: str, directory: Path, *, lease_ttl_s: float = 1.0, snapshot_every: int = 5000, file_max_mb: int = 256
) -> Config:
    """A configuration for tests: no credentials, small streams, no metrics ports."""
    return Config(
        cloud=CloudConfig(name="toy", departments=()),
        nats=Nats(url=url, credentials_dir=directory / "none", store_dir=directory, file_max_mb=file_max_mb),
        metrics=Metrics(ports={}),
        runtime=Runtime(lease_ttl_s=lease_ttl_s, heartbeat_s=0.5, snapshot_every=snapshot_every),
    )


def state_digest(fold: Fold) -> str:
    return hashlib.sha256(fold.custody.dump() + fold.core.dump()).hexdigest()


class Submitter(Edge):
    """Submits one job after another, each when the last one is confirmed, and writes down what the live state was:
    ``<position> <digest>`` a line in `states`."""

    EVERY = 10  # a digest costs more than a hop

    def __init__(self, states: Path) -> None:
        self.service: Service | None = None
        self._states = states
        self._settled = 0

    def settled(self) -> None:
        self._settled += 1
        if self.service is not None and self._settled % self.EVERY == 0:
            with self._states.open("a", encoding="utf-8") as file:
                file.write(f"{self.service.position} {state_digest(self.service.fold)}\n")

    async def start(self, service: Service) -> None:
        self.service = service

    async def lead(self) -> None:
        assert self.service is not None
        self.service.spawn("submit", self._submit(self.service))

    async def _submit(self, service: Service) -> None:
        with contextlib.suppress(Refused):  # the orderly end has begun
            while True:
                await service.propose(next_job(service.custody))


def _build(config: Config, options: main.Options) -> Service:
    reaped = options.reaped
    return Service(
        "admission",
        ToyCore,
        config,
        edges=[Submitter(config.data_dir / "states")],
        instance=options.instance,
        reaped=reaped,
    )


if __name__ == "__main__":
    sys.exit(main.run("admission", _build))
