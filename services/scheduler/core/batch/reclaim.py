"""Giving hosts back: what becomes of an attempt that must end, and the facts that answer a notice.

Rules
  1. Preempted and lost attempts never count against the job's retry budget (PROTOCOL, Jobs).
  2. Disposal of a preempted attempt is the job's `on_reclaim`, else the department's.  Whoever wishes to be suspended is if the
     cloud can do it (`CloudConfig.capabilities`) and there is work to save: its guests began, in this attempt or one that was
     suspended, and its host is still held (a VM whose host was taken is ended at once).  Else it is requeued, and the reason
     says so.  Whoever wishes to migrate moves if other hosts of the department have room at this moment (`moving`), else is
     suspended, else requeued.
  3. What is requeued too often is killed: it would never finish.  Preemptions and lost hosts are counted together, up to
     `requeues_max`; suspensions and moves are not, since they lose nothing, unless saving fails.  VMs that end without a
     report are counted up to `FAULTS_MAX`, or a script that crashes its machine would be started for ever.  An attempt that
     ended before it began is not counted at all: it waits, and may be held (`launches`).
  4. All closings of a host stand before its release, so that an envelope that is cut short is still a valid answer; who moves
     is placed right after its closing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas import facts as f
from schemas.config import BatchPolicy, OnReclaim
from schemas.facts import Disposal
from schemas.ids import sort_key
from schemas.reasons import Code, Reason, because
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.launches import is_its_own
from services.scheduler.core.batch.state import Again
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad

FAULTS_MAX: Final = 10  # each has run for a while; what has crashed its VM ten times will the eleventh
TAKEN: Final = (Code.RECLAIMED, Code.MADE_WAY, Code.HOST_TAKEN, Code.HOST_DRAINED)  # its hosts were wanted otherwise
PREEMPTING: Final = (*TAKEN, Code.HOST_LOST, Code.NOT_SAVED)
UNRELIABLE: Final = (
    Code.VM_ENDED,
    Code.BOOT_TIMEOUT,
)  # it may have been the host: another one is tried if there is one


def is_fault(why: Reason) -> bool:
    """True if a requeue for `why` of an attempt that had begun counts as a fault, not as a preemption."""
    return why.code not in PREEMPTING


def close_preempted(
    unit: str, attempt: int, wish: OnReclaim, again: Again | None, policy: BatchPolicy, why: Reason, *, saved: bool
) -> f.AttemptClosed:
    """The attempt's host is needed or gone: dispose of it as the job wishes.  `saved`: it can be suspended (`saves`)."""
    params, instead = dict(why.params), "suspend" if saved else "requeue"
    if wish in ("suspend", "migrate") and wish != instead:
        params |= {"asked": wish, "instead": instead}
    if saved:
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.SUSPEND, why=because(why.code, **params))
    if wish == "kill":
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.KILL, why=because(why.code, **params))
    return requeue(unit, attempt, again, policy, because(why.code, **params))


def saves(unit: Unit, wish: OnReclaim, used_s: float) -> bool:
    """True if the job wishes that its work be saved, and there is some.  `used_s`: saved by earlier suspensions."""
    return wish in ("suspend", "migrate") and (unit.began_at is not None or used_s > 0)


def start_again(unit: str, attempt: int, again: Again | None, why: Reason, *, counted: bool) -> f.AttemptClosed:
    """It ended before it began: back into the queue, or held (`launches`).  `counted`: `launches.is_counted`."""
    held = counted and is_its_own(again)
    params: dict[str, int] = {"began": 0}
    if held:
        assert again is not None
        params["failed"] = again.launches + 1
    why = because(why.code, **(why.params | params))
    return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.REQUEUE, why=why, hold=held)


def requeue(unit: str, attempt: int, again: Again | None, policy: BatchPolicy, why: Reason) -> f.AttemptClosed:
    """Back into the queue, or killed if that has happened too often."""
    count, most = (0 if again is None else again.requeues), policy.requeues_max
    if is_fault(why):
        count, most = (0 if again is None else again.faults), min(FAULTS_MAX, policy.requeues_max)
    if count < most:
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.REQUEUE, why=why)
    spent = because(why.code, **(why.params | {"requeues": count, "requeues_max": most}))
    return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.KILL, why=spent)


def loads(custody: Custody, dept: str, closing: dict[str, None]) -> list[HostLoad]:
    """The department's hosts with their live attempts, except those that are being closed anyway.  Without the cordoned ones:
    to give one back for another's claim would not help (PROTOCOL, host.cordoned)."""
    beside, parked = dict.fromkeys(custody.cordoned(dept)), custody.index.parked
    names = sorted(name for name in custody.index.held.get(dept, ()) if name not in beside)
    hosts = [custody.state.hosts[name] for name in names]
    return [
        HostLoad(
            h.name,
            h.cordoned is not None,
            tuple(sorted((u for u in h.units if u not in closing), key=sort_key)),
            h.name in parked,
        )
        for h in hosts
    ]


def candidates(
    custody: Custody,
    hosts: list[HostLoad],
    now: float,
    used_s: Callable[[str], float],
    saved: Callable[[str], bool],
    best_effort: Callable[[str], bool],
    kept_s: Callable[[str], float],
) -> dict[str, Candidate]:
    """The attempts on `hosts`.  Of a unit: `used_s`: how long it ran in suspended attempts; `saved`: whether it would be
    suspended; `best_effort`: whether it is; `kept_s`: how much of what it ran is in a checkpoint."""
    found: dict[str, Candidate] = {}
    for host in hosts:
        for name in host.units:
            if name not in found:
                unit = custody.state.units[name]
                running_s = used_s(name) + (0.0 if unit.began_at is None else max(0.0, now - unit.began_at))
                lost_s = 0.0 if saved(name) else max(0.0, running_s - kept_s(name))
                found[name] = Candidate(
                    name, unit.nodes, running_s, lost_s, best_effort(name), cores=unit.nodes * unit.cores
                )
    return found


def why_victim(victim: Candidate, hosts: int, kept_s: float, victims: str) -> Reason:
    """Why it ends.  `hosts`: how many go back in all; `victims`: the order of victims that chose it; `kept_s`: what a
    checkpoint saves of what it has run; then what is lost is told too."""
    lost = {"lost_s": round(victim.lost_s, 3)} if kept_s else {}
    return because(Code.RECLAIMED, hosts=hosts, running_s=round(victim.running_s, 3), victims=victims, **lost)


def interleave(
    custody: Custody,
    choice: Choice,
    closings: dict[str, f.AttemptClosed],
    placements: dict[str, f.UnitPlaced],
    reason: Reason,
) -> list[f.Fact]:
    """Closings in the order of the victims, which is that in which they enter the queue again, each with the placement of who
    moves; each host is released as soon as the last one on it is closed, idle ones before (rule 4)."""
    hosts_of = {unit: custody.state.units[unit].hosts for unit in choice.victims}
    left = dict.fromkeys(choice.hosts, 0)  # host that goes back -> victims on it
    for hosts in hosts_of.values():
        for name in hosts:
            if name in left:
                left[name] += 1
    found: list[f.Fact] = [f.HostReleased(host=name, reason=reason) for name, units in left.items() if not units]
    for unit, hosts in hosts_of.items():
        found.append(closings[unit])
        if unit in placements:
            found.append(placements[unit])
        for name in hosts:
            if name in left:
                left[name] -= 1
                if not left[name]:
                    found.append(f.HostReleased(host=name, reason=reason))
    return found
