"""What Schemathesis makes of the OpenAPI document is answered as it says, by a cloud of its own: hosts are drained there, jobs
cancelled, releases deployed.  A short run is with the cloud of `tests/integration/test_answers.py`; `make fuzz` runs longer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.contracts import fuzz_run
from tests.contracts.http_fuzz import MEANT, fuzz, is_meant

PROBLEM = {"type": "urn:phoenix:problem:invalid", "status": 422, "detail": "a: wrong", "field": "a"}
BODY = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
ANSWERS = {status: {"description": "x"} for status in ("200", "400", "401", "422", "503")}
SMALL: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "small", "version": "1"},
    "paths": {
        "/a": {
            "post": {
                "operationId": "a",
                "security": [{"bearer": []}],
                "requestBody": {"required": True, "content": {"application/json": {"schema": BODY}}},
                "responses": ANSWERS,
            }
        }
    },
    "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
}


class Wrong(BaseHTTPRequestHandler):
    """Answers everything with `status` and `body`, whatever was asked."""

    status, body, headers_sent = 200, b"{}", {"Content-Type": "application/json"}

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        for name, value in {**self.headers_sent, "Content-Length": str(len(self.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def wrong(request: pytest.FixtureRequest) -> Iterator[str]:
    status, body = request.param
    kind = type("Wrong", (Wrong,), {"status": status, "body": json.dumps(body).encode()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("wrong", "title"),
    [
        ((500, {}), "Server error"),
        ((503, {}), "503 without Retry-After"),
        ((418, {}), "Undocumented status code"),
        ((200, {}), "Schema-violating request accepted"),
        ((200, {}), "API accepts requests without authentication"),
        ((422, PROBLEM), "Schema-valid request rejected"),
        ((422, {**PROBLEM, "field": None}), "422 without `field`"),
    ],
    indirect=["wrong"],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else value,
)
def test_a_wrong_answer_is_reported_with_its_curl_line(wrong: str, title: str) -> None:
    found = fuzz(SMALL, wrong, {"bearer": "t"}, examples=5, phases=("fuzzing",))
    told = [one for one in found.failures if title in one]
    assert told, found.failures
    assert "curl -X POST" in told[0]
    assert f"{wrong}/a" in told[0]


def test_what_is_meant_is_of_paths_that_there_are() -> None:
    assert MEANT.keys() <= fuzz_run.document()["paths"].keys()
    assert is_meant(MEANT["/v1/jobs"], "array")
    assert not is_meant(MEANT["/v1/jobs"], "tasks_")
    assert not is_meant(MEANT["/v1/record"], "since")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_request_made_from_the_document_is_answered_as_it_says() -> None:
    found = fuzz_run.http(examples=5, seed=1)
    assert not found.failures, "\n\n".join(found.failures[:20])
    asked = {f"{method.upper()} {path}" for path, item in fuzz_run.document()["paths"].items() for method in item}
    assert found.answers.keys() == asked
    granted = {operation for operation, statuses in found.answers.items() if any(200 <= one < 300 for one in statuses)}
    assert len(granted) > len(asked) // 2, sorted(asked - granted)
