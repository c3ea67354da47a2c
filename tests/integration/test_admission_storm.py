"""A storm of changes that the limits permit does not fill the journal, however small it is: it is trimmed by bytes, in time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from schemas import facts as f
from schemas.subjects import JOURNAL_STREAM
from services.admission.commands.dispatcher import CHANGES_BURST
from services.monitor.history.archivist import Archivist
from tests.support.admission_house import House, house
from tests.support.shells import LOG

FILE_MAX_MB = 6  # 2.7 MB of journal, less than what is permitted here
JOBS = 100  # a snapshot of more has no room in so small a store
USERS = ("ann", "bob")


async def change(here: House, user: str, verb: str, jobs: list[str]) -> None:
    answer = await here.ask(user, f"job.{verb}", {"jobs": jobs})
    assert "type" not in answer, answer
    assert not any("error" in result for result in answer["results"])


async def storm(here: House, user: str) -> None:
    """As many holds and releases as are permitted at once, none of which is an array's."""
    jobs = [(await here.ask(user, "job.submit", {"script": "true"}))["job"] for _ in range(JOBS)]
    for turn in range(int(CHANGES_BURST) // JOBS):
        await change(here, user, ("hold", "release")[turn % 2], jobs)


async def test_a_storm_that_the_limits_permit_does_not_fill_the_journal(tmp_path: Path) -> None:
    async with house(tmp_path, file_max_mb=FILE_MAX_MB) as here:
        monitor = await here.client("service-monitor")
        js = monitor.jetstream()
        archivist = Archivist(monitor, js, tmp_path / "archive", 1_000_000, ("admission",), LOG)
        storms = asyncio.gather(*(storm(here, user) for user in USERS))
        most = written = 0
        while not storms.done():
            while await archivist.look() and archivist.hurries:
                pass
            info = await js.stream_info(JOURNAL_STREAM)
            most = max(most, info.state.bytes)
            await asyncio.sleep(0.05)
        await storms
        assert not here.service.journal_full
        assert here.service.room.refused == 0
        limit = info.config.max_bytes or 0
        assert most < 0.9 * limit
        held = sum(count for kind, count in here.service.fold.applied.items() if kind in (f.JobHeld, f.JobResumed))
        written = held * 45
        assert held == CHANGES_BURST * len(USERS)
        assert written > limit, "without trimming it would be full"
