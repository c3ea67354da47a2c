"""Asking for a change that is done once, however often it arrives: again after a lost answer, within one time limit.

Rules
  1. A change with a request id is done once.  One that asks for a state (cancel, hold, release) needs none.
  2. When it is repeated, and after which pause, is the client library's rule (`phoenix.client.retries`); all tries together end
     within `http.TIMEOUT_S`.  A cloud that cannot do it now says when it can (`retry_after_s`).
  3. A caller without an answer gets the request id, and how to ask again with it.
"""

from __future__ import annotations

import time
from typing import Any

from phoenix.cli.errors import NOT_KNOWN, UNKNOWN, UNREACHABLE, CliError
from phoenix.cli.http import TIMEOUT_S, Client
from phoenix.client.retries import Failure, Plan, Repeat


def ask_again(client: Client, path: str, request: dict[str, Any], within_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The answer to `request`, with its id in ``request`` if it has one.  CliError: `UNKNOWN` if it was sent and not
    answered."""
    until, plan = time.monotonic() + within_s, Plan(Repeat.SAFE)
    while True:
        try:
            return dict(client.within(until - time.monotonic()).post(path, request))
        except CliError as error:
            if error.code not in (UNREACHABLE, UNKNOWN):
                raise
            failure = Failure.UNANSWERED if error.code == UNKNOWN else Failure.UNSENT
            pause_s = plan.pause_s(failure, until - time.monotonic(), _asked_for_s(error))
            if pause_s is None:
                raise _without_answer(error, str(request.get("request", "")), plan.unanswered) from error
        time.sleep(pause_s)


def _without_answer(error: CliError, request: str, sent: bool) -> CliError:
    message = error.message if error.code == UNKNOWN or not sent else f"{error.message}; {NOT_KNOWN}"
    hint = f"request {request}: retry with --request {request} does it only once and reports the outcome"
    if not request:
        hint = "the same command again is safe, and reports the outcome"
    return CliError(UNKNOWN if sent else error.code, message, hint, error.answer)


def _asked_for_s(error: CliError) -> float | None:
    """The pause that the cloud asks for."""
    found = (error.answer or {}).get("retry_after_s")
    return float(found) if isinstance(found, int | float) else None
