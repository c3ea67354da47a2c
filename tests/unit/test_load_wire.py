"""Where an answer ends: whole, piece by piece, and when it is none."""

from __future__ import annotations

import pytest

from phoenix.load.wire import Answer, WireError, request

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n"
AFTER_100 = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(("data", "status"), [(LENGTH, 200), (CHUNKS, 200), (AFTER_100, 503), (EMPTY, 204)])
def test_an_answer_ends_at_the_same_byte_however_it_comes(data: bytes, status: int) -> None:
    for at in range(len(data) + 1):
        answer = Answer()
        answer.feed(data[:at])
        assert answer.done is (at == len(data))
        answer.feed(data[at:])
        assert (answer.done, answer.status, answer.keep) == (True, status, True)
    answer = Answer()
    for byte in data:
        assert not answer.done
        answer.feed(bytes([byte]))
    assert answer.done


def test_what_ends_with_the_connection() -> None:
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert not answer.done
    assert answer.ended()
    assert not answer.keep
    for cut in (LENGTH[:-1], CHUNKS[:-1], b"HTTP/1.1 200", b""):
        answer = Answer()
        answer.feed(cut)
        assert not answer.ended()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n",
        LENGTH + b"HTTP/1.1 200 OK\r\n",
    ],
    ids=["old", "said so", "more than asked"],
)
def test_a_connection_that_is_not_used_again(data: bytes) -> None:
    answer = Answer()
    answer.feed(data)
    assert answer.done
    assert not answer.keep


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(WireError):
        Answer().feed(data)


def test_a_request_is_whole() -> None:
    assert request("GET", "h:1", "/a", b"xyz", close=False) == (
        b"GET /a HTTP/1.1\r\nHost: h:1\r\nUser-Agent: phoenix-load\r\nAccept: */*\r\n\r\n"
    )
    posted = request("POST", "h", "/", b"xyz", close=True)
    assert posted.endswith(
        b"Content-Length: 3\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\nxyz"
    )
