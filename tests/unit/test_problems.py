"""Problems are one form on every door, and docs/reference/errors.md says what the table in the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from prometheus_client import CollectorRegistry

from phoenix.cli import errors, printing, queue
from phoenix.cli.__main__ import main
from phoenix.cli.errors import CliError
from schemas import problems, requests
from schemas.problems import KINDS, Code, LeaseRefusal, Problem, is_problem, problem, problem_in
from schemas.times import exact
from services.admission.answers import HttpError, errors_as_answers, gone
from services.admission.http.door import refuse_unknown
from services.admission.http.routes import ROUTES, Route
from services.admission.storage.payloads import TooLarge
from services.domain.refusal import Refused
from services.runtime.broker.reply import refusal
from services.runtime.http.answers import as_asked
from services.runtime.http.body import BodyRefused
from services.runtime.http.guard import Guard
from services.runtime.log import get_log
from services.runtime.metrics import MetricsListener
from tests.support.problems import checked

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def test_the_page_has_every_code_with_its_title_statuses_and_meaning() -> None:
    written = [line for line in PAGE.splitlines() if re.match(r"\| `\w+` \| [A-Z]", line)]
    statuses = {code: [kind.status, *(status for status, _ in kind.others)] for code, kind in KINDS.items()}
    assert written == [
        row(f"`{code}`", kind.title, ", ".join(map(str, statuses[code])), kind.means) for code, kind in KINDS.items()
    ]
    special = [line for line in PAGE.splitlines() if re.match(r"\| \d{3} \|", line)]
    assert special == [row(other, f"`{code}`", case) for code, kind in KINDS.items() for other, case in kind.others]


def test_the_page_names_every_field() -> None:
    written = re.findall(r"^\| `(\w+)` \| (?![A-Z])", PAGE, re.MULTILINE)
    assert sorted(written) == sorted(Problem.__struct_fields__)


def test_every_code_has_a_kind_and_no_status_has_two_codes() -> None:
    assert set(KINDS) == set(get_args(Code))
    statuses = [status for kind in KINDS.values() for status in (kind.status, *(other for other, _ in kind.others))]
    assert len(set(statuses)) == len(statuses)


@pytest.mark.parametrize("code", KINDS)
def test_a_problem_is_read_back_from_either_encoding_and_known_by_its_type(code: Code) -> None:
    lease = LeaseRefusal(at=exact(1.0), collides_with=("17",))
    made = problem(code, "no", "jobs[1]", lease=lease, oldest=7)
    assert (made.type, made.status) == (f"urn:phoenix:problem:{code}", KINDS[code].status)
    assert (made.retry_after_s is not None) is (made.status in (429, 503))
    data = msgspec.json.encode(made)
    assert is_problem(data)
    assert problem_in(data) == made
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Problem) == made


def test_what_does_not_apply_is_left_out() -> None:
    assert json.loads(msgspec.json.encode(problem("denied", "no"))).keys() == {
        "type",
        "title",
        "status",
        "detail",
        "code",
    }


def test_no_reply_to_a_request_has_a_field_that_makes_it_a_problem() -> None:
    assert [reply.__name__ for _, reply in requests.REQUESTS.values() if "type" in reply.__struct_fields__] == []
    assert problem_in(msgspec.json.encode(requests.Done())) is None


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        (Refused("limit", "too many"), 429),
        (Refused("limit", "too large", "script"), 413),
        (Refused("limit", "too large", "inputs"), 413),
        (Refused("limit", "too large", "config"), 413),
        (Refused("invalid", "no"), 422),
    ],
)
def test_the_status_of_a_refusal(refused: Refused, status: int) -> None:
    assert refused.problem().status == status
    assert refused.problem(400).status == 400
    again = Refused.of(refused.problem())
    assert (again.code, again.message, again.field) == (refused.code, refused.message, refused.field)


def test_a_query_that_is_refused_is_a_problem() -> None:
    assert problem_in(refusal("limit", "too large", status=413)) == problem("limit", "too large", status=413)


# ------------------------------------------------------------------------------------------------------------- parameters


def route(path: str) -> Route:
    return next(found for found in ROUTES if found.path == path)


@pytest.mark.parametrize(
    ("path", "query", "field", "told"),
    [
        ("/v1/jobs/{job}/output", "steam=stderr", "steam", "steam: there is no such parameter; did you mean stream?"),
        ("/v1/jobs/{job}/output", "stream=stderr&fro=1", "fro", "; known: stream, rank, attempt, offset, wait_s"),
        ("/v1/jobs", "departmet=hpc", "departmet", "; did you mean department?"),
        ("/v1/store", "department=hpc", "department", "there is no such parameter"),
        ("/healthz", "x", "x", "there is no such parameter"),
    ],
)
def test_a_parameter_that_an_address_does_not_have_is_refused_by_name(
    path: str, query: str, field: str, told: str
) -> None:
    with pytest.raises(HttpError) as caught:
        refuse_unknown(route(path), make_mocked_request("GET", f"{path}?{query}"))
    refused = caught.value.refused
    assert (caught.value.status, refused.code, refused.field) == (400, "invalid", field)
    assert told in refused.message


def test_a_parameter_that_an_address_has_is_taken() -> None:
    for found in ROUTES:
        query = "&".join(f"{parameter.name}=1" for parameter in found.query)
        refuse_unknown(found, make_mocked_request("GET", f"/x?{query}"))


# ----------------------------------------------------------------------------------------------------- what handlers raise


@pytest.mark.parametrize("kind", [problems.JSON, problems.MSGPACK])
@pytest.mark.parametrize(
    ("path", "raised", "status", "code"),
    [
        ("/x", Refused("conflict", "no"), 409, "conflict"),
        ("/x", Refused("unavailable", "no"), 503, "unavailable"),
        ("/x", HttpError(401, Refused("denied", "no")), 401, "denied"),
        ("/x", BodyRefused(413, "no"), 413, "limit"),
        ("/x", BodyRefused(408, "no"), 408, "limit"),
        ("/x", BodyRefused(400, "no"), 400, "invalid"),
        ("/v1/guest/1/1/0/output", BodyRefused(408, "no"), 503, "unavailable"),
        ("/v1/guest/1/1/0/output", BodyRefused(429, "no"), 503, "unavailable"),
        ("/x", TooLarge("no"), 413, "limit"),
        ("/x", TimeoutError(), 503, "unavailable"),
        ("/x", ValueError("a defect"), 500, "failed"),
        ("/x", web.HTTPNotFound(), 404, "unknown"),
    ],
)
async def test_whatever_a_handler_of_admission_raises_is_a_problem(
    path: str, raised: Exception, status: int, code: Code, kind: str
) -> None:
    async def fails(_request: web.Request) -> web.Response:
        raise raised

    app = web.Application(middlewares=[as_asked, errors_as_answers(get_log(service="test"))])
    app.router.add_get("/{tail:.*}", fails)
    async with TestClient(TestServer(app)) as client, client.get(path, headers={"Accept": kind}) as answer:
        found = checked(answer.status, answer.headers, await answer.read())
    assert (found.status, found.code, answer.content_type) == (status, code, kind)
    assert "a defect" not in found.detail


async def test_a_guest_whose_attempt_is_over_is_answered_by_a_problem() -> None:
    answer = gone()
    assert isinstance(answer.body, bytes)
    assert checked(answer.status, answer.headers, answer.body).code == "gone"


# -------------------------------------------------------------------------------------------------- a process's own /metrics


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nowhere", 404, problems.JSON),
        ("POST", "/metrics", 405, problems.JSON),
        ("GET", "/nowhere", 404, problems.MSGPACK),
    ],
)
async def test_the_listener_of_metrics_refuses_in_the_same_form(method: str, path: str, status: int, kind: str) -> None:
    listener = MetricsListener(CollectorRegistry(), dict, Guard(get_log(service="test")))
    port = await listener.start("127.0.0.1", 0)
    headers = {"Accept": kind}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
    ):
        found = checked(answer.status, answer.headers, await answer.read())
        assert (found.status, answer.content_type) == (status, kind)
    await listener.stop()


async def test_a_process_that_catches_up_says_when_to_ask_again() -> None:
    health: dict[str, object] = {"caught_up": False}
    listener = MetricsListener(CollectorRegistry(), lambda: health, Guard(get_log(service="test")))
    port = await listener.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert await answer.json() == health
    await listener.stop()


# ------------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`phoenix queue`, which ends with this error, after an answer if one is given."""

    def of(error: CliError, answer: object = None) -> None:
        def run(_args: object) -> int:
            if answer is not None:
                printing.json(answer)
            raise error

        monkeypatch.setattr(queue, "run", run)

    return of


@pytest.mark.parametrize(
    ("exit_code", "code"),
    [
        (errors.FAILED, "failed"),
        (errors.USAGE, "invalid"),
        (errors.UNREACHABLE, "unavailable"),
        (errors.DENIED, "denied"),
        (errors.UNKNOWN, "unanswered"),
    ],
)
def test_with_json_the_command_line_prints_its_own_failures_as_problems(
    exit_code: int, code: Code, fails: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(CliError(exit_code, "it is so", "do this"))
    assert main(["queue", "--json"]) == exit_code
    out, err = capsys.readouterr()
    assert msgspec.json.decode(out, type=Problem) == problem(code, "it is so")
    assert out.count("\n") == 1
    assert err.startswith("phoenix: it is so\n")
    assert main(["queue"]) == exit_code
    assert capsys.readouterr().out == ""


def test_with_json_a_problem_of_the_cloud_is_printed_as_it_is(fails: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cloudy = msgspec.to_builtins(problem("gone", "after: no", "after", oldest=7))
    fails(CliError(errors.FAILED, "other words", answer=cloudy))
    assert main(["queue", "--json"]) == errors.FAILED
    assert json.loads(capsys.readouterr().out) == cloudy


def test_an_outcome_that_is_unknown_is_not_what_the_last_answer_said(
    fails: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(CliError(errors.UNKNOWN, "no answer", answer=msgspec.to_builtins(problem("unavailable", "not now"))))
    assert main(["queue", "--json"]) == errors.UNKNOWN
    assert json.loads(capsys.readouterr().out)["code"] == "unanswered"


def test_nothing_follows_a_whole_answer(fails: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fails(CliError(errors.FAILED, "it is so"), {"jobs": []})
    assert main(["queue", "--json"]) == errors.FAILED
    assert json.loads(capsys.readouterr().out) == {"jobs": []}
    fails(CliError(errors.FAILED, "it is so"))
    assert main(["queue", "--json"]) == errors.FAILED
    assert json.loads(capsys.readouterr().out)["detail"] == "it is so"


def test_a_cloud_that_is_not_there_is_a_problem_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--json", "--data", str(tmp_path)]) == errors.UNREACHABLE
    assert json.loads(capsys.readouterr().out)["type"] == "urn:phoenix:problem:unavailable"


def test_a_simulation_that_fails_is_a_problem_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "/nowhere.toml", "--json"]) != errors.OK
    assert json.loads(capsys.readouterr().out)["type"].startswith(problems.URN)
