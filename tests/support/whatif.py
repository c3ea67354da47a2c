"""Records of simulated clouds: a journal kept in memory, as the monitor would send it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phoenix.simulate.journal import Entry
from phoenix.whatif.record import Record
from schemas import facts as f
from schemas.facts import Fact

FOREVER_S = 1e9  # for ever, in a form that JSON has


def lines(entries: Iterable[Entry], since: float = 0.0, until: float = 1e12) -> list[bytes]:
    """The lines of `GET /v1/record`."""
    head = {"record": 1, "cloud": "simulation", "since": since, "until": until, "to": 0}
    shown = [
        {"position": position, "at": entry.at, "writer": entry.writer, "facts": [_finite(fact) for fact in entry.facts]}
        for position, entry in enumerate(entries, start=1)
        if entry.at <= until
    ]
    tail = {"end": len(shown), "envelopes": len(shown)}
    return [msgspec.json.encode(each) for each in (head, *shown, tail)]


def record(entries: Iterable[Entry], since: float = 0.0, until: float = 1e12) -> Record:
    return Record(lines(entries, since, until))


def _finite(fact: Fact) -> Fact:
    """A simulated cloud waits for ever; JSON has no such number."""
    if not isinstance(fact, f.ConfigAdopted):
        return fact
    replace, departments = msgspec.structs.replace, []
    for known in fact.config.departments:
        batch, web = known.batch, known.web
        batch = None if batch is None else replace(batch, boot_timeout_s=FOREVER_S)
        web = None if web is None else replace(web, boot_timeout_s=FOREVER_S, signal_timeout_s=FOREVER_S)
        departments.append(replace(known, batch=batch, web=web))
    return replace(fact, config=replace(fact.config, departments=tuple(departments)))
