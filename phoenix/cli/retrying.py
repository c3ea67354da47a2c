"""Asking for a change that carries a request id: again after a lost answer, within one time limit.

Rules
  1. The same request id is done once, so asking again cannot do it twice.
  2. All tries together end within `http.TIMEOUT_S`.  A door that was never reached is left after `PAUSES_S`; once a request
     has been sent and not answered it is asked for until the time is up, because admission may be starting again.
  3. A caller without an answer gets the request id, and how to ask again with it.
"""

from __future__ import annotations

import time
from typing import Any, Final

from phoenix.cli.errors import NOT_KNOWN, UNKNOWN, UNREACHABLE, CliError
from phoenix.cli.http import TIMEOUT_S, Client

PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)  # a restart of admission takes about a second


def ask_again(client: Client, path: str, request: dict[str, Any], within_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The answer to `request`, which has its id in ``request``.  CliError: `UNKNOWN` if it was sent and not answered."""
    until, tries, sent = time.monotonic() + within_s, 0, False
    while True:
        try:
            return dict(client.within(until - time.monotonic()).post(path, request))
        except CliError as error:
            if error.code not in (UNREACHABLE, UNKNOWN):
                raise
            sent = sent or error.code == UNKNOWN
            pause_s = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            if time.monotonic() + pause_s >= until or (tries == len(PAUSES_S) and not sent):
                raise _without_answer(error, str(request["request"]), sent) from error
        time.sleep(pause_s)
        tries += 1


def _without_answer(error: CliError, request: str, sent: bool) -> CliError:
    message = error.message if error.code == UNKNOWN or not sent else f"{error.message}; {NOT_KNOWN}"
    hint = f"request {request}: retry with --request {request} does it only once and reports the outcome"
    return CliError(UNKNOWN if sent else error.code, message, hint, error.answer)
