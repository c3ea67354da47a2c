"""What a guest sends of a stream: all of a job's up to its limit, the end of an instance's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phoenix.local.guest import output
from phoenix.local.guest.door import Door, new_session
from phoenix.local.guest.output import HOLE_SPARES_BYTES, HOLE_STEP_BYTES, LOG_BYTES_MAX, OutputStream
from tests.support.guest_door import GuestDoor, Life, token_of

ID = "cloud/web.1/1/0"


class Streams:
    """A program's stdout, and the door that hears of it."""

    def __init__(self, life: Life, door: Door, path: Path) -> None:
        self.life = life
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.log = OutputStream(door, "stdout", self.fd, endless=True)
        self.job = OutputStream(door, "stderr", self.fd)

    def write(self, data: bytes) -> None:
        assert os.write(self.fd, data) == len(data)


@pytest_asyncio.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    session = new_session()
    async with GuestDoor() as door:
        found = Streams(door.add("web.1"), Door(session, door.url, ID, token_of(ID)), tmp_path / "stdout")
        yield found
        os.close(found.fd)
        await session.close()


async def test_an_instances_stream_is_sent_as_it_comes(streams: Streams) -> None:
    streams.write(b"one\n")
    await streams.log.flush()
    streams.write(b"two\n")
    await streams.log.flush()
    await streams.log.flush()
    assert streams.life.text() == "one\ntwo\n"


async def test_of_more_than_a_mebibyte_at_once_the_end_is_sent_and_the_rest_told(streams: Streams) -> None:
    streams.write(b"first\n")
    await streams.log.flush()
    streams.write(b"x" * 1000 + b"y" * (LOG_BYTES_MAX - 5) + b"last\n")
    await streams.log.flush()
    streams.write(b"more\n")
    await streams.log.flush()
    told = f"\n[1000 bytes left out: more than {LOG_BYTES_MAX} at once]\n"
    assert streams.life.text() == f"first\n{told}{'y' * (LOG_BYTES_MAX - 5)}last\nmore\n"


async def test_a_flush_sends_what_there_was_when_it_began(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes faster than the door takes would keep it in there for ever."""
    monkeypatch.setattr(output, "PART_BYTES_MAX", 4)
    put = streams.log._door.put_output

    async def writes_on(stream: str, offset: int, data: bytes) -> None:
        await put(stream, offset, data)
        streams.write(b"more")

    monkeypatch.setattr(streams.log._door, "put_output", writes_on)
    streams.write(b"twowords")
    await streams.log.flush()
    assert streams.life.text() == "twowords"


async def test_what_the_door_has_takes_no_room(streams: Streams) -> None:
    for _ in range(3):
        streams.write(b"z" * HOLE_STEP_BYTES)
        await streams.log.flush()
    found = os.fstat(streams.fd)
    assert found.st_size == 3 * HOLE_STEP_BYTES == len(streams.life.text())
    assert found.st_blocks * 512 <= HOLE_STEP_BYTES + HOLE_SPARES_BYTES


async def test_a_jobs_stream_ends_at_its_limit(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "STREAM_BYTES_MAX", 10)
    streams.write(b"0123456789")
    await streams.job.flush()
    assert not streams.job.dropped
    streams.write(b"ab")
    await streams.job.flush()
    assert streams.job.dropped
    assert streams.job.why == "at most 10 bytes of a stream are kept"
    assert os.fstat(streams.fd).st_size == 0
    assert streams.life.text("stderr") == "0123456789"


async def test_a_limit_of_the_door_is_told_in_its_words(streams: Streams) -> None:
    told = "at most 4 bytes of a stream are kept (output_max_bytes)"
    streams.life.refuses["output/stderr"] = (413, told)
    streams.write(b"01234")
    await streams.job.flush()
    assert (streams.job.dropped, streams.job.why) == (True, told)
