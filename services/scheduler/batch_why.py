"""Why a job waits, and what would unblock it: read from the core's state, changing nothing.

Rules
  1. The reasons are ranked: the first is the one to look at, and what would unblock it is in its parameters.
  2. They are what the core itself decides by (book, queue, room, capacities), so an explanation cannot contradict a decision.
  3. What is missing is told also of a unit that waits for something else; that there is room is not: it would not start.
     Of a unit whose dependency has failed neither is told: no host would help it.
  4. What became of earlier attempts comes last: how often they ended without its doing, why the last one did, and what is safe
     of their work.  Of a job that runs its last checkpoint is told.  Where OpenNebula has allocated no VM for an attempt, its
     words are told while that attempt lasts, and until the next one.
  5. Where the order keeps room for somebody (`order_easy`), the one is told when at the latest it starts, and who would be in
     its way how long the gap before that is.  Where it keeps room for everybody (`order_conservative`), each is told when.
  6. Where priorities are points (`order_multi_factor`), what they are made of comes after what keeps it waiting.
  7. A lease with a time slot is told of that first (`lease_why`); what else there is only if the slot has begun without it.
  8. An array is explained by its first element that is not final, named in `unit`.
  9. A job that needs more hosts than the department can have is told so: what other departments hold by guarantee, or by their
     least number of instances, does not come back when load falls or jobs end.
"""

from __future__ import annotations

from typing import Any, Final

from schemas import lending
from schemas.config import WebPolicy
from schemas.custody_state import Unit
from schemas.ids import job_of, sort_key
from schemas.reasons import Code, Reason, because
from schemas.whereabouts import usable
from services.runtime.core import NEVER
from services.scheduler import make_way
from services.scheduler.batch import BatchCore
from services.scheduler.batch_state import Job
from services.scheduler.dependencies import verdict
from services.scheduler.lease_why import why_slot
from services.scheduler.policies.order import Situation
from services.scheduler.room import Room
from services.scheduler.shape import Place, Shape

QUEUE_MAX: Final = 1000  # entries of one answer: about 100 kB


def why(core: BatchCore, job: str, now: float) -> list[Reason]:
    """Ranked reasons; empty if this department does not know the job."""
    core.book.ranked(now)
    unit = _unit(core, job)
    if unit is None:
        ended = core.state.ended.get(job_of(job)) if job_of(job) == job else None
        return [because(Code.FINISHED, end="completed" if not ended else "failed")] if ended is not None else []
    if unit.state == "final":
        return [because(Code.FINISHED, unit=unit.id, end=unit.final or "")]
    if unit.state == "open":
        return [_why_open(core, unit, now)]
    return _why_pending(core, unit.id, now)


def explained(core: BatchCore, job: str) -> str:
    """The unit that `why` is about: of an array one of its elements (rule 8); "" if there is none."""
    unit = _unit(core, job)
    return unit.id if unit is not None else ""


def queue_view(core: BatchCore, limit: int = QUEUE_MAX) -> list[dict[str, Any]]:
    """The eligible units in order, at most `limit`: unit, place, shape, priority."""
    found = []
    for number, place in enumerate(core.book.queue.in_order()[: max(0, min(limit, QUEUE_MAX))], start=1):
        job = core.book.job(place.unit)
        priority = core.book.ranking.priority(job)
        shape = {name: value for name, value in job.shape._asdict().items() if name != "constraint" or value}
        found.append({"place": number, "unit": place.unit, "priority": priority, **shape})
    return found


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
        return because(
            Code.STARTING,
            unit=unit.id,
            attempt=unit.attempt,
            hosts=hosts,
            vms_started=core.limits.started.get(unit.id, 0),
            vms=unit.nodes,
            **(_refused(core, unit) if unit.allocated.get(unit.attempt, 0).bit_count() < unit.nodes else {}),
        )
    ran_s = round(core.book.used_s(unit.id) + max(0.0, now - unit.began_at), 3)
    walltime_s = core.book.job(unit.id).walltime_s
    saved = _checkpoint(core, unit.id, now)
    return because(
        Code.RUNNING, unit=unit.id, attempt=unit.attempt, hosts=hosts, seconds=ran_s, walltime_s=walltime_s, **saved
    )


def _refused(core: BatchCore, unit: Unit) -> dict[str, str]:
    """What OpenNebula said to the unit's last attempt, if it allocated no VM for it."""
    known = core.state.refused.get(unit.id)
    if known is None or known.attempt != unit.attempt:
        return {}
    return {"refused": known.failure, "refused_why": known.why}


def _checkpoint(core: BatchCore, unit: str, now: float) -> dict[str, int | float]:
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


def _why_pending(core: BatchCore, unit: str, now: float) -> list[Reason]:
    job = core.book.job(unit)
    found = []
    if core.custody.state.units[unit].held:
        found.append(because(Code.HELD, unit=unit))
    for dependency in job.after:
        verdict_ = verdict(dependency, core.state, core.custody)
        if verdict_ != "met":
            code = Code.DEPENDENCY if verdict_ == "waits" else Code.DEPENDENCY_FAILED
            found.append(because(code, condition=dependency.condition, job=dependency.job))
    found.sort(key=lambda r: (r.code is not Code.DEPENDENCY_FAILED, r.code is not Code.HELD))
    running = core.book.queue.running.get(job_of(unit), 0)
    if job.throttle and running >= job.throttle:
        found.append(because(Code.ARRAY_THROTTLE, limit=job.throttle, running=running))
    booking = core.book.queue.bookings.get(unit)
    if booking is not None:
        found.append(why_slot(core, booking, now))
        late = found[-1].code is Code.LEASE_LATE
        rest = _why_no_room(core, unit, job.shape, now) if late else []
        return [*found, *rest, *_history(core, unit, now)]
    budgets = core.book.queue.budgets
    limit = budgets.full(core.book.owner(unit), job.shape) if budgets is not None else None
    found += [limit] if limit is not None else []
    way = None if limit is not None or job.best_effort else _guarded(core, job, now)
    found += [way] if way is not None else []
    order = core.order
    full = order.why(core.situation(now, core.room.rested(core.custody, now)), unit) if order.why is not None else None
    found += [full] if full is not None else []
    rest = _why_no_room(core, unit, job.shape, now)
    if any(reason.code is Code.DEPENDENCY_FAILED for reason in found):
        rest = []
    elif found:
        rest = [reason for reason in rest if reason.code is not Code.WAITS_BEHIND and reason.params.get("short") != 0]
    return [*found, *rest, *_priority(core, job), *_history(core, unit, now)]


def _guarded(core: BatchCore, job: Job, now: float) -> Reason | None:
    """Whether only guarded best-effort is in its way."""
    situation = core.situation(now, core.room.rested(core.custody, now))
    until = core.guards.next_moment(core.best_effort, now)
    return make_way.why(situation, core.preempting.best_effort(now), job.shape, until)


def _priority(core: BatchCore, job: Job) -> list[Reason]:
    """What the job's priority is made of, where that is points."""
    ranking = core.book.ranking
    if not ranking.by_points:
        return []
    points, fair = ranking.points(job), ranking.fair.get(job.user)
    used = {} if fair is None else {"used": round(fair.used, 4), "share": round(fair.share, 4)}
    parts = {"user_points" if name == "user" else name: round(value, 1) for name, value in points._asdict().items()}
    return [because(Code.PRIORITY, priority=points.priority, user=job.user, **parts, **used)]


def _history(core: BatchCore, unit: str, now: float) -> list[Reason]:
    """Rule 4."""
    again = core.state.again.get(unit)
    if again is None or again.why is None or again.why.code is Code.BALANCED:  # it went on: no reason to wait
        return []
    saved = {"saved_s": round(again.used_s, 3)} if again.used_s else {}
    preempted = again.requeues + again.suspends - again.moved  # to be moved for balance is no preemption
    saved |= _checkpoint(core, unit, now)
    refused = _refused(core, core.custody.state.units[unit]) if again.why.code is Code.BOOT_TIMEOUT else {}
    return [because(again.why.code, unit=unit, preempted=preempted, failed=again.faults, **saved, **refused)]


def _why_no_room(core: BatchCore, unit: str, shape: Shape, now: float) -> list[Reason]:
    """What the unit needs, what there is, and who goes first."""
    room = core.room.rested(core.custody, now)
    needs: dict[str, str | int | float | list[str]] = {
        "nodes": shape.nodes,
        "cores": shape.cores,
        "memory_mb": shape.memory_mb,
        **({"exclusive": 1} if shape.exclusive else {}),
        **({"constraint": shape.constraint} if shape.constraint else {}),
    }
    able, free, held = core.capacities.able(shape), room.count(shape), core.custody.held(core.dept)
    ahead, head = _ahead(core, core.book.place(unit))
    kept = core.order.reserved(_seen(core, unit, room, now)) if core.order.reserved is not None else None
    turn = _turn(core, unit, room, now)
    if able < shape.nodes:
        return [because(Code.TOO_LARGE_NOW, able=able, **needs)]
    counts = _host_counts(core, now)
    if held == 0:
        counts |= _agreed(core, shape.nodes, now)
        return [because(Code.NO_HOSTS_HELD, ahead=ahead, **needs, **counts)]
    if free < shape.nodes:
        if kept is not None and kept.unit == unit:
            counts["reserved_in_s"] = max(0, round(kept.at - now))
        counts |= turn | (_agreed(core, held + shape.nodes - free, now) or _kept_by(core, shape.nodes, now))
        counts |= _meeting(core, shape)
        return [because(Code.WAITS_FOR_HOSTS, free=free, short=shape.nodes - free, ahead=ahead, **needs, **counts)]
    if kept is not None:
        return [because(Code.WAITS_BEHIND, ahead=ahead, job=kept.unit, gap_s=max(0, round(kept.at - now)))]
    if head is not None and ahead:
        return [because(Code.WAITS_BEHIND, ahead=ahead, job=head.unit, **turn)]
    return [
        because(Code.WAITS_FOR_HOSTS, free=free, short=0, ahead=0, **needs, **counts)
    ]  # it starts with the next decision


def _meeting(core: BatchCore, shape: Shape) -> dict[str, int]:
    """How many held hosts satisfy its constraint, whatever runs there."""
    if not shape.constraint:
        return {}
    held = map(core.custody.state.hosts.__getitem__, core.custody.index.held.get(core.dept, ()))
    return {"meeting": sum(1 for host in held if shape.constraint in core.room.serves(host))}


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
    """Rule 9: how many hosts the department can have at most while others keep what is theirs in any case, and who they are."""
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


def _turn(core: BatchCore, unit: str, room: Room, now: float) -> dict[str, int]:
    """In how many seconds the unit's reservation is, if the order keeps room for many and it has one."""
    if core.order.reservation is None:
        return {}
    at = core.order.reservation(_seen(core, unit, room, now), unit)
    return {} if at is None or at == NEVER else {"reserved_in_s": max(0, round(at - now))}


def _seen(core: BatchCore, unit: str, room: Room, now: float) -> Situation:
    """The situation in which the order looks at the unit."""
    situation = core.situation(now, room)
    return (
        situation
        if core.book.job(unit).best_effort
        else make_way.seen(core.order, situation, core.preempting.best_effort(now))
    )


def _ahead(core: BatchCore, place: Place) -> tuple[int, Place | None]:
    return core.book.queue.ahead(place), core.book.queue.head()


def _host_counts(core: BatchCore, now: float) -> dict[str, int | list[str]]:
    """Hosts of the cluster by state, as this department sees them."""
    state, index = core.custody.state, core.custody.index
    held = core.custody.held(core.dept)
    resting = [state.hosts[name].state for name in index.apart if state.hosts[name].quarantine_until > now]
    found: dict[str, int | list[str]] = {
        "held": held,
        "held_by_others": len(index.by_state["held"]) - held,
        "free_hosts": len(index.by_state["free"]) - resting.count("free"),
        "draining": len(index.by_state["draining"]),
        "lost": len(index.by_state["lost"]),
        "cordoned": sum(1 for host in state.hosts.values() if host.cordoned is not None),
        "quarantined": len(resting),
        "on_notice": core.notice(),
    }
    by_load = _held_by_load(core)
    if by_load:
        found |= {"web": list(by_load), "held_by_web": sum(by_load.values())}
    return found


def _held_by_load(core: BatchCore) -> dict[str, int]:
    """Web department -> hosts that it holds beyond its minimum: they come back when its load falls."""
    config, found = core.custody.state.config, {}
    for department in config.departments if config is not None else ():
        if department.kind == "web":
            policy = department.web or WebPolicy()
            beyond = core.custody.held(department.name) - -(-policy.instances_min // policy.instances_per_host)
            if beyond > 0:
                found[department.name] = beyond
    return found
