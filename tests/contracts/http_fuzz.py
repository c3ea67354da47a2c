"""Schemathesis over the whole OpenAPI document: what it makes of each operation is sent to a running cloud, and every answer is
compared with the document.

Checks, of every answer
  1. No 5xx but 503, and 503 and 429 with `Retry-After`.
  2. Status, content type and body are in the document; of JSON lines, each line.
  3. Data that the document does not allow is refused; data that it allows is not refused for its form, with 400 or 422.  What
     no schema can express is in `MEANT`.
  4. Without a token, or with a wrong one, nothing is granted; a method that a path does not have is 405, with `Allow`.

Every failure has the request as a curl line, which can be pasted.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import jsonschema_rs
import requests
import schemathesis
from schemathesis.checks import CheckContext
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.generation.case import Case
from schemathesis.hooks import HookContext

from schemas.between_fields import ALL_OF
from schemas.reads import JSON_LINES

STREAM_S: Final = 0.3  # of a stream, which never ends by itself
ANSWER_S: Final = 60.0
LINES: Final = 50  # of an answer that are compared
PHASES: Final = ("examples", "coverage", "fuzzing")
ACCEPTED: Final = ["2xx", "401", "403", "404", "409", "410", "413", "429", "503"]  # of data that is allowed
REJECTED: Final = ["400", "401", "403", "404", "405", "409", "410", "413", "422", "429", "503"]  # of data that is not
EXPECTED: Final = ["2xx", "3xx", "4xx", "503"]

# Path -> fields of refusals (400, 422) of data that the document allows: what no JSON Schema can say.
_LIST: Final = "a list of its own notation: docs/reference/commands.md"
_KIND: Final = "of which kind a department is, the configuration says"
_RUNS: Final = {
    "department": _KIND,
    "environment": "how long all arguments and variables are together",
    "inputs": "names that are there twice; content that is too large",
    "array": _LIST,
    "after": _LIST,
    "constraint": _LIST,
    "quality|service|gpus.*|memory.*|nodes|tasks|cores|cpus_per_task|walltime_s|grace_s|on_reclaim|signal": "the configuration",
    "exclusive|best_effort|short|priority|retries|keep.*": "the configuration",
}
MEANT: Final[dict[str, dict[str, str]]] = {
    "/v1/jobs": {**_RUNS, "after": "a page's `next`, and no other text"},
    "/v1/whatif": _RUNS,
    "/v1/leases": {**_RUNS, "start_at|deadline_at|duration_s": "which of two times is later, or than now"},
    "/v1/leases/{lease}/extend": {"lease": "which jobs are leases", "until_at|by_s": "which time is later"},
    "/v1/leases/{lease}/cancel": {"lease": "which jobs are leases"},
    "/v1/departments/{department}/scale": {"department": _KIND, "minimum|exact": "the configuration's maximum"},
    "/v1/departments/{department}/releases": {
        "department": _KIND,
        "secrets|environment": "what is in both; secrets that there are",
        "undo": "whether there is a release before",
        "max_unavailable|max_surge": "one of them is above 0, with what the configuration has",
    },
    "/v1/departments/{department}/instances": {"department": _KIND},
    "/v1/departments/{department}/instances/{unit}/report": {"department": _KIND, "unit": "whose instance it is"},
    "/v1/signals/{department}/{name}": {
        "department": _KIND,
        "at": "how old it is",
        ".*": "which of the bodies the name needs",
    },
    "/v1/jobs/{job}/output": {"job": "an array, whose elements have output"},
    "/v1/jobs/{job}/files": {"job": "an array, whose elements have files"},
    "/v1/jobs/{job}/files/{name}": {"job": "an array, whose elements have files"},
    "/v1/events": {"limit": "a stream has none"},
    "/v1/record": {"until": "which time is later"},
    "/v1/billable": {"day": "at which times days begin, and which are over"},
    "/v1/session": {"": "a token or a code, one of them"},
    **{
        f"/v1/guest/{{unit}}/{{attempt}}/{{rank}}/{call}": {"unit": "whether it is a job or an instance"}
        for call in ("ended", "usage", "used", "files/{name}")
    },
    "/v1/guest/{unit}/{attempt}/{rank}/checkpoint": {
        "name": "whether a path stays below the job's directory",
        "progress": "its pattern has halves of pairs, which the validator of Schemathesis does not read",
    },
    "/v1/guest/{unit}/{attempt}/{rank}/output/{stream}": {"offset": "how much came before"},
    "/v1/guest/{unit}/{attempt}/{rank}/launch": {
        "tasks": "how many cores the job has",
        "argv|environment": "their length",
    },
}
UNNAMED: Final = "a field is not known"  # whose name could be none, and is not repeated
_MEANT: Final = "x-meant"  # in the document, for the hook
WHOLE: Final = "a whole number is wanted, not a fraction or an exponent"  # JSON Schema takes 2.0 for one


class Outcome:
    """`answers`: of each operation, how often each status came; `failures`: what is wrong, each once, with its curl line,
    or what `line` makes of that."""

    def __init__(self, line: Callable[[str], str] = str) -> None:
        self._line = line
        self.answers: dict[str, Counter[int]] = {}
        self.failures: list[str] = []
        self._known: set[tuple[str, ...]] = set()

    def count(self) -> int:
        return sum(sum(of.values()) for of in self.answers.values())

    def join(self, other: Outcome) -> None:
        self.failures += other.failures
        for operation, statuses in other.answers.items():
            self.answers.setdefault(operation, Counter()).update(statuses)

    def add(self, event: events.ScenarioFinished) -> None:
        recorder = event.recorder
        counted = self.answers.setdefault(recorder.label, Counter())
        counted.update(i.response.status_code for i in recorder.interactions.values() if i.response is not None)
        for case, checks in recorder.checks.items():
            for check in checks:
                if check.failure_info is not None:
                    answer = recorder.interactions[case].response if case in recorder.interactions else None
                    self._failed(recorder.label, check.failure_info.failure, check.failure_info.code_sample, answer)

    def _failed(self, operation: str, failure: Failure, curl: str, answer: Response | None) -> None:
        told = "no answer" if answer is None else f"{answer.status_code} {answer.text[:600]}"
        key = (operation, failure.title, failure.message[:200], re.sub(r"'[^']*'|\d+", "", told[:200]))
        if key not in self._known:
            self._known.add(key)
            self.failures.append(
                f"{operation}: {failure.title}\n{failure.message[:1000]}\n    {self._line(curl)}\n    -> {told}"
            )


def fuzz(
    document: dict[str, Any],
    url: str,
    tokens: Mapping[str, str],
    *,
    examples: int,
    phases: tuple[str, ...] = PHASES,
    seed: int = 1,
    known: Mapping[str, list[Any]] | None = None,
    only: str = "",
    meant: Mapping[str, Mapping[str, str]] = MEANT,
    line: Callable[[str], str] = str,
) -> Outcome:
    """`tokens`: by security scheme of the document; without any, requests have none.  `known`: name of a path parameter ->
    values that there are, of which most requests have one, and all if it is the only one.  `only`: a regular expression of
    paths.  `meant`: as `MEANT`; `line`: what is shown of a curl line."""
    config = _config(url, tokens, examples, phases, seed, known or {})
    schema = schemathesis.openapi.from_dict({**_whole(document), _MEANT: meant}, config=config)
    found = Outcome(line)
    for event in from_schema(schema.include(path_regex=only) if only else schema).execute():
        if isinstance(event, events.ScenarioFinished):
            found.add(event)
        elif isinstance(event, events.NonFatalError):
            found.failures.append(f"{event.label}: {event.info.title}: {event.info.message[-2000:]}")
        elif isinstance(event, events.FatalError):
            raise event.exception
    return found


def _whole(node: Any) -> Any:
    """The document with what holds between the properties of a request where JSON Schema has it."""
    if isinstance(node, dict):
        return {"allOf" if name == ALL_OF else name: _whole(value) for name, value in node.items()}
    return [_whole(one) for one in node] if isinstance(node, list) else node


def _config(
    url: str,
    tokens: Mapping[str, str],
    examples: int,
    phases: tuple[str, ...],
    seed: int,
    known: Mapping[str, list[Any]],
) -> SchemathesisConfig:
    named = {name: {"values": values} for name, values in known.items() if len(values) > 1}
    pinned = {f"path.{name}": values[0] for name, values in known.items() if len(values) == 1}
    return SchemathesisConfig.from_dict({
        "base-url": url,
        "seed": seed,
        "continue-on-failure": True,
        "request-timeout": ANSWER_S,
        "max-stream-events": 1,
        "auth": {"openapi": {scheme: {"bearer": token} for scheme, token in tokens.items()}} if tokens else {},
        "output": {"sanitization": {"enabled": False}, "truncation": {"enabled": False}},
        "generation": {
            "max-examples": examples,
            "deterministic": seed == 1,
            "no-shrink": False,
            "database": "none",
        },
        "analysis": {"constants": {"enabled": False}},
        "cache": {"enabled": False},
        "warnings": False,
        "phases": {name: {"enabled": name in phases} for name in (*PHASES, "stateful")},
        "checks": {
            "not_a_server_error": {"expected-statuses": EXPECTED},
            "positive_data_acceptance": {"expected-statuses": ACCEPTED},
            "negative_data_rejection": {"expected-statuses": REJECTED},
        },
        "dictionaries": named,
        "parameters": {f"path.{name}": {"dictionary": name, "probability": 0.8} for name in named} | pinned,
    })  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- what is checked


@schemathesis.check
def comes_with_retry_after(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    if response.status_code in (429, 503):
        (after,) = response.headers.get("retry-after", ["none"])
        assert after.isdecimal(), f"{response.status_code} without Retry-After"
    return None


@schemathesis.check
def each_line_conforms(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    if not response.headers.get("content-type", [""])[0].startswith(JSON_LINES):
        return None
    document = case.operation.schema.raw_schema
    content = document["paths"][case.operation.path]["get"]["responses"]["200"]["content"][JSON_LINES]
    lines = content["schema"].get("contentSchema", {}).get("items", {})
    check = jsonschema_rs.Draft202012Validator({**lines, "components": document["components"]})
    for line in response.content.splitlines()[:LINES]:
        wrong = [error.message for error in check.iter_errors(json.loads(line))] if line else []
        assert not wrong, f"{line[:500]!r}: {wrong[0]}"
    return None


@schemathesis.check
def invalid_names_its_field(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    if response.status_code == 422 and isinstance(case.body, dict):
        problem = response.json()
        assert problem.get("field") or problem["detail"] == UNNAMED, "422 without `field`"
    return None


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case, response: Response) -> bool:
    """False drops it: what `MEANT` has, and frames of a stream, for which OpenAPI 3.1 has no schema."""
    if type(failure).__name__ == "RejectedPositiveData" and response.status_code in (400, 422):
        problem = response.json()
        fields = case.operation.schema.raw_schema[_MEANT].get(case.operation.path, {})
        return WHOLE not in problem["detail"] and not is_meant(fields, problem.get("field") or "")
    return not failure.title.startswith("SSE event")


def is_meant(fields: Iterable[str], field: str) -> bool:
    """Whether data of the right form may be refused for this field."""
    return any(re.fullmatch(one, field) for one in fields)


# --------------------------------------------------------------------------------------------------------------------- streams


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """A stream of JSON lines ends after a while."""
    kwargs["hooks"] = {"response": _cut}


def _cut(answer: requests.Response, **_: Any) -> None:
    if answer.headers.get("Content-Type", "").startswith(JSON_LINES):
        timer = threading.Timer(STREAM_S, answer.raw.shutdown)
        timer.start()
        answer._content = b"".join(_parts(answer))
        answer._content_consumed = True
        timer.cancel()
        answer.close()


def _parts(answer: requests.Response) -> Iterator[bytes]:
    """What comes until the connection ends or is cut."""
    try:
        while part := answer.raw.read1(1 << 16, decode_content=True):
            yield part
    except Exception:
        return
