"""The command line's own HTTP client: whole answers, streams, answers that break off, refusals as sentences."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.json import encode

from phoenix.cli import cloud, sbatch
from phoenix.cli.__main__ import main
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client, Response, query, refusal
from phoenix.cli.signal import post_signal
from phoenix.client import where
from schemas import requests as r
from schemas.problems import problem


class Server:
    """Answers every connection with the same bytes; remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(65536)
                self.asked.append(asked)
                connection.sendall(self.answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def body(data: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def test_whole_answer_and_token(server: Server) -> None:
    server.answer = body(b'{"jobs":[]}')
    assert Client(server.url, "secret").get("/v1/queue", department="a b", state=None) == {"jobs": []}
    assert server.asked[0].startswith(b"GET /v1/queue?department=a%20b HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in server.asked[0]


def test_chunked_answer(server: Server) -> None:
    server.answer = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n3;x=y\r\n17}\r\n0\r\n\r\n'
    assert Client(server.url).get("/") == {"a": 17}


def test_lines_are_put_together_across_chunks(server: Server) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n4\r\nc\n\nd\r\n0\r\n\r\n"
    assert list(Client(server.url).lines("/v1/events")) == [b"a", b"bc", b"", b"d"]


def test_an_answer_that_breaks_off_is_an_error(server: Server) -> None:
    server.answer = b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"jobs":['
    with pytest.raises(CliError, match="broke off after 9 of 99 bytes") as caught:
        Client(server.url).get("/")
    assert caught.value.code == 3


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n\r\n"])
def test_what_is_no_http(server: Server, answer: bytes) -> None:
    server.answer = answer
    with pytest.raises(CliError) as caught:
        Client(server.url, "secret").get("/")
    assert caught.value.code == 3
    assert "secret" not in caught.value.message


REFUSALS = [
    (
        b"404 Not Found",
        encode(problem("unknown", "there is no job 9", "job")),
        2,
        "job: ?there|no job 9",
    ),
    (
        b"403 Forbidden",
        encode(problem("denied", "not yours")),
        4,
        "alice may not.*not yours",
    ),
    (
        b"422 Unprocessable",
        encode(problem("invalid", "at least 1", "tasks")),
        1,
        "tasks: at least 1",
    ),
    (
        b"503 Service Unavailable",
        encode(problem("unavailable", "no leader")),
        3,
        "no leader",
    ),
    (b"413 Too Large", b"<html>too large</html>", 1, "too large"),
    (b"500 Oops", b"", 1, "HTTP status 500"),
]


@pytest.mark.parametrize(("status", "told", "code", "message"), REFUSALS)
def test_refusals(server: Server, status: bytes, told: bytes, code: int, message: str) -> None:
    server.answer = body(told, status)
    with pytest.raises(CliError, match=message) as caught:
        Client(server.url, user="alice").post("/v1/jobs", {})
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("instances", "raise its claim_max_user"),
        ("user", "name the user in its balancers"),
        ("department", "--as USER"),
    ],
)
def test_a_signal_that_the_configuration_refuses_has_its_own_remedy(server: Server, field: str, hint: str) -> None:
    server.answer = body(encode(problem("denied", "no", field)), b"403 Forbidden")
    with pytest.raises(CliError) as caught:
        post_signal(Client(server.url, user="wim"), "/v1/signals/web/claim", {})
    assert hint in caught.value.hint
    assert (caught.value.code, caught.value.message) == (4, "wim may not do this: no")


@pytest.mark.parametrize(
    ("field", "message", "told"),
    [
        ("walltime_s", "walltime_s: 9 s is more than hpc allows", "--time: 9 s is more than hpc allows"),
        ("memory_mb", "memory_mb: a whole number from 0 to 9 is wanted", "--mem: a whole number from 0 to 9 is wanted"),
        ("cpus_per_task", "cpus_per_task: no host has 9 cores", "--cpus-per-task: no host has 9 cores"),
        ("name", "name must not hold control characters", "--job-name: name must not hold control characters"),
        ("inputs[1].name", "a relative path is wanted", "--input b=/x: a relative path is wanted"),
        ("keep[0]", "a relative path is wanted", "--keep ../x: a relative path is wanted"),
        ("keep[7]", "no", "--keep: no"),
        ("script", "is too large", "script: is too large"),
        ("", "no", "no"),
    ],
)
def test_a_refused_job_is_told_in_the_words_that_asked_for_it(field: str, message: str, told: str) -> None:
    given = sbatch.directives_parser().parse_args(["--input", "a", "--input", "b=/x", "--keep", "../x"])
    refused = refusal(Response(400, {}, encode(problem("invalid", message, field))))
    assert str(sbatch.in_options(refused, given)) == told
    assert sbatch.in_options(refused, given).code == refused.code


@pytest.mark.parametrize(
    ("words", "field", "told"),
    [
        (["scale", "web", "4"], "minimum", "N: no"),
        (["scale", "web", "--exact", "4"], "exact", "--exact: no"),
        (["deploy", "web", "--health-path", "x y"], "health_path", "--health-path: no"),
        (["signal", "web", "--claim", "4"], "instances", "--claim: no"),
    ],
)
def test_what_is_wrong_with_a_web_department_s_request_is_told_by_option(
    words: list[str], field: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def post(_client: Client, _path: str, _payload: object) -> None:
        raise refusal(Response(400, {}, encode(problem("invalid", f"{field}: no", field))))

    site = cloud.Cloud(where.Site("http://127.0.0.1:1", kinds={"hpc": "batch", "web": "web"}), chosen="")
    monkeypatch.setattr(cloud, "find", lambda _args: site)
    monkeypatch.setattr(Client, "post", post)
    monkeypatch.setattr(cloud.Cloud, "_client", lambda _self, _default: Client("http://127.0.0.1:1"))
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"phoenix: {told}")
    words[1] = "hpc"
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("phoenix: hpc is a batch department")


def test_what_the_address_names_is_named_by_the_sentence() -> None:
    wrong = "3 is an array: name an element, for example 3_1"
    assert str(refusal(Response(400, {}, encode(problem("invalid", wrong, "id"))))) == wrong


def test_an_address_that_is_none_is_a_mistyped_value() -> None:
    for wrong in ("site.example:80", "ftp://x", "http://:80", "http://x:port"):
        with pytest.raises(CliError, match="no address") as caught:
            Client(wrong)
        assert (caught.value.code, caught.value.hint) == (2, "write http://HOST:PORT")


def test_query_leaves_out_what_was_not_said() -> None:
    assert query("/p", a=None, b="", c=0, d="x&y=1") == "/p?c=0&d=x%26y%3D1"


def test_a_number_that_no_message_can_hold_is_said_before_anything_is_sent() -> None:
    with pytest.raises(CliError, match="64-bit") as caught:
        Client("http://127.0.0.1:1").post("/v1/leases", {"nodes": 10**20})
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"nodes": r.NODES_MAX + 1}, f"nodes: a whole number from 1 to {r.NODES_MAX} is wanted"),
        ({"memory_mb": -1}, f"memory_mb: a whole number from 0 to {r.MEMORY_MAX_MB} is wanted"),
        ({"walltime_s": 0}, "walltime_s: a number of more than 0 and at most 315360000 is wanted"),
        ({"name": "n" * 129}, "name: text of 1 to 128 characters is wanted"),
        ({"tasks": "four"}, "tasks: a whole number is wanted, not text"),
    ],
)
def test_what_is_out_of_range_is_told_in_plain_words(given: dict[str, object], told: str) -> None:
    with pytest.raises(r.Malformed) as caught:
        r.decode("job.submit", msgspec.json.encode({"script": "x"} | given), True)
    found = refusal(Response(400, {}, encode(problem("invalid", caught.value.message, caught.value.field))))
    assert (str(found), found.code) == (told, 2)
