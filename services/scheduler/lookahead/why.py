"""Why a job waits, and what would unblock it: read from the core's state, changing nothing.

Rules
  1. The reasons are ranked: the first is the one to look at, and what would unblock it is in its parameters.
  2. They are what the core itself decides by (book, queue, room, capacities), so an explanation cannot contradict a decision.
  3. What is missing is stated even for a unit that waits for something else; that there is room is not, since it would not
     start.  For a unit whose dependency has failed neither is stated, since no host would help it; nor for a removed
     department.
  4. What became of earlier attempts comes last: how often they ended through no fault of the unit, why the last one did, and
     what is safe of their work.  For a running job the reason states its last checkpoint, and how long its own grace would
     delay a claim of its hosts; for one that is being ended, until when it may save.  Where OpenNebula has allocated no VM for
     an attempt, or its VM failed, OpenNebula's message is quoted while that attempt lasts, and until the next one.
  5. Where the order keeps room for one unit (`order_easy`), its reason states when it starts at the latest; the reason of a
     unit that would be in its way states how long the gap before that is.  Where the order keeps room for every unit
     (`order_conservative`), each reason states when.
  6. Where priorities are points (`order_multi_factor`), what they are made of comes after what keeps it waiting.
  7. For a lease with a time slot the slot comes first.  Before it: when it begins, and on how many hosts and with which victims
     as things are, or that the order keeps no slots.  In it: how late the lease is, and what else keeps it.  After it: that
     nothing helps.
  8. An array is explained by its first element that is not final, named in `unit`.
  9. If a job needs more hosts than the department can have, the reason says so: what other departments hold by guarantee, or by
     their least number of instances, does not come back when load falls or jobs end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from schemas import reasons as because
from schemas.config import WebPolicy
from schemas.ids import job_of, sort_key
from schemas.queries import JobQueue, QueuePlace
from schemas.reasons import Reason
from schemas.times import nearest
from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.state import Unit
from services.domain.others import used_by_others
from services.domain.sharing import lending
from services.domain.sharing.host_ownership import usable
from services.scheduler.core.batch import best_effort
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.dependencies import verdict
from services.scheduler.core.batch.launches import FAILURES_MAX
from services.scheduler.core.batch.state import Job
from services.scheduler.core.state.shape import Booking, Shape
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.snapshot import Snapshot

QUEUE_MAX: Final = 1000  # entries of one answer: about 100 kB
NEVER_STARTS: Final = (because.DependencyFailed, because.DepartmentRemoved)


def why(core: BatchCore, job: str, now: float, last: LastPass | None = None) -> list[Reason]:
    """Ranked reasons; empty if this department does not know the job.  `last`: what is known of the last pass; without it all
    that is needed is worked out here.  Raises what a plug-in raises."""
    core.view.jobs.ranked(now)
    unit = _unit(core, job)
    if unit is None:
        ended = core.state.ended.get(job_of(job)) if job_of(job) == job else None
        return [because.Finished(end="completed" if not ended else "failed")] if ended is not None else []
    if unit.state == "final":
        return [because.Finished(unit=unit.id, end=unit.end or "")]
    if unit.state == "open":
        return [_why_open(core, unit, now)]
    if last is None:
        last = LastPass()
        if core.view.order.reserves_for_all and unit.id in core.view.jobs.queue.where:
            last.see(core, now).work_out(unit.id)
    return list(_why_pending(Snapshot(core, now, last), unit.id))


def first(snapshot: Snapshot, unit: str) -> Reason:
    """The first reason of a unit that waits, as `why` ranks them; without the moment of its reservation where the order
    reserves for every unit."""
    return next(_why_pending(snapshot, unit, moments=False))


def explained(core: BatchCore, job: str) -> str:
    """The unit that `why` is about: of an array one of its elements (rule 8); "" if there is none."""
    unit = _unit(core, job)
    return unit.id if unit is not None else ""


def queue_view(core: BatchCore, limit: int = QUEUE_MAX) -> JobQueue:
    """The first eligible units in order, at most `limit`."""
    jobs = core.view.jobs
    first = enumerate(jobs.queue.first(max(0, min(limit, QUEUE_MAX))), start=1)
    places = tuple(_queue_place(number, place.unit, jobs.job(place.unit), core) for number, place in first)
    return JobQueue(pending=len(jobs.queue), queue=places)


def _queue_place(number: int, unit: str, job: Job, core: BatchCore) -> QueuePlace:
    return QueuePlace(
        place=number,
        unit=unit,
        priority=core.view.jobs.priorities.priority(job),
        nodes=job.nodes,
        **job.size.fields(),
        exclusive=job.exclusive,
        constraint=job.constraint,
    )


def _unit(core: BatchCore, job: str) -> Unit | None:
    units = core.custody.state.units
    names = [job]
    if job in core.state.jobs:
        names = [name for name in core.state.jobs[job].units(job) if name in units]
        names = sorted(names, key=lambda n: (units[n].state == "final", units[n].state == "open", *sort_key(n)))
    found = units.get(names[0]) if names else None
    return found if found is not None and found.dept == core.dept else None


def _why_open(core: BatchCore, unit: Unit, now: float) -> Reason:
    hosts = list(unit.hosts)
    if unit.began_at is None:
        return because.Starting(
            unit=unit.id,
            attempt=unit.attempt,
            hosts=hosts,
            vms_started=core.view.limits.started.get(unit.id, 0),
            vms=unit.nodes,
            **(_refused(core, unit) if unit.allocated.get(unit.attempt, 0).bit_count() < unit.nodes else {}),
            **(_paused(core) if core.view.limits.started.get(unit.id, 0) < unit.nodes else {}),
        )
    ran_s = round(core.view.jobs.used_s(unit.id) + max(0.0, now - unit.began_at), 3)
    walltime_s = core.view.jobs.job(unit.id).walltime_s
    more = _checkpoint(core, unit.id, now)
    if unit.grace_s is not None:
        more["claim_waits_s"] = grace.of_unit(core.custody, unit)
    return because.Running(
        unit=unit.id, attempt=unit.attempt, hosts=hosts, seconds=ran_s, walltime_s=walltime_s, **more
    )


def _saves(core: BatchCore, unit: str, now: float) -> list[Reason]:
    """It is being ended, and has not yet left hosts that are given up."""
    mine = [one for one in grace.leavers(core.custody) if one.job == unit]
    if not mine:
        return []
    in_s = round(max(0.0, mine[-1].by - now), 3)
    return [because.Saves(on=[one.host for one in mine], in_s=in_s, grace_s=mine[-1].grace_s)]


def _refused(core: BatchCore, unit: Unit) -> dict[str, Any]:
    """OpenNebula's message about the unit's last attempt, if it allocated no VM for it."""
    known = core.state.refused.get(unit.id)
    if known is None or known.attempt != unit.attempt or not known.failure:
        return {}
    return {"refused": known.failure, "refused_why": known.why}


def _paused(core: BatchCore) -> dict[str, Any]:
    """That starts are paused in the whole cloud, and why."""
    paused = core.state.paused
    return {} if paused is None else {"paused_since": nearest(paused.since), "paused_why": paused.why}


def _words(core: BatchCore, unit: str) -> dict[str, Any]:
    """OpenNebula's message when the unit's last attempt ended, as its closing quotes it."""
    again = core.state.again.get(unit)
    why = again.why if again is not None else None
    if not isinstance(why, because.Interrupted):
        return {}
    return {"vm": why.vm, "refused": why.refused, "refused_why": why.refused_why}


def _start_failed(core: BatchCore, unit: str, now: float) -> Reason:
    """It waits after attempts that ended before they began."""
    again = core.state.again[unit]
    in_s, hosts = round(max(0.0, again.not_before - now), 3), list(again.failed_on)
    words = _words(core, unit)
    return because.StartFailed(unit=unit, failed=again.launches, in_s=in_s, hosts=hosts, **words)


def _held(core: BatchCore, unit: str) -> Reason:
    """By a person, or since it never starts (`launches`)."""
    again = core.state.again.get(unit)
    if again is None or again.launches < FAILURES_MAX:
        return because.Held(unit=unit)
    return because.Held(unit=unit, failed=again.launches, hosts=list(again.failed_on), **_words(core, unit))


def _checkpoint(core: BatchCore, unit: str, now: float) -> dict[str, Any]:
    """The unit's last checkpoint: how long ago, of which attempt, how much run time it saves."""
    known = core.state.checkpoints.get(unit)
    if known is None:
        return {}
    ago_s = round(max(0.0, now - known.at), 3)
    percent = {} if known.percent is None else {"percent": known.percent}
    return {
        "checkpoint_ago_s": ago_s,
        "checkpoint_attempt": known.attempt,
        "safe_s": round(known.saved_s, 3),
        **percent,
    }


def _why_pending(snapshot: Snapshot, unit: str, *, moments: bool = True) -> Iterator[Reason]:
    core, now = snapshot.core, snapshot.now
    job, before = core.view.jobs.job(unit), list(before_hosts(core, unit, now))
    yield from before
    booking = snapshot.queue.bookings.get(unit)
    if booking is not None:
        slot = why_slot(snapshot, booking)
        yield slot
        if type(slot) is because.LeaseLate:
            yield _why_no_room(snapshot, unit, moments=moments)
        yield from _history(core, unit, now)
        return
    more = list(_beside_room(snapshot, unit))
    yield from more
    if not any(type(reason) in NEVER_STARTS for reason in before):
        room = _why_no_room(snapshot, unit, moments=moments)
        if not (before or more) or (type(room) is not because.WaitsBehind and not _has_room(room)):
            yield room
            yield from _others(snapshot, room)
    yield from _priority(core, job)
    yield from _history(core, unit, now)


def _has_room(room: Reason) -> bool:
    return isinstance(room, because.WaitsForHosts) and room.short == 0


def why_slot(snapshot: Snapshot, booking: Booking) -> Reason:
    """The first reason of a lease that waits for its slot, or in it."""
    core, now = snapshot.core, snapshot.now
    starts_at, ends_at = nearest(booking.start_at), nearest(booking.ends_at)
    if now >= booking.ends_at:
        return because.LeaseOver(starts_at=starts_at, ends_at=ends_at)
    if now >= booking.start_at:
        return because.LeaseLate(late_s=round(now - booking.start_at, 3), ends_at=ends_at)
    in_s = round(booking.start_at - now, 3)
    if not core.view.order.keeps_slots:
        return because.LeaseStartsAt(in_s=in_s, starts_at=starts_at, ends_at=ends_at, order=str(core.view.policy.order))
    snapshot.last.work_out(booking.unit)
    slot = snapshot.last.reserved(booking.unit)
    told = because.LeaseStartsAt(in_s=in_s, starts_at=starts_at, ends_at=ends_at)
    if slot is None:
        return told
    victims = list(slot.victims)
    return msgspec.structs.replace(told, hosts=len(slot.hosts), nodes=booking.shape.nodes, victims=victims)


def before_hosts(core: BatchCore, unit: str, now: float) -> Iterator[Reason]:
    """What keeps it from being looked at."""
    job, failed, waits = core.view.jobs.job(unit), [], []
    for dependency in job.after:
        verdict_ = verdict(dependency, core.state, core.custody)
        if verdict_ == "never":
            failed.append(because.DependencyFailed(condition=dependency.condition, job=dependency.job))
        elif verdict_ == "waits":
            first = _unit(core, dependency.job)
            held = first is not None and first.state == "pending" and first.held
            waits.append(because.Dependency(condition=dependency.condition, job=dependency.job, held=held))
    if not core.view.active:
        yield because.DepartmentRemoved()
    yield from failed
    if core.custody.state.units[unit].held:
        yield _held(core, unit)
    yield from waits
    if unit in core.view.jobs.launches.waiting:
        yield _start_failed(core, unit, now)
    running = core.view.jobs.queue.running.get(job_of(unit), 0)
    if job.throttle and running >= job.throttle:
        yield because.ArrayThrottle(limit=job.throttle, running=running)


def _beside_room(snapshot: Snapshot, unit: str) -> Iterator[Reason]:
    """What keeps it from starting even where there is room: limits, guarded best-effort, the order's own rules."""
    core = snapshot.core
    job, budgets = core.view.jobs.job(unit), snapshot.queue.budgets
    limit = budgets.full(core.view.jobs.owner(unit), job.shape) if budgets is not None else None
    if limit is not None:
        yield limit
    elif not job.best_effort and core.view.best_effort:
        until = core.view.guards.next_moment(core.view.best_effort, snapshot.now)
        spared = best_effort.why(snapshot.situation, core.view.preemption.best_effort(snapshot.now), job.shape, until)
        if spared is not None:
            yield spared
    lane, _ = snapshot.queue.where.get(unit, (None, None))
    wait = snapshot.last.waits.get(lane.key) if lane is not None and snapshot.last.waits else None
    kept = wait(unit, snapshot.now) if wait is not None else None
    if kept is not None:
        yield kept


def _priority(core: BatchCore, job: Job) -> list[Reason]:
    """What the job's priority is made of, where that is points."""
    ranking = core.view.jobs.priorities
    if not ranking.by_points:
        return []
    points, fair = ranking.points(job), ranking.fair.get(job.user)
    used = {} if fair is None else {"used": round(fair.used, 4), "share": round(fair.share, 4)}
    parts = {"user_points" if name == "user" else name: round(value, 1) for name, value in points._asdict().items()}
    return [because.Priority(priority=points.priority, user=job.user, **parts, **used)]


def _history(core: BatchCore, unit: str, now: float) -> list[Reason]:
    """Rule 4."""
    saves = [] if core.custody.state.units[unit].grace_s is None else _saves(core, unit, now)
    again = core.state.again.get(unit)
    if again is None or again.why is None or type(again.why) is because.Balanced:  # it went on: no reason to wait
        return saves
    saved: dict[str, Any] = {"saved_s": round(again.used_s, 3)} if again.used_s else {}
    preempted = again.requeues + again.suspends - again.moved  # to be moved for balance is no preemption
    saved |= _checkpoint(core, unit, now)
    if not isinstance(again.why, because.Interrupted):
        return [*saves, again.why]
    failed, words, began = again.faults + again.launches, _words(core, unit), again.why.began
    told = type(again.why)(unit=unit, preempted=preempted, failed=failed, **saved, **words, began=began)
    return [*saves, told]


def _why_no_room(snapshot: Snapshot, unit: str, *, moments: bool) -> Reason:
    """What the unit needs, what there is, and who goes first."""
    core, now = snapshot.core, snapshot.now
    job = core.view.jobs.job(unit)
    shape = job.shape
    needs: dict[str, Any] = {
        "nodes": shape.nodes,
        **shape.size.fields(),
        "exclusive": shape.exclusive,
        "constraint": shape.constraint,
    }
    able, held = snapshot.able(shape), snapshot.held
    if able < shape.nodes:
        return because.TooLargeNow(able=able, **needs)
    ahead = snapshot.queue.ahead(core.view.jobs.place(unit))
    if held == 0:
        return because.NoHostsHeld(ahead=ahead, **needs, **(snapshot.hosts | _agreed(core, shape.nodes, now)))
    free, cleared = snapshot.free(shape, best_effort=job.best_effort)
    if cleared < shape.nodes:
        short = shape.nodes - cleared
        counts = snapshot.hosts | ({"way": cleared - free} if cleared > free else {})
        counts |= _turn(snapshot, unit, moments=moments) | (
            _agreed(core, held + short, now) or _kept_by(core, shape.nodes, now)
        )
        return because.WaitsForHosts(free=free, short=short, ahead=ahead, **needs, **(counts | _meeting(core, shape)))
    at_once = because.WaitsForHosts(free=free, short=0, ahead=0, **needs, **snapshot.hosts)
    if not snapshot.planned(best_effort=job.best_effort) or core.view.notice():
        return at_once  # with the next decision, or when the hosts on notice have gone
    head = snapshot.last.head or snapshot.queue.head()
    if head is None or head.unit == unit or not ahead:
        return at_once
    way = free < shape.nodes
    turn = _turn(snapshot, unit, moments=moments) or _gap(snapshot)
    return because.WaitsBehind(ahead=ahead, job=head.unit, **turn, way=way)


def _others(snapshot: Snapshot, room: Reason) -> list[Reason]:
    """Where free capacity is short: what VMs of other users take, of the hosts that are meant."""
    if not snapshot.shared or type(room) is because.WaitsBehind or _has_room(room):
        return []
    mine = snapshot.core.custody.index.held.get(snapshot.core.dept, ())
    anywhere = type(room) is not because.WaitsForHosts
    return used_by_others(host for host in snapshot.shared if anywhere or host.name in mine or host.state == "draining")


def _meeting(core: BatchCore, shape: Shape) -> dict[str, int]:
    """How many held hosts satisfy its constraint, whatever runs there."""
    if not shape.constraint:
        return {}
    held = map(core.custody.state.hosts.__getitem__, core.custody.index.held.get(core.dept, ()))
    return {"meeting": sum(1 for host in held if shape.constraint in core.view.room.serves(host))}


def _agreed(core: BatchCore, wanted: int, now: float) -> dict[str, int]:
    """What windows and contracts let the department have, if that is fewer than `wanted` hosts, and when they change."""
    config = core.custody.state.config
    if config is None:
        return {}
    there = usable(core.custody, now)
    most = lending.reach(config, core.dept, now, there)
    if wanted <= most or most >= there:  # then it is the hosts that are short, not what was agreed
        return {}
    changes = lending.next_change(config, now)
    return {"at_most": most} | ({} if changes == NEVER else {"changes_in_s": round(changes - now)})


def _kept_by(core: BatchCore, nodes: int, now: float) -> dict[str, int | list[str]]:
    """Rule 9: how many hosts the department can have at most while others keep what is theirs in any case, and which do."""
    config = core.custody.state.config
    keep: dict[str, int] = {}
    for other in config.departments if config is not None else ():
        least = lending.bounds(other, now)[0]
        if other.kind == "web":
            policy = other.web or WebPolicy()
            least = max(least, -(-policy.instances_min // policy.instances_per_host))
        kept = min(core.custody.held(other.name), least) if other.name != core.dept else 0
        if kept:
            keep[other.name] = kept
    most = usable(core.custody, now) - sum(keep.values())
    return {"can_have": most, "kept_by": list(keep)} if keep and nodes > most else {}


def _turn(snapshot: Snapshot, unit: str, *, moments: bool) -> dict[str, Any]:
    """In how many seconds the unit's reservation is, if it has one; where the order reserves for every unit and it has none,
    how many there are.  `moments`: whether that is asked there."""
    core, now = snapshot.core, snapshot.now
    job, many = core.view.jobs.job(unit), core.view.order.reserves_for_all
    if not snapshot.planned(best_effort=job.best_effort) or (many and not moments):
        return {}
    last, backfill = snapshot.last, {"backfill": True} if many else {}
    mine = last.reserved(unit)
    if mine is None:
        behind = many and last.complete and core.view.foresee().could_hold(job.shape)
        return {"reservations_max": core.view.policy.reservations_max, **backfill} if behind else {}
    if mine.at == NEVER or (mine.at < now and not many):  # an attempt is there beyond the expected end
        return {}
    return {"reserved_in_s": max(0, round(mine.at - now)), **backfill}


def _gap(snapshot: Snapshot) -> dict[str, Any]:
    """How long it is until the reservation of the one that goes first, if there is only that one."""
    head = snapshot.last.head
    if snapshot.core.view.order.reserves_for_all:
        return {"backfill": True}
    return {} if head is None or head.at == NEVER else {"gap_s": max(0, round(head.at - snapshot.now))}
