"""The load generator on real sockets: nothing it does not send, nothing it does not count, nothing that a stall can hide."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from phoenix.load import calibrate
from phoenix.load import generator as module
from phoenix.load.curve import LoadError, constant, plan
from phoenix.load.generator import Generator
from phoenix.load.record import Outcome, Record
from phoenix.load.results import sum_up
from phoenix.load.target import Target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Serve = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[Target]:
    """`serve` gets each request's head and answers as it likes."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"Content-Length: 3" in head:
                    await reader.readexactly(3)
                await serve(head, writer)
        writer.close()

    listener = await asyncio.start_server(client, "127.0.0.1", 0, backlog=256)
    try:
        port = listener.sockets[0].getsockname()[1]
        yield Target("127.0.0.1", port, f"127.0.0.1:{port}", "/")
    finally:
        listener.close()


async def play(target: Target, rate: float, seconds: float, **options: float) -> Record:
    shares = {name: options.pop(name) for name in ("fresh_share", "post_share") if name in options}
    what = plan(constant(rate, seconds), seed=1, paced=True, **shares)
    most = int(options.pop("connections_max", 128))
    return await Generator(
        target, what, body=b"xyz", timeout_s=options.get("timeout_s", 5.0), connections_max=most
    ).run()


async def test_a_stall_delays_everything_that_was_due_in_it() -> None:
    """The server says nothing until the 100th request has come; then it answers all at once.  An open loop sends on."""
    waiting: list[asyncio.StreamWriter] = []

    async def stall(_head: bytes, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)
        if len(waiting) >= 100:
            for each in waiting:
                each.write(OK)
            waiting[:] = [writer] * 100  # from here on each is answered at once
            waiting.pop()

    async with server(stall) as target:
        record = await play(target, 200.0, 0.5, connections_max=100)
    assert list(record.outcomes) == [Outcome.ANSWERED] * 100
    last = record.plan.due[-1]
    assert all(ended >= last for ended in record.ended)
    found = sum_up(record, 1.0)
    assert found.latency_s.p50 is not None
    assert found.latency_s.p50 >= last - record.plan.due[50]
    assert found.latency_s.p99 is not None
    assert found.latency_s.p99 >= last - record.plan.due[1]


async def test_every_end_of_a_request_has_its_name() -> None:
    async def each(head: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(head)
        match len(seen):
            case 1:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            case 2:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut")
                writer.close()
            case 3:
                writer.write(b"SMTP\r\n\r\n")
            case 4:
                pass  # never
            case _:
                writer.write(OK)

    seen: list[bytes] = []
    async with server(each) as target:
        record = await play(target, 10.0, 0.6, timeout_s=2.0)  # longer than a busy machine stalls
    assert [Outcome(one).name for one in record.outcomes] == [
        "STATUS", "CLOSED", "MALFORMED", "TIMEOUT", "ANSWERED", "ANSWERED",
    ]  # fmt: skip
    assert list(record.statuses) == [404, 200, 0, 0, 200, 200]
    refused = await play(target, 10.0, 0.2)  # no process listens there any more
    assert set(refused.outcomes) == {Outcome.REFUSED}


async def test_who_is_taken_up_late_has_no_more_time_for_it() -> None:
    """The generator stands still when the second request is due, and longer than that may take: its time is over when it is
    sent, though its answer would come soon after."""

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        if not seen:
            time.sleep(0.6)  # noqa: ASYNC251  # generator and server share this loop
        seen.append(1)
        await asyncio.sleep(0.3)
        writer.write(OK)

    seen: list[int] = []
    async with server(answer) as target:
        record = await play(target, 10.0, 0.2, timeout_s=0.4)
    assert record.taken[1] > record.plan.due[1] + 0.4
    assert Outcome(record.outcomes[1]) is Outcome.TIMEOUT


async def test_a_connection_that_was_idle_for_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be closing it at that moment, and the failure would not be the service's."""
    monkeypatch.setattr(module, "IDLE_S", 0.0)

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async with server(answer) as target:
        record = await play(target, 100.0, 0.1)
    assert set(record.outcomes) == {Outcome.ANSWERED}
    assert record.connections == len(record.outcomes)


async def test_more_than_it_may_open_is_counted_as_not_sent() -> None:
    async def silent(_head: bytes, _writer: asyncio.StreamWriter) -> None:
        return

    async with server(silent) as target:
        record = await play(target, 100.0, 0.2, connections_max=5, timeout_s=2.0)
    assert record.outcomes.count(Outcome.TIMEOUT) == 5
    assert record.outcomes.count(Outcome.NOT_SENT) == 15
    assert record.connections_most == 5
    assert record.statuses.count(0) == 20


def test_more_connections_than_files_is_refused_before_the_run() -> None:
    """Else the generator's own lack would be reported as the service's refusal."""
    with pytest.raises(LoadError, match="ulimit -n"):
        Generator(
            Target("127.0.0.1", 1, "h", "/"), plan(constant(1.0, 1.0), seed=1), timeout_s=1.0, connections_max=1 << 40
        )


async def test_kept_and_fresh_connections_and_posts() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append((head.startswith(b"POST"), b"Connection: close" in head))
        writer.write(OK)

    heads: list[tuple[bool, bool]] = []
    async with server(answer) as target:
        record = await play(target, 100.0, 1.0, post_share=0.5, fresh_share=0.3)
    assert set(record.outcomes) == {Outcome.ANSWERED}
    assert sorted(heads) == sorted((row.post, row.fresh) for row in record.rows())
    fresh = sum(1 for row in record.rows() if row.fresh)
    assert 0 < fresh < record.connections < 100


async def test_the_command_is_interrupted_and_still_tells(tmp_path: Path) -> None:
    """The server never answers; the command is interrupted when two requests have come."""

    async def hold(_head: bytes, _writer: asyncio.StreamWriter) -> None:
        arrived.release()

    arrived = asyncio.Semaphore(0)
    rows = tmp_path / "rows.csv"
    async with server(hold) as target:
        words = (
            target.host,
            "--rate",
            "50",
            "--for",
            "1h",
            "--paced",
            "--timeout",
            "0.5s",
            "--json",
            "--csv",
            str(rows),
        )
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "phoenix.cli", "load", *words, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2):
            await arrived.acquire()
        command.send_signal(signal.SIGINT)
        told, _ = await command.communicate()
    assert command.returncode == 1
    found = json.loads(told)
    assert found["interrupted"]
    assert found["failures"] == {"timeout": found["requests"]}
    assert len(rows.read_text().splitlines()) == 1 + found["requests"]


async def test_what_is_under_way_at_the_end_is_abandoned_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(_head: bytes, _writer: asyncio.StreamWriter) -> None:
        generator.stop()

    monkeypatch.setattr(module, "FINISH_S", 0.1)
    async with server(stop) as target:
        generator = Generator(target, plan(constant(5.0, 3600.0), seed=1, paced=True), timeout_s=60.0)
        record = await generator.run()
    assert record.interrupted
    assert [row.outcome for row in record.rows()] == [Outcome.ABANDONED]


async def test_the_ceiling_is_found_against_a_server_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "LAST", calibrate.FIRST)
    monkeypatch.setattr(calibrate, "RUN_S", 0.2)
    assert await calibrate.ceiling() in (0.0, calibrate.FIRST)  # 0: this machine had no time just now
