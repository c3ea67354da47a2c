"""What must be so during a campaign and after it: of a cloud's processes, memory, logs and journal, and of its other users.

Rules
  1. Memory is what is resident of each process, once it has stopped changing.  What was granted is in the journal, and is
     remembered, up to bounds; what was refused leaves nothing.  So growth from round to round is held, over the second half of
     the rounds, against how much was said and how many messages the journal has more.
  2. A secret is looked for in every log, in the arguments of every process, and in all that the broker and the archive hold.
  3. The journal is folded from its first message on: all of it is readable, and what it leads to is sound.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import os
import time
from pathlib import Path
from typing import Any, Final

import aiohttp

from benchmarks.cloud import memory_mb, percentile
from services.domain.custody.check import check
from services.monitor.core.monitor import MonitorCore
from services.runtime import log
from services.runtime.broker.connect import connect, jetstream, service_key
from services.runtime.config.file import load
from services.runtime.journal.fold import Fold
from services.runtime.rebuild import replay
from tests.integration.up_cloud import Cloud
from tests.support.leaks import content

GROWS_MB: Final = 200.0  # since the first round: what folds remember of it
LEAKS_MB: Final = 3.0  # a round of 100,000 messages: 30 bytes of each …
# … and of a message of the journal: a job has about ten, with its objects, its VM, its history
REMEMBERED_MB: Final = 8 / 1024
FILES_MORE: Final = 64  # open files since the first round: those of connections that are kept
QUIET_MB, QUIET_S, SETTLES_S = 0.5, 3.0, 60.0
DONE_S: Final = 120.0
PAUSE_S: Final = 0.5
SCRIPT: Final = "#!/bin/sh\ntrue\n"
FOLD_S: Final = 600.0


class Processes:
    """`rounds`: what each had after each round, MiB."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._data = Path(status["data"])
        self.pids: dict[str, int] = {one["name"]: one["pid"] for one in status["processes"]}
        self.rounds: list[dict[str, float]] = []
        self.positions: list[int] = []
        self._files: dict[str, int] = {}

    async def problems(self, position: int) -> list[str]:
        """After a round.  `position`: the journal's end."""
        processes = Cloud(self._data).status()["processes"]
        found = [f"{one['name']} is not well: {one}" for one in processes if one.get("state", "ready") != "ready"]
        now = {one["name"]: one["pid"] for one in processes}
        found += [f"{name} has ended" for name, pid in self.pids.items() if now.get(name) != pid]
        self.pids = now
        self.rounds.append(await self._settled())
        files = {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in now.items()}
        self._files = self._files or files
        found += [
            f"{name} has {count} files open, {self._files.get(name, count)} after the first round"
            for name, count in files.items()
            if count - self._files.get(name, count) > FILES_MORE
        ]
        self.positions.append(position)
        return found + grown(self.rounds, self.positions)

    async def _settled(self) -> dict[str, float]:
        """Rule 1."""
        before, until = self._now(), time.monotonic() + SETTLES_S
        while time.monotonic() < until:
            await asyncio.sleep(QUIET_S)
            now = self._now()
            if all(abs(now[name] - before[name]) < QUIET_MB for name in now):
                break
            before = now
        return self._now()

    def _now(self) -> dict[str, float]:
        return {name: memory_mb(pid) for name, pid in self.pids.items()}


def grown(rounds: list[dict[str, float]], positions: list[int]) -> list[str]:
    """Rule 1.  With fewer than six rounds only the bound for all of them is judged."""
    found, half = [], len(rounds) // 2
    allowed = (len(rounds) - 1 - half) * LEAKS_MB + (positions[-1] - positions[half]) * REMEMBERED_MB
    for name, mb in rounds[-1].items():
        if mb - rounds[0].get(name, mb) > GROWS_MB:
            found.append(f"{name} has grown from {rounds[0][name]:.0f} to {mb:.0f} MiB")
        if len(rounds) >= 6 and mb - rounds[half].get(name, mb) > allowed:
            found.append(f"{name} grows in each round: {', '.join(f'{one.get(name, 0):.0f}' for one in rounds)} MiB")
    return found


class Victim:
    """Somebody of another department, who submits a job after another.  `took_s`: how long each was not answered."""

    def __init__(self, status: dict[str, Any], token: str) -> None:
        self._door, self._monitor = status["http_url"], status["monitor_url"]
        self._headers = {"Authorization": f"Bearer {token}"}
        self.jobs: list[str] = []
        self.took_s: list[float] = []
        self.refused: list[str] = []

    async def submit_forever(self) -> None:
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while True:
                began = time.monotonic()
                try:
                    async with session.post(f"{self._door}/v1/jobs", json={"script": SCRIPT}) as said:
                        told = await said.json()
                        self.took_s.append(time.monotonic() - began)
                        if said.status == 200:
                            self.jobs.append(told["job"])
                        else:
                            self.refused.append(f"{said.status} {told['detail']}")
                except aiohttp.ClientError as error:
                    self.refused.append(repr(error))
                await asyncio.sleep(PAUSE_S)

    async def problems(self) -> list[str]:
        """Which of its jobs are lost, and what it was refused."""
        states: dict[str, str] = {}
        async with aiohttp.ClientSession(headers=self._headers) as session:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DONE_S):
                    for job in self.jobs:
                        while states.get(job) != "completed":
                            async with session.get(f"{self._monitor}/v1/jobs/{job}") as said:
                                states[job] = (await said.json())["state"] if said.status == 200 else str(said.status)
                            await asyncio.sleep(0.0 if states[job] == "completed" else PAUSE_S)
        lost = [job for job in self.jobs if states.get(job) != "completed"]
        found = [f"job {job} of bio is {states.get(job)}" for job in lost]
        found += [f"bea of bio was refused: {one}" for one in self.refused[:5]]
        return found if self.jobs else [*found, "no job of bio was taken"]

    def told(self) -> str:
        p50, p99 = (1000 * percentile(self.took_s, share) for share in (0.5, 0.99))
        most = 1000 * max(self.took_s, default=0.0)
        return f"{len(self.jobs)} jobs of bio completed; answered in {p50:.0f} ms (p50), {p99:.0f} (p99), {most:.0f} at most"


# ------------------------------------------------------------------------------------------------------------------ secrets


def secrets_of(credentials: Path) -> dict[bytes, str]:
    """Tokens, keys and passwords, by the file that they are in."""
    found = {}
    for file in credentials.rglob("*"):
        if (
            file.is_file()
            and (word := file.read_bytes().strip().rpartition(b":")[2])
            and not file.name.endswith((".pub", ".json"))
        ):
            found[word] = file.name
    assert found
    return found


def told_secrets(data: Path) -> list[str]:
    """Rule 2."""
    secrets = secrets_of(data / "credentials")
    logs = [file for file in data.rglob("*.log*") if file.is_file()]
    kept = [file for name in ("nats", "archive") for file in (data / name).rglob("*") if file.is_file()]
    assert logs
    found = []
    for file in [*logs, *kept, *Path("/proc").glob("[0-9]*/cmdline")]:
        held = content(file)
        if file.suffix == ".segment":
            held = gzip.decompress(held)
        where = file.name if file.is_relative_to(data) else str(file)
        found += [f"{where} has the secret of {secrets[secret]}" for secret in secrets if secret in held]
    return sorted(found)


# ------------------------------------------------------------------------------------------------------------------ journal


async def folded(data: Path) -> Fold:
    """The whole journal of a running cloud."""
    config = load(data / "phoenix.toml")
    inbox, seed = service_key(config, "monitor")
    told = log.get_log()
    logging.getLogger("phoenix").setLevel(logging.WARNING)
    client = await connect(config.nats.url, name="campaign", inbox=inbox, log=told, seed_file=seed)
    try:
        async with asyncio.timeout(FOLD_S):
            return await replay(client, jetstream(client), None, MonitorCore, told, archive=config.journal.archive)
    finally:
        await client.close()


def unsound(fold: Fold, victims: list[str]) -> list[str]:
    """Rule 3; the jobs of `victims` have completed by the journal as well."""
    units = fold.custody.state.units
    found = check(fold.custody) + fold.core.check()
    kinds = (("garbage", fold.garbage), ("of an unknown kind", fold.unknown))
    found += [f"{count} messages of the journal are {what}" for what, count in kinds if count]
    ended = {job: units[job].final for job in victims if job in units}  # the newest 10,000 are known
    found += [f"job {job} of bio is {final} by the journal" for job, final in ended.items() if final != "completed"]
    voided = sum(fold.voided.values())
    print(f"  {fold.position} messages of the journal are folded; {voided} facts are void", flush=True)
    return found
