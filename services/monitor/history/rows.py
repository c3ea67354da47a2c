"""Which rows of the history a fact causes: the details of jobs, attempts, losses, hosts, claims and leases.

Rules
  1. Rows follow from the fact and from the fold after it: nothing is asked of the file, and nothing is remembered here but
     where each host was last (`where`), which the file has too.
  2. An attempt ends when it is closed or reports, whichever comes first, as accounting counts it; `ran_ms` of its job grows by
     its length then.
  3. A loss that is taken back is a row with a minus: earlier rows stay.  `at_ms` is when the work was lost, where
     the sums count it; `told_ms` when the row was written: later, if it takes back.
  4. A job's reason is why its last attempt was closed, or was broken: gone when it is placed again, or has ended by itself.
  5. What an attempt has used is its own, as memory has it (`core.attempt`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

import msgspec

from schemas import facts as f
from schemas.ids import element_id, is_instance
from schemas.reasons import Reason
from schemas.size import FIELDS, size_of
from services.domain.custody.meta import Meta
from services.monitor.core.accounting_state import Loss, Whereabouts
from services.monitor.core.attempt import own_cpu_s
from services.monitor.core.buckets import Buckets, parts
from services.monitor.core.monitor import MonitorCore, unit_state
from services.monitor.history.schema import SUMS, add_into

_OF_HOSTS: Final = frozenset(get_args(f.HostFact))
Statement = tuple[str, tuple[Any, ...]]
Where = dict[str, Whereabouts]
LOSSES_MAX: Final = 1_000_000  # of one fact: a fact names one attempt, and breaks at most those of one host
_ADD: Final = {table: add_into(table) for table in SUMS}
_SIZE: Final = ", ".join(FIELDS)
_MARKS: Final = ",".join("?" for _ in FIELDS)
_USED: Final = "UPDATE attempts SET cpu_seconds = ?, max_rss_mb = ? WHERE unit = ? AND attempt = ?"
_RAN: Final = (
    "UPDATE jobs SET ran_ms = ran_ms + ? - a.placed_ms FROM attempts AS a"
    " WHERE a.unit = jobs.unit AND jobs.unit = ? AND a.attempt = ? AND a.ended_ms IS NULL"
)


def ms(at: float) -> int:
    """As accounting counts."""
    return round(at * 1000)


def rows(core: MonitorCore, where: Where, fact: f.Fact, meta: Meta) -> list[Statement]:
    """What a valid fact that `core` has folded adds to the history."""
    make = _ROWS.get(type(fact))
    found = make(core, fact, meta) if make is not None else []
    for unit in meta.broken:
        found.append(("UPDATE attempts SET broken_ms = ? WHERE unit = ? AND ended_ms IS NULL", (ms(meta.at), unit)))
    for unit in (*meta.broken, *meta.unsaved):
        found += _state(core, unit)
    if type(fact) in _OF_HOSTS:
        found += _moved(core, where, fact.host, meta)  # type: ignore[union-attr]
    return found + _lost(core, meta) + _met(core, meta)


# ------------------------------------------------------------------------------------------------------------------- jobs


def _submitted(core: MonitorCore, fact: f.JobSubmitted, meta: Meta) -> list[Statement]:
    kind = fact.lease.kind if fact.lease is not None else ""
    asked = (fact.dept, fact.user, fact.name, fact.service, fact.quality, int(fact.best_effort), kind)
    size = (fact.nodes, *size_of(fact), ms(fact.walltime_s), ms(meta.at))
    sql = (
        "INSERT INTO jobs (unit, job, department, user, name, service, quality, best_effort, lease, nodes,"
        f" {_SIZE}, walltime_ms, submitted_ms, state) VALUES (?,?,?,?,?,?,?,?,?,?,{_MARKS},?,?,?)"
    )
    units = [element_id(fact.job, i) for i in fact.array] or [fact.job]
    known = core.custody.state.units
    found: list[Statement] = [(sql, (unit, fact.job, *asked, *size, unit_state(known[unit]))) for unit in units]
    if fact.lease is not None:
        terms = (fact.lease.kind, ms(fact.lease.start_at), ms(fact.walltime_s), ms(fact.lease.deadline_at))
        sql = "INSERT INTO leases (lease, department, user, kind, start_ms, duration_ms, deadline_ms) VALUES (?,?,?,?,?,?,?)"
        found.append((sql, (fact.job, fact.dept, fact.user, *terms)))
    return found


def _changed(core: MonitorCore, _fact: f.OfJobs, _meta: Meta) -> list[Statement]:
    return [statement for name in core.custody.changed for statement in _state(core, name)]


def _state(core: MonitorCore, name: str) -> list[Statement]:
    unit = core.custody.state.units.get(name)
    if unit is None or is_instance(name):
        return []
    ended = ms(unit.ended_at) if unit.state == "final" and unit.ended_at is not None else None
    sql = "UPDATE jobs SET state = ?, ended_ms = ?, exit = ? WHERE unit = ?"
    return [(sql, (unit_state(unit), ended, unit.exit, name))]


def _extended(_core: MonitorCore, fact: f.LeaseExtended, _meta: Meta) -> list[Statement]:
    length = ms(fact.walltime_s)
    return [
        ("UPDATE jobs SET walltime_ms = ? WHERE unit = ?", (length, fact.job)),
        ("UPDATE leases SET duration_ms = ?, extended = extended + 1 WHERE lease = ?", (length, fact.job)),
    ]


def _placed(core: MonitorCore, fact: f.UnitPlaced, meta: Meta) -> list[Statement]:
    run, unit = core.accounting.state.runs[fact.unit], core.custody.state.units[fact.unit]
    hosts, at = ",".join(fact.hosts), ms(meta.at)
    row = (fact.unit, fact.attempt, unit.dept, parts(run.key)[1], hosts, *run.size, at)
    sql = f"INSERT INTO attempts (unit, attempt, department, user, hosts, {_SIZE}, placed_ms) VALUES (?,?,?,?,?,{_MARKS},?)"
    found: list[Statement] = [(sql, row)]
    if not is_instance(fact.unit):
        sql = (
            "UPDATE jobs SET state = ?, attempts = ?, hosts = ?, placed_ms = coalesce(placed_ms, ?), reason = NULL"
            " WHERE unit = ?"
        )
        found.append((sql, (unit_state(unit), fact.attempt, hosts, at, fact.unit)))  # rule 4
    return found


def _began(core: MonitorCore, fact: f.AttemptBegan, meta: Meta) -> list[Statement]:
    at = ms(meta.at)
    sql = "UPDATE attempts SET began_ms = coalesce(began_ms, ?) WHERE unit = ? AND attempt = ?"
    found: list[Statement] = [(sql, (at, fact.unit, fact.attempt))]
    if not is_instance(fact.unit):
        unit = core.custody.state.units[fact.unit]
        sql = "UPDATE jobs SET state = ?, began_ms = coalesce(began_ms, ?) WHERE unit = ?"
        found.append((sql, (unit_state(unit), at, fact.unit)))
    return found


def _closed(core: MonitorCore, fact: f.AttemptClosed, meta: Meta) -> list[Statement]:
    reason = _told(fact.why)
    sql = (
        "UPDATE attempts SET ended_ms = coalesce(ended_ms, ?), disposal = ?, reason = ? WHERE unit = ? AND attempt = ?"
    )
    found = [*_over(fact, meta), (sql, (ms(meta.at), fact.disposal.value, reason, fact.unit, fact.attempt))]
    if is_instance(fact.unit):
        return found
    return [*found, ("UPDATE jobs SET reason = ? WHERE unit = ?", (reason, fact.unit)), *_state(core, fact.unit)]


def _reported(core: MonitorCore, fact: f.AttemptReported, meta: Meta) -> list[Statement]:
    sql = (
        "UPDATE attempts SET ended_ms = coalesce(ended_ms, ?), exit = ?, signal = ?, seconds = ?, note = ?,"
        " cpu_seconds = ?, max_rss_mb = ?, reason = coalesce(reason, ?) WHERE unit = ? AND attempt = ?"
    )
    (own, *later), said = _own(core, fact), (fact.exit, fact.signal, fact.seconds, fact.note)
    why = core.why(fact.unit, fact.attempt) if fact.terminated else None
    reason = None if why is None else _told(why)
    found = [
        *_over(fact, meta),
        (sql, (ms(meta.at), *said, *own[:2], reason, fact.unit, fact.attempt)),
        *_state(core, fact.unit),
    ]
    found += [(_USED, row) for row in later]
    return [*found, ("UPDATE jobs SET reason = ? WHERE unit = ?", (reason, fact.unit))]  # rule 4


def _measured(core: MonitorCore, fact: f.AttemptMeasured, _meta: Meta) -> list[Statement]:
    return [(_USED, row) for row in _own(core, fact)]


def _own(core: MonitorCore, fact: f.AttemptReported | f.AttemptMeasured) -> list[tuple[Any, ...]]:
    """Rule 5: CPU seconds, peak, unit and number of the fact's attempt, and of those that went on from it."""
    attempts = core.state.attempts.get(fact.unit, [])
    mine = next((each for each in reversed(attempts) if each.attempt == fact.attempt), None)
    if mine is None:
        return [(fact.cpu_seconds, fact.max_rss_mb, fact.unit, fact.attempt)]
    later = [each for each in attempts if each.life == mine.life and each.attempt > mine.attempt]
    return [
        (own_cpu_s(attempts, each), each.max_rss_mb, fact.unit, each.attempt)
        for each in (mine, *(each for each in later if each.cpu_seconds is not None))
    ]


def _over(fact: f.AttemptClosed | f.AttemptReported, meta: Meta) -> list[Statement]:
    """Rule 2; before the attempt's own row says that it has ended."""
    return [] if is_instance(fact.unit) else [(_RAN, (ms(meta.at), fact.unit, fact.attempt))]


def _department_closed(_core: MonitorCore, fact: f.DepartmentClosed, meta: Meta) -> list[Statement]:
    at = ms(meta.at)
    ran = (
        "UPDATE jobs SET ran_ms = ran_ms + ? - a.placed_ms FROM attempts AS a"
        " WHERE a.unit = jobs.unit AND a.department = ? AND a.ended_ms IS NULL"
    )
    return [
        (ran, (at, fact.dept)),
        ("UPDATE attempts SET ended_ms = ? WHERE department = ? AND ended_ms IS NULL", (at, fact.dept)),
        (
            "UPDATE jobs SET ended_ms = ?, state = 'cancelled' WHERE department = ? AND ended_ms IS NULL",
            (at, fact.dept),
        ),
    ]


def _told(reason: Reason) -> str:
    return msgspec.json.encode(reason).decode()


# ----------------------------------------------------------------------------------------------------- losses, hosts, claims


def _lost(core: MonitorCore, meta: Meta) -> list[Statement]:
    """Rule 3."""
    sql = "INSERT INTO losses VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
    return [
        (sql, (meta.position, LOSSES_MAX * meta.index + number, *_loss(core, name, loss, sign)))
        for number, (name, loss, sign) in enumerate(core.accounting.news.losses)
    ]


def _loss(core: MonitorCore, name: str, loss: Loss, sign: int) -> tuple[Any, ...]:
    dept, user, service, lease = parts(loss.key)
    attempt, to = core.custody.state.units[name].attempt, next(iter(loss.to), None)
    return loss.at, core.accounting.state.at, name, attempt, dept, user, service, lease, to, sign * loss.amount


def _moved(core: MonitorCore, where: Where, host: str, meta: Meta) -> list[Statement]:
    now = core.accounting.state.hosts.get(host)
    if where.get(host) == now:
        return []
    found: list[Statement] = [
        ("UPDATE whereabouts SET until_ms = ? WHERE host = ? AND until_ms IS NULL", (ms(meta.at), host))
    ]
    if now is None:
        where.pop(host, None)
    else:
        where[host] = now
        row = (host, meta.position, meta.index, now.state, now.dept, *now.size, ms(meta.at), None)
        found.append((f"INSERT INTO whereabouts VALUES (?,?,?,?,?,{_MARKS},?,?)", row))
    return found


def _met(core: MonitorCore, meta: Meta) -> list[Statement]:
    return [
        (
            "INSERT INTO claims VALUES (?,?,?,?,?,?)",
            (meta.position, meta.index, claim.dept, claim.hosts, ms(claim.at), ms(claim.met_at or claim.at)),
        )
        for claim in core.met
    ]


# ------------------------------------------------------------------------------------------------------------------- sums


def sums(hours: Buckets) -> list[Statement]:
    """What `accounting` has measured and closed, to be added to what the file has."""
    found: list[Statement] = []
    for begin, bucket in hours.kept.items():
        at = (begin, hours.length(begin))
        found.append((_ADD["site"], (*at, *_numbers("site", bucket.site))))
        for dept, span in bucket.spans.items():
            found.append((_ADD["holding"], (*at, dept, *_numbers("holding", span))))
            found += [(_ADD["lost_to"], (*at, dept, to, amount)) for to, amount in span.lost_to.items()]
        for name, row in bucket.rows.items():
            found.append((_ADD["usage"], (*at, *parts(name), *_numbers("usage", row))))
            found += [(_ADD["ended"], (*at, *parts(name), how, units)) for how, units in row.ended.items()]
    return found


def _numbers(table: str, some: Any) -> tuple[int, ...]:
    return tuple(getattr(some, name) for name in SUMS[table][1])


def _configured(_core: MonitorCore, fact: f.ConfigAdopted, meta: Meta) -> list[Statement]:
    """Which departments there are, of which kind, as far as that is new."""
    sql = (
        "INSERT INTO departments SELECT ?, ?, ?, ? WHERE ? IS NOT"
        " (SELECT kind FROM departments WHERE department = ? ORDER BY position DESC LIMIT 1)"
    )
    return [(sql, (d.name, meta.position, d.kind, ms(meta.at), d.kind, d.name)) for d in fact.config.departments]


_ROWS: Final[dict[type, Callable[[MonitorCore, Any, Meta], list[Statement]]]] = {
    f.ConfigAdopted: _configured,
    f.JobSubmitted: _submitted,
    **dict.fromkeys(get_args(f.OfJobs), _changed),
    f.LeaseExtended: _extended,
    f.UnitPlaced: _placed,
    f.AttemptBegan: _began,
    f.AttemptClosed: _closed,
    f.AttemptReported: _reported,
    f.AttemptMeasured: _measured,
    f.DepartmentClosed: _department_closed,
}
