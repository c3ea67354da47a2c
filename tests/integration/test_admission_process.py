"""Admission as a process: it starts from its file, ends in order, and a standby takes over its address."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from services.runtime.config.text import dump_toml
from tests.support.admission_house import House, house
from tests.support.until import until

ENDS_S = 30.0


async def start(here: House, instance: str, *more: str) -> asyncio.subprocess.Process:
    file = here.broker.directory / "phoenix.toml"
    file.write_text(dump_toml(here.broker.config))
    arguments = ["-m", "services.admission", "--config", str(file), "--instance", instance, *more]
    log = (here.broker.directory / f"{instance}.log").open("wb")
    with log:
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=log)


async def test_a_standby_takes_over_the_address_and_the_requests(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.doors.port = int(here.broker.config.http.listen.rpartition(":")[2])
        job = (await here.ask("ann", "job.submit", {"script": "x", "request": "r"}))["job"]
        standby = await start(here, "a2")
        try:
            await until(lambda: _logged(here, "a2", "caught up"), "a2 has caught up", ENDS_S)
            assert not await _logged(here, "a2", "listening")
            assert await here.running.stop() == 0  # the leader in this process ends in order
            await until(lambda: _logged(here, "a2", "listening"), "a2 has opened its doors", ENDS_S)
            async with here.session.get(f"{here.url}/healthz") as answer:
                assert answer.status == 204
            again = await here.ask("ann", "job.submit", {"script": "x", "request": "r"})
            assert again["job"] == job
            fresh = await here.ask("ann", "job.submit", {"script": "y"})
            assert int(fresh["job"]) == int(job) + 1
        finally:
            standby.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(standby.wait(), ENDS_S) == 0


async def _logged(here: House, instance: str, event: str) -> bool:
    return event in (here.broker.directory / f"{instance}.log").read_text()
