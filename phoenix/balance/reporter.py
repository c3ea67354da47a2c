"""What a load balancer reports of instances: drained, unready, ready (`instance.report`).

Rules
  1. A report is a level: the last report of an attempt is what counts, and is repeated until admission has answered.
  2. A door that is away, or full, is asked again; one that refuses has its reason, which is logged: the attempt is over, or it
     does not drain.  Repeating it would change nothing.
     But for one thing: admission may learn of `instance.draining` a moment later than the events report it.  So `drained` that
     is refused since "it does not drain" is repeated, `TRIES_MAX` times.
  3. The same is not reported twice of an attempt, unless something else was reported in between; another reason is, after
     `REWORD_S`: what a health check answers may change each time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import nats.errors
from nats.aio.client import Client

from phoenix.balance.account import Account
from schemas import subjects
from schemas.control_characters import HIDDEN
from schemas.problems import URN
from services.runtime.log import get_log

DEADLINE_S: Final = 2.0
RETRY_S: Final = 0.5
TRIES_MAX: Final = 10  # a door that is five seconds behind has other troubles
REWORD_S: Final = 10.0
SAID_MAX: Final = 10_000  # attempts whose last report is remembered
WHY_MAX: Final = 200

State = Literal["drained", "unready", "ready"]
_log = get_log()


@dataclass(frozen=True, slots=True)
class Report:
    unit: str
    attempt: int
    state: State
    why: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """Done, or a problem: then it has a `type` (`schemas.problems`)."""

    type: str = ""
    code: str = ""
    field: str | None = None
    detail: str = ""


_answers: Final = msgspec.json.Decoder(_Answer)
_HIDDEN: Final = re.compile(f"[{HIDDEN}]+")


def _line(why: str) -> str:
    """What an instance answered may be in it, and admission refuses invisible characters."""
    return _HIDDEN.sub(" ", why).strip()


class Reporter:
    """Sends its reports until admission has accepted them."""

    def __init__(self, account: Account, clock: Callable[[], float] = time.monotonic) -> None:
        self._account, self._clock = account, clock
        self._said: dict[tuple[str, int], tuple[State, str, float]] = {}  # with the reason, and when; oldest first
        self._due: dict[tuple[str, int], Report] = {}
        self._tries: dict[tuple[str, int], int] = {}  # of those that are due
        self._news = asyncio.Event()

    def say(self, unit: str, attempt: int, state: State, why: str = "") -> bool:
        """Report it, soon.  False if it has been said already."""
        key, why, now = (unit, attempt), _line(why)[:WHY_MAX], self._clock()
        before, worded, at = self._said.get(key, ("", "", now))
        if before == state and (worded == why or now - at < REWORD_S):
            return False
        self._said.pop(key, None)
        self._said[key] = (state, why, now)
        if len(self._said) > SAID_MAX:
            oldest = next(iter(self._said))
            del self._said[oldest]
            self._due.pop(oldest, None)
            self._tries.pop(oldest, None)
        self._tries[key] = 0
        self._due[key] = Report(unit, attempt, state, why)
        self._news.set()
        return True

    def said(self, unit: str, attempt: int) -> State | None:
        found = self._said.get((unit, attempt))
        return None if found is None else found[0]

    async def run(self, client: Client) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            for report in list(self._due.values()):
                if await self._report(client, report):
                    if self._due.get((report.unit, report.attempt)) is report:
                        del self._due[report.unit, report.attempt]
                        self._tries.pop((report.unit, report.attempt), None)
                else:
                    self._news.set()
            if self._news.is_set() and self._due:
                await asyncio.sleep(RETRY_S)

    async def _report(self, client: Client, report: Report) -> bool:
        """True if the door has answered for good."""
        account = self._account
        subject = subjects.request(account.department, account.user, "instance", "report")
        payload = msgspec.json.encode(
            {"unit": report.unit, "attempt": report.attempt, "state": report.state, "why": report.why}
        )
        try:
            answer = await client.request(
                subject, payload, timeout=DEADLINE_S, headers={"Content-Type": "application/json"}
            )
            content = _answers.decode(answer.data)
        except (nats.errors.Error, TimeoutError, msgspec.DecodeError, OSError) as error:
            _log.warning("report not answered", unit=report.unit, state=report.state, error=str(error))
            return False
        if not content.type.startswith(URN):
            _log.info("reported", unit=report.unit, attempt=report.attempt, state=report.state, why=report.why)
            return True
        _log.info("report refused", unit=report.unit, state=report.state, error=content.detail)
        if content.code == "conflict" and content.field == "state":
            tries = self._tries[report.unit, report.attempt] = self._tries.get((report.unit, report.attempt), 0) + 1
            return tries >= TRIES_MAX
        return content.code not in ("unavailable", "limit")
