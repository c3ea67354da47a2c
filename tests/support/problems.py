"""What every answer with an error has in common, whatever has refused it (`schemas.problems`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from schemas import problems
from schemas.problems import KINDS, Problem


def checked(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """The problem of an HTTP answer, whose parts agree with one another."""
    kind = headers["Content-Type"].partition(";")[0]
    assert kind in (problems.JSON, problems.MSGPACK)
    decode = msgspec.json.decode if kind == problems.JSON else msgspec.msgpack.decode
    assert not {"ok", "error", "message"} & decode(body).keys(), "there is one form"
    found = decode(body, type=Problem)
    assert (found.status, found.type, found.title) == (status, problems.URN + found.code, KINDS[found.code].title)
    assert (
        status in (KINDS[found.code].status, *(other for other, _ in KINDS[found.code].others))
        or found.code == "invalid"
    )
    assert found.detail
    assert (found.retry_after_s is not None) is (status in (429, 503))
    told = headers.get("Retry-After")
    assert (told is not None) is (status in (429, 503))
    assert told is None or int(told) == math.ceil(found.retry_after_s or 0) > 0
    assert (headers.get("WWW-Authenticate") == "Bearer") is (status == 401)
    assert ("Allow" in headers) is (status == 405)
    return found
