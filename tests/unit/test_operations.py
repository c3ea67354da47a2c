"""Names and groups of the calls of OpenAPI."""

from __future__ import annotations

import json

import pytest

from services.admission.http import openapi
from services.admission.http.operations import GROUPS, group, operation_id

DOCUMENT = json.loads(openapi.document())
CALLS = [(path, call) for path, of in DOCUMENT["paths"].items() for call in of.values()]


@pytest.mark.parametrize(
    ("method", "path", "kind", "name", "of"),
    [
        ("POST", "/v1/jobs", "job.submit", "submit_job", "jobs"),
        ("GET", "/v1/jobs", "", "get_jobs", "jobs"),
        ("GET", "/v1/jobs/{job}", "", "get_job", "jobs"),
        ("GET", "/v1/jobs/{job}/files/{name}", "", "get_job_file", "jobs"),
        ("GET", "/v1/departments/{department}/instances", "instance.list", "get_department_instances", "departments"),
        ("GET", "/v1/story/{entity}", "", "get_story", "why"),
        ("GET", "/v1/guest/{unit}/{attempt}/{rank}/inputs/{name}", "", "get_guest_input", "guest"),
        ("GET", "/openapi.json", "", "get_openapi_json", "about"),
    ],
)
def test_a_call_is_named_by_its_request_or_by_its_path(method: str, path: str, kind: str, name: str, of: str) -> None:
    assert (operation_id(method, path, kind), group(path)) == (name, of)


def test_every_call_has_a_name_of_its_own_and_one_group() -> None:
    names = [call["operationId"] for _, call in CALLS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.islower() for name in names)
    assert {tag for _, call in CALLS for tag in call["tags"]} == set(GROUPS)
    assert all(call["tags"] == [group(path)] for path, call in CALLS)
    assert [tag["name"] for tag in DOCUMENT["tags"]] == list(GROUPS)
