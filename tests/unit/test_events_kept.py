"""Events in memory: what load observations may push out, and that a gap is told, over HTTP and by the command line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
import pytest

from phoenix.cli import events as cli
from phoenix.cli.http import Client
from phoenix.client import Client as Library
from phoenix.client import Gone
from schemas import facts as f
from schemas.problems import problem
from services.monitor import events
from services.monitor.events import Entry, Publisher
from tests.support.page import CLOUD, House, adopted, bearer
from tests.unit.test_custody_rules import granted, job
from tests.unit.test_monitor_core import Desk


def load() -> tuple[str, f.LoadObserved]:
    return "scheduler.web", f.LoadObserved(dept="web", start=0.0, end=1.0, samples=1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(events, "RING_MAX", 4)
    monkeypatch.setattr(events, "LOADS_MAX", 3)
    return Desk().play(adopted(CLOUD))


def positions(found: list[Entry]) -> list[int]:
    return [entry.position for entry in found]


def test_an_idle_web_department_pushes_nothing_out(small: Desk) -> None:
    small.play(job("1"), *[load() for _ in range(10)], job("2"))
    kept = small.publisher.after(0, None)
    assert [entry.kind for entry in kept] == [
        "config.adopted",
        "job.submitted",
        *["load.observed"] * 3,
        "job.submitted",
    ]
    assert positions(kept) == [1, 2, 10, 11, 12, 13]
    assert small.publisher.complete_from("hpc", loads=True) == 0
    assert small.publisher.complete_from("web", loads=False) == 0
    assert small.publisher.complete_from("web", loads=True) == small.publisher.complete_from(None, loads=True) == 9
    assert positions(small.publisher.after(0, None, loads=False)) == [1, 2, 13]


def test_what_was_pushed_out_is_a_gap_of_those_whose_it_was(small: Desk) -> None:
    small.play(job("1"), job("2"), job("3"), *granted(), job("4"))
    publisher = small.publisher
    assert publisher.complete_from("web", loads=True) == 0
    lost = publisher.complete_from("hpc", loads=True)
    assert 0 < lost <= publisher.complete_from(None, loads=True) == publisher.ring[0].position - 1


def test_after_a_start_from_a_snapshot_what_was_not_read_back_is_a_gap() -> None:
    def made(*of: Entry, whole: bool) -> Publisher:
        publisher = Publisher(Desk().custody)
        publisher.resumed(100)
        publisher.prepend(list(of), whole=whole)
        return publisher

    older = [Entry(40, 1, "hpc", "k", b""), Entry(50, 0, "web", "load.observed", b""), Entry(60, 0, "hpc", "k", b"")]
    assert Publisher(Desk().custody).complete_from(None, loads=True) == 0
    assert made(whole=False).complete_from("hpc", loads=True) == 100
    assert made(*older, whole=False).complete_from("hpc", loads=True) == 40  # 40.0 may be missing
    assert made(*older, whole=True).complete_from("hpc", loads=True) == 0
    assert positions(made(*older, whole=True).after(0, None)) == [40, 50, 60]


async def test_a_gap_is_410_with_the_oldest_position(small: Desk, tmp_path: Any) -> None:
    house = House(tmp_path)
    await house.start()
    house.desk.play(*[job(str(n)) for n in range(2, 9)])
    oldest = house.desk.publisher.complete_from("hpc", loads=True)
    assert oldest > 1
    for path in (f"/v1/events?after={oldest - 1}", "/v1/events?after=0", "/v1/events?after=1&follow=1"):
        answer = await house.client.get(path, headers=bearer("alice"))
        error = orjson.loads(await answer.read())
        assert (answer.status, error["code"], error["field"], error["oldest"]) == (410, "gone", "after", oldest), path
    packed = await house.client.get("/v1/events?after=1", headers={**bearer("alice"), "Accept": "application/msgpack"})
    assert msgspec.msgpack.decode(await packed.read())["oldest"] == oldest
    kept = await house.client.get(f"/v1/events?after={oldest}", headers=bearer("alice"))
    lines = [orjson.loads(line) for line in (await kept.read()).splitlines()]
    assert [line["position"] for line in lines] == [e.position for e in house.desk.publisher.ring]
    assert (await house.client.get("/v1/events?limit=2", headers=bearer("alice"))).status == 200
    house.desk.play(*[load() for _ in range(9)])
    assert (await house.client.get("/v1/events?after=12", headers=bearer("wendy"))).status == 410
    told = await house.client.get("/v1/events?after=12&omit=load.observed", headers=bearer("wendy"))
    assert (told.status, await told.read()) == (200, b"")
    await house.close()


async def test_to_the_client_library_a_gap_is_gone_with_the_oldest_position(small: Desk, tmp_path: Any) -> None:
    house = House(tmp_path)
    await house.start()
    house.desk.play(*[job(str(n)) for n in range(2, 9)])
    oldest = house.desk.publisher.complete_from("hpc", loads=True)
    token = bearer("alice")["Authorization"].removeprefix("Bearer ")
    async with Library(str(house.client.make_url("")), token) as client:
        for follow in (True, False):
            with pytest.raises(Gone, match="not kept") as gone:
                await anext(client.events(after=oldest - 1, follow=follow))
            assert gone.value.oldest == oldest
            assert (await anext(client.events(after=oldest, follow=follow))).position > oldest
    await house.close()


@pytest.fixture
def door() -> Iterator[tuple[str, list[bytes]]]:
    """Answers 410 to whoever asks from before 7, else one event."""
    listener, asked = socket.create_server(("127.0.0.1", 0)), list[bytes]()
    gone = msgspec.json.encode(problem("gone", "after: gone", "after", oldest=7))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(4096).split(b" ")[1])
                late = b"after=7" in asked[-1]
                body = b'{"id":"8.0","position":8,"kind":"k"}\n' if late else gone
                status = b"200 OK" if late else b"410 Gone"
                connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_the_command_line_says_what_is_missing_and_goes_on(
    door: tuple[str, list[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, asked = door
    assert [event["position"] for event in cli.since(Client(url), 3, cli.Chosen())] == [8]
    assert next(cli.follow(Client(url), 3, cli.Chosen()))["position"] == 8
    assert capsys.readouterr().err.count("events after position 3 up to 7 are not kept any more") == 2
    assert len(asked) == 4
