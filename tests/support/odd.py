"""Odd values for whatever a person may type, and a door that refuses what it is asked."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from schemas.problems import problem

TEXTS: Final = {
    "empty": "",
    "space": " ",
    "dash": "-",
    "NUL": "a\0b",
    "no UTF-8": "caf\udce9",
    "Greek": "Αθήνα",
    "wide": "日本語",
    "other digits": "٣²",
    "superscript": "²",
    "bidi": "a\u202eb",
    "newline": "a\nb",
    "CRLF": "x\r\ny",
    "huge": "9" * 5000,
    "twenty digits": "9" * 20,
    "exponent": "1e400",
    "huge memory": f"{'9' * 400}G",
    "negative": "-1",
    "zero": "0",
    "fraction": "0.5.5",
    "NaN": "nan",
    "infinite": "inf",
    "minus infinity": "-inf",
    "path": "../../nowhere/x",
    "a directory": "/",
    "foo": "foo",
    "formula": "%s%(prog)s{0}",
    "first day": "0001-01-01T00:00:00+23:59",
    "last day": "9999-12-31T23:59:59-23:59",
    "no address": "http://[",
    "a port too far": "http://h:99999/",
    "pairs": "=,=:;",
}
BYTES: Final = {
    "empty": b"",
    "NUL": b"\0\0",
    "no UTF-8": b"caf\xe9",
    "Greek": "Αθήνα\n".encode(),
    "CRLF": b"one\r\ntwo\r\n",
    "huge": b"x" * (1 << 20),
    "list": b"[1, 2]",
    "number": b"NaN",
    "object": b'{"a": {"b": []}, "users": 7}',
    "no gzip": b"\x1f\x8b\x08\0\0",
    "a table of numbers": b"requests\nnan\n1e999\n-1\n",
}
# What a program says to programmers: names of Python's types and errors, its own sentences, regular expressions.
NO_WORDS: Final = re.compile(
    r"Traceback|\w(Error|Exception)\b|NoneType|invalid \w+ value|Exceeds the limit|invalid literal|could not convert"
    r"|codec|surrogate|object at 0x|not supported between|out of range|embedded null|regular expression|\[a-z|\[0-9|\\[dwsZ]"
    r"|\b(int|float|str|dict|bool)\b"
)
REFUSAL: Final = msgspec.json.encode(problem("invalid", "refused, as everything is here", status=400))


@contextmanager
def refusing_door() -> Iterator[str]:
    """Its address.  It answers 400 to every call of the cloud's, and 200 to what is not one."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        thread = threading.Thread(target=_refuse, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _refuse(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                connection.sendall(_answer(_request(connection)))
            except OSError:
                continue


def _request(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]) and (more := connection.recv(65536)):
        body += more
    return head


def _answer(head: bytes) -> bytes:
    status, body = (b"400 Bad Request", REFUSAL) if b" /v1/" in head.split(b"\r\n")[0] else (b"200 OK", b"ok")
    return b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
