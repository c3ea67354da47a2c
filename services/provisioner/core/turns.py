"""Turns of batch departments that are stuck: whose wide job the idle hosts are gathered for.

Two batch departments whose wide jobs each need more than their share would hold idle pieces for ever.

Rules
  1. A department that lacks hosts and has placed nothing for `STUCK_S` waits.  Where two wait, they take turns: the idle hosts
     go to whose turn it is.
  2. A turn lasts `TURN_S`; when all have had one in vain, twice as long, and so on: hosts may take longer than a turn to be
     cleared.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta

STUCK_S: Final = 1.0  # a scheduler that can use a host places within milliseconds, a restarted one within a second
# to gather what ending jobs and draining hosts set free; then the next one, lest a dead scheduler hoards
TURN_S: Final = 30.0
TURN_MAX_S: Final = 64 * TURN_S  # half an hour: no host drains so long


def follow(waiting: dict[str, float], custody: Custody, fact: f.Fact, meta: Meta) -> None:
    """Rule 1: a department that lacks hosts waits from then on, until it places something or wants no more than it has."""
    state = custody.state
    dept = meta.writer.partition(".")[2]
    if isinstance(fact, f.UnitPlaced) or (isinstance(fact, f.DemandChanged) and fact.hosts <= custody.held(dept)):
        waiting.pop(dept, None)
    elif isinstance(fact, f.ConfigAdopted | f.DepartmentClosed):
        waiting.clear()
    for department in state.config.departments if state.config is not None else ():
        if department.kind == "batch" and state.demands.get(department.name, 0) > custody.held(department.name):
            waiting.setdefault(department.name, meta.at)


def whose(waiting: dict[str, float], now: float) -> tuple[str, float]:
    """Whose turn it is, if anyone's; and when that may be another one by time alone."""
    line = sorted((since, name) for name, since in waiting.items())  # unique last key: name
    if len(line) < 2:
        return "", NEVER
    number, ends = turn(now, line[1][0] + STUCK_S, len(line))
    ends = min([ends, *(since + STUCK_S for since, _ in line if since + STUCK_S > now)])  # who joins the line
    line = [(since, name) for since, name in line if now >= since + STUCK_S]
    return (line[number % len(line)][1] if number >= 0 else ""), ends


def turn(now: float, begin: float, waiting: int) -> tuple[int, float]:
    """The number of the turn at `now`, from 0 on, and when it ends; turns begin at `begin`, and are -1 before."""
    if now < begin:
        return -1, begin
    turn, length_s = 0, TURN_S
    while now >= begin + waiting * length_s and length_s < TURN_MAX_S:
        begin, turn, length_s = begin + waiting * length_s, turn + waiting, 2 * length_s
    more = int((now - begin) // length_s)
    if now >= begin + (more + 1) * length_s:  # the difference was rounded down: else this turn would end now, for ever
        more += 1
    return turn + more, begin + (more + 1) * length_s
