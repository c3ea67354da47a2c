"""The Runtime API's client against a socket that says what it is told to: answers, errors, silence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from phoenix.haproxy import runtime_api
from phoenix.haproxy.reconciler import Command, Drain, Ready, Server, SetAddress
from phoenix.haproxy.runtime_api import GoneError, RefusedError, RuntimeApi

HERE = Server("web", "phoenix1", "health.map")
AWAY = SetAddress(("10.0.0.1", 80))


@asynccontextmanager
async def answering(directory: Path, answer: bytes | None) -> AsyncIterator[tuple[RuntimeApi, list[str]]]:
    """A socket that answers everything so (None: not at all), and what it has been asked."""
    asked: list[str] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        if answer is None:
            await over.wait()
        writer.write(answer or b"")
        writer.close()

    here = Path.cwd()
    os.chdir(directory)  # a server's name may be as short as it likes
    server = await asyncio.start_unix_server(serve, "s")
    os.chdir(here)
    try:
        yield RuntimeApi(directory / "s", "web", "phoenix", "health.map"), asked
    finally:
        over.set()
        server.close()


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (Drain(), b"\n"),
        (Ready(), b""),
        (
            AWAY,
            b"IP changed from '127.0.0.1' to '10.0.0.1', port changed from '1' to '80' by 'stats socket command'\n\n",
        ),
        (AWAY, b"no need to change the addr, no need to change the port by 'stats socket command'\n\n"),
    ],
)
async def test_a_command_is_done_when_nothing_is_said_against_it(
    tmp_path: Path, command: Command, answer: bytes
) -> None:
    async with answering(tmp_path, answer) as (api, asked):
        assert await api.tell("phoenix1", command) == command.text(HERE)
    assert asked == [command.text(HERE) + "\n"]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (Drain(), b"No such server.\n\n"),
        (Ready(), b"Permission denied\n\n"),
        (AWAY, b"Invalid addr '10.0.0.1' by 'stats socket command'\n\n"),
        (AWAY, b"Update for the current server address family is only supported through configuration file\n"),
        (Drain(), b"no need to change the addr\n"),
    ],
)
async def test_what_haproxy_says_else_is_told_with_the_command(tmp_path: Path, command: Command, answer: bytes) -> None:
    async with answering(tmp_path, answer) as (api, _):
        with pytest.raises(RefusedError) as error:
            await api.tell("phoenix1", command)
    assert str(error.value) == f"{command.text(HERE)}: {answer.decode().strip()}"


async def test_nobody_there_silence_and_endless_talk_are_one_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GoneError, match="No such file"):
        await RuntimeApi(tmp_path / "nowhere", "web", "phoenix", "health.map").ask("show info")
    monkeypatch.setattr(runtime_api, "DEADLINE_S", 0.05)
    async with answering(tmp_path, None) as (api, _):
        with pytest.raises(GoneError, match=r"no answer within 0\.05 s to 'show info'"):
            await api.ask("show info")
    monkeypatch.setattr(runtime_api, "DEADLINE_S", 5.0)
    monkeypatch.setattr(runtime_api, "ANSWER_MAX_BYTES", 1000)
    (tmp_path / "s").unlink(missing_ok=True)
    async with answering(tmp_path, b"x" * 1001) as (api, _):
        with pytest.raises(GoneError, match="more than 1000 bytes"):
            await api.ask("show info")


async def test_a_socket_in_a_deep_directory_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with answering(deep, b"here\n") as (api, _):
        assert await api.ask("show info") == "here\n"
