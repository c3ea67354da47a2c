"""What is made of the schemas of requests and queries is answered over NATS as they say, in a cloud of its own: the whole run.
Some of them run with the cloud of `tests/integration/test_answers.py`."""

from __future__ import annotations

import pytest

from schemas import queries
from schemas import requests as r
from tests.contracts import fuzz_run, nats_fuzz

STATUS = {
    "nats_url": "nats://h:1",
    "credentials": {"oscar": {"nkey": "/o.nk", "inbox_prefix": "_INBOX_operators.oscar"}},
}


def test_every_request_and_query_is_in_the_document() -> None:
    assert len(nats_fuzz.subjects()) == len(r.REQUESTS) + len(queries.QUERIES)
    assert nats_fuzz.meant().keys() == nats_fuzz.document()["paths"].keys()


@pytest.mark.parametrize(
    ("said", "shown"), [(" -d '{\"a\": 1}'", "'{\"a\": 1}'"), (" -d $'\\x10'", "$'\\x10'"), ("", "''")]
)
def test_a_failure_is_shown_as_a_line_for_nats(said: str, shown: str) -> None:
    curl = f"curl -X POST -H 'Content-Type: application/json'{said} http://127.0.0.1:9/phoenix.request.operators.oscar.host.drain"
    options = "--server nats://h:1 --nkey /o.nk --inbox-prefix _INBOX_operators.oscar"
    assert nats_fuzz.line(STATUS, curl) == f"nats request {options} phoenix.request.operators.oscar.host.drain {shown}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_request_made_from_the_schemas_is_answered_as_they_say() -> None:
    found = fuzz_run.nats(examples=5, seed=1)
    assert not found.failures, "\n\n".join(found.failures[:20])
    assert found.answers.keys() == {f"POST /{subject}" for subject in nats_fuzz.subjects()}
