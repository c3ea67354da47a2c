"""The only way in which a service answers a request: never to a subject that the asker could have chosen freely.

A reply subject is the asker's choice.  Without this check `nats req --reply phoenix.journal.provisioner` would make a service
write into the journal with its own rights (PROTOCOL S10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from schemas import problems
from schemas.problems import Problem
from schemas.subjects import is_reply_allowed
from services.runtime import families_shell
from services.runtime.log import get_log, message_of

_HEADERS: Final = {  # by whether it is a problem, and JSON
    (False, True): {"Content-Type": "application/json"},
    (False, False): {"Content-Type": "application/msgpack"},
    (True, True): {"Content-Type": problems.JSON},
    (True, False): {"Content-Type": problems.MSGPACK},
}
ANSWER_TIMEOUT_S: Final = 2.0  # `publish` waits only while the outbound buffer is full

REPLIES_DROPPED: Final = families_shell.REPLIES_DROPPED.live(None)
_log = get_log()


async def answer(msg: Msg, department: str, payload: bytes, headers: Mapping[str, str] | None = None) -> bool:
    """Send `payload` to the asker, who belongs to `department`.  False if it was dropped: no reply subject, one outside the
    department's inbox, or no connection."""
    if not msg.reply:
        return False
    if not is_reply_allowed(msg.reply, department):
        REPLIES_DROPPED.labels("foreign").inc()
        _log.warning("reply subject refused", department=department, subject=msg.subject, reply=msg.reply[:200])
        return False
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await msg._client.publish(msg.reply, payload, headers=dict(headers) if headers else None)
    except (nats.errors.Error, OSError, TimeoutError) as error:
        REPLIES_DROPPED.labels("unsent").inc()
        _log.warning("answer not sent", department=department, subject=msg.subject, error=message_of(error))
        return False
    return True


async def answer_request(msg: Msg, department: str, message: msgspec.Struct, *, as_json: bool) -> bool:
    """As `answer`, a message of `schemas.requests`, among them problems."""
    payload = msgspec.json.encode(message) if as_json else msgspec.msgpack.encode(message)
    return await answer(msg, department, payload, _HEADERS[isinstance(message, Problem), as_json])


async def answer_query(msg: Msg, department: str, payload: bytes) -> bool:
    """As `answer`, JSON that is what was queried or a problem."""
    return await answer(msg, department, payload, _HEADERS[problems.is_problem(payload), True])


def refusal(code: problems.Code, detail: str, field: str | None = None, status: int | None = None) -> bytes:
    """The JSON answer to a query that is refused.  `status`: None for the usual one of `code`."""
    return msgspec.json.encode(problems.problem(code, detail, field, status=status))
