"""Everybody tries everything: what the server lets each credential say and hear is what the documents promise, and no more.

The promises are those of `tests/support/promises.py`, which repeats the documents and not the code that grants.  Each line goes
over the wire to a real server; what it refuses it names in an error.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from services.runtime.broker import credentials
from tests.integration.nats_process import NatsProcess
from tests.support.promises import CLOUD, PROMISES, covers, subjects
from tests.support.wire import Wire, pub

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE: Final = 200
CASES_MIN: Final = 18_000
SUBJECTS: Final = subjects()
PUBLISHED: Final = [subject for subject in SUBJECTS if not {"*", ">"} & set(subject.split("."))]
_DENIED: Final = re.compile(rb"""-ERR 'Permissions Violation for (Publish|Subscription) to "([^"]*)"'""")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsProcess]:
    process = NatsProcess(tmp_path_factory.mktemp("nats"), CLOUD)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


def expected(credential: str) -> set[tuple[str, str]]:
    """What is to be denied."""
    promise = PROMISES[credential]
    published = {("Publish", s) for s in PUBLISHED if not any(covers(p, s) for p in promise.publish)}
    heard = {("Subscription", s) for s in SUBJECTS if not any(covers(p, s) for p in promise.subscribe)}
    return published | heard


async def denied(wire: Wire) -> set[tuple[str, str]]:
    lines = [pub(subject.encode(), b"") for subject in PUBLISHED]
    lines += [f"SUB {subject} {n}\r\nUNSUB {n}\r\n".encode() for n, subject in enumerate(SUBJECTS, 1)]
    for first in range(0, len(lines), AT_ONCE):
        await wire.say(b"".join(lines[first : first + AT_ONCE]))
        assert await wire.settled(), wire.errors[-1:]
    found = [_DENIED.match(line) for line in wire.errors]
    assert None not in found, [line for line, match in zip(wire.errors, found, strict=True) if match is None][:5]
    return {(match[1].decode(), match[2].decode()) for match in found if match is not None}


@pytest.mark.parametrize("credential", PROMISES)
async def test_a_credential_may_what_is_promised_and_nothing_else(matrix: NatsProcess, credential: str) -> None:
    wire = await Wire.open(matrix.config.nats.url, credentials.seed_file(matrix.config, credential))
    found, wanted = await denied(wire), expected(credential)
    wire.close()
    assert sorted(wanted - found) == [], "allowed, though it is not promised"
    assert sorted(found - wanted) == [], "denied, though it is promised"


async def test_there_is_a_promise_for_each_credential_and_each_promise_is_tried(matrix: NatsProcess) -> None:
    assert set(PROMISES) == set(credentials.public_keys(matrix.config))
    assert (len(PUBLISHED) + len(SUBJECTS)) * len(PROMISES) >= CASES_MIN
    for credential, promise in PROMISES.items():
        untried = [p for p in promise.publish if not any(covers(p, subject) for subject in PUBLISHED)]
        untried += [p for p in promise.subscribe if not any(covers(p, subject) for subject in SUBJECTS)]
        assert untried == [], credential
