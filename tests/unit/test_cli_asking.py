"""Changes are asked for within one time limit: again after a lost answer; one that never comes is said to be unknown."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from phoenix.cli import cloud
from phoenix.cli.__main__ import main
from phoenix.cli.errors import UNKNOWN, UNREACHABLE, CliError
from phoenix.cli.http import Client
from phoenix.cli.retrying import ask_again
from phoenix.client import retries, where

BODY = b'{"job":"7"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
SHORT_S = 0.3
Answer = Callable[[socket.socket], None]


@contextmanager
def door(*answers: Answer) -> Iterator[tuple[str, list[bytes]]]:
    """Answers its connections in turn, and leaves whoever comes later without an answer, as a stopped process does."""
    asked: list[bytes] = []
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                asked.append(connection.recv(65536))
                kept.append(connection)
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(5)
    for connection in kept:
        connection.close()


def closes(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def answers(connection: socket.socket) -> None:
    connection.sendall(OK)


def test_a_lost_answer_is_asked_for_again_with_the_same_request() -> None:
    with door(closes, answers) as (url, asked):
        assert ask_again(Client(url), "/v1/jobs", {"request": "r1"}) == {"job": "7"}
    assert [b'"request":"r1"' in each for each in asked] == [True, True]


def busy(retry_after_s: float) -> Answer:
    body = b'{"type":"x","status":503,"detail":"later","code":"unavailable","retry_after_s":%g}' % retry_after_s
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body)
    return lambda connection: connection.sendall(head + body)


def test_the_pause_that_the_cloud_asks_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("phoenix.cli.retrying.time.sleep", pauses.append)
    with door(busy(7.5), busy(0.0), answers) as (url, _):
        assert ask_again(Client(url), "/v1/jobs", {"request": "r1"}) == {"job": "7"}
    assert pauses == [7.5, retries.PAUSES_S[1]]


def test_one_that_is_longer_than_the_time_ends_it() -> None:
    with door(busy(3600.0)) as (url, asked), pytest.raises(CliError, match="later") as caught:
        ask_again(Client(url), "/v1/jobs", {"request": "r1"})
    assert (caught.value.code, len(asked)) == (UNREACHABLE, 1)


def test_a_change_without_an_id_may_be_asked_for_again() -> None:
    with door(closes, answers) as (url, asked):
        assert ask_again(Client(url), "/v1/jobs/7/cancel", {"jobs": ["7"]}) == {"job": "7"}
    assert len(asked) == 2
    with door(closes) as (url, _), pytest.raises(CliError) as caught:
        ask_again(Client(url), "/v1/jobs/7/cancel", {"jobs": ["7"]}, within_s=SHORT_S)
    assert caught.value.code == UNKNOWN
    assert caught.value.hint == "the same command again is safe, and reports the outcome"


def test_a_door_that_hangs_is_left_in_time_and_the_request_is_named() -> None:
    with door() as (url, _), pytest.raises(CliError) as caught:
        ask_again(Client(url), "/v1/jobs", {"request": "r1"}, within_s=SHORT_S)
    assert caught.value.code == UNKNOWN
    assert "the outcome is unknown" in caught.value.message
    assert "--request r1" in caught.value.hint


def test_a_lost_answer_counts_also_if_the_door_hangs_then() -> None:
    with door(closes) as (url, _), pytest.raises(CliError) as caught:
        ask_again(Client(url), "/v1/jobs", {"request": "r1"}, within_s=SHORT_S)
    assert caught.value.code == UNKNOWN


def test_a_door_that_was_never_reached_is_no_unknown_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(CliError) as caught:
        ask_again(Client(url), "/v1/jobs", {"request": "r1"}, within_s=SHORT_S)
    assert caught.value.code == UNREACHABLE


def test_a_door_that_was_never_reached_is_left_soon_and_one_that_was_is_asked_until_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "PAUSES_S", (0.01, 0.01))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(CliError) as caught:
        ask_again(Client(url), "/v1/jobs", {"request": "r1"}, within_s=1e6)
    assert caught.value.code == UNREACHABLE
    with door(*[closes] * 5, answers) as (url, asked):
        assert ask_again(Client(url), "/v1/jobs", {"request": "r1"}) == {"job": "7"}
    assert len(asked) == 6


@pytest.mark.parametrize(("method", "code"), [("GET", UNREACHABLE), ("POST", UNKNOWN)])
def test_only_a_change_without_an_answer_is_unknown(method: str, code: int) -> None:
    with door() as (url, _), pytest.raises(CliError) as caught:
        Client(url).within(SHORT_S).fetch(method, "/v1/jobs", b"{}" if method == "POST" else None)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["scale", "web", "4"], True),
        (["scale", "web", "--auto", "--request", "mine"], True),
        (["cancel", "7"], False),
        (["hold", "7", "8"], False),
        (["release", "7"], False),
        (["lease", "cancel", "7"], False),
    ],
)
def test_commands_that_change_repeat_the_same_request(
    words: list[str], named: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with door(closes, answers) as (url, asked):
        site = cloud.Cloud(where.Site(url, kinds={"web": "web"}), chosen="")
        monkeypatch.setattr(cloud, "find", lambda _args: site)
        monkeypatch.setattr(cloud.Cloud, "_client", lambda _self, _default: Client(url))
        assert main(words) == 0, capsys.readouterr().err
    bodies = [json.loads(each.partition(b"\r\n\r\n")[2]) for each in asked]
    assert bodies[0] == bodies[1]
    assert bool(bodies[0].get("request")) == named
    if "mine" in words:
        assert bodies[0]["request"] == "mine"
