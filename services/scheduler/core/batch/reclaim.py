"""Hosts go back: on a notice, because they are cordoned, or because they are of no use to the department.

Theory of operation
  A notice states that the department holds more hosts than its quota.  Idle hosts go back at once, then those that the order of
  victims empties.  `dispositions` decides what becomes of a victim; one that is to migrate moves to a host of the department
  that stays, if there is room right now.  A move is two facts of one envelope, before the release of the host that is left:
  `attempt.closed` (migrate) and `unit.placed` on the new hosts.  The executor then moves the VM, live or cold, by the deadline
  of saving (`domain.saving`).

Notices
  1. The policy's notice is answered at once (paper, II-B: "release resources immediately with the size demanded"), in one
     envelope with the closing of the attempts; nothing is placed meanwhile.
  2. A contract may give a longer one (`sharing.lending`).  Idle hosts go back at once then too; but jobs are ended only when
     the policy's notice is left of it: a job that ends by itself before that is not disturbed.
  3. A victim that asked for a grace (`domain.grace`) is ended that much earlier, with the others of its notice, so that its
     host is clear when theirs are.  Where the notice is too short for that, as the policy's mostly is, its host is given up
     with theirs, and is clear later: no other host is given up later for it.
  4. All closings on a host precede its release, so that an envelope that is cut short is still a valid answer; a unit that
     moves is placed right after its closing.

Moves
  5. Ranks on hosts that stay keep them; each other rank gets a host that stays and that the unit is not on.
  6. A unit moves only if there is room for all its ranks: a gang is never split into ranks that move and ranks that wait.
  7. Room is what is free now, beside everything that lives.  Nothing waits for what other victims leave: a move has a deadline.
  8. Of hosts with room those without a VM that is being ended (or parked) come first, since such a VM is still there for a
     while; then best fit as everywhere (`room`, rule 2).
  9. A held unit is not placed, so it is not moved either: it is suspended, and waits for its release.

Without a notice
  10. A cordoned host goes back as soon as it is idle; a drained one at its deadline, and what still runs there then ends as on
      notice.  No notice is answered with cordoned hosts: no other department could use them.
  11. An idle host that is set apart for longer than `KEPT_S` (disabled, say) goes back: the department gets another one for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from schemas import facts as f
from schemas import reasons as because
from schemas.dimensions import scarcity
from schemas.ids import sort_key
from schemas.reasons import Reason
from schemas.size import size_in
from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.stage import Said, Stage
from services.scheduler.core.batch.view import View
from services.scheduler.core.policies import registry
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Shape, Start

KEPT_S: Final = 300.0  # a host that failed starts is tried again sooner; to move it to and fro would gain nothing


class AnswerNotice:
    """`report`: reports the demand where no host goes back yet; `placing_later`: called when nothing is placed meanwhile."""

    def __init__(self, view: View, report: Stage, placing_later: Callable[[], None]) -> None:
        self.view, self.report, self.placing_later = view, report, placing_later

    def __call__(self, said: Said, now: float) -> bool:
        if not self.view.notice():
            return False
        self.placing_later()
        self._give_back(said, now)
        return True

    def next_moment(self, after: float) -> float:
        return next_due(self.view.custody, self.view.dept, after)

    def _give_back(self, said: Said, now: float) -> None:
        """Idle hosts, or else those that the victims leave."""
        view, closing = self.view, said.closing
        count = self._due_now(view.notice(), closing, now)
        if not count:
            self.report(said, now)
            return
        held, quota = view.custody.held(view.dept), view.custody.quota(view.dept).hosts
        notice = because.Notice(department=view.dept, held=held, quota=quota)
        idle = None if closing else idle_hosts(view, count)
        if idle is not None:
            said.facts += [f.HostReleased(host=name, reason=notice) for name in idle]
            return
        choice, candidates = self._choose(count, closing, now)
        kept_s, victims = view.dispositions.kept_s, view.policy.victims
        why = {unit: why_victim(candidates[unit], count, kept_s(unit), victims) for unit in choice.victims}
        said.facts += hand_back(view, choice, why, notice)

    def _due_now(self, count: int, closing: dict[str, None], now: float) -> int:
        """Of `count` hosts in all, those that go back now; of a contract's notice the others may wait for their jobs."""
        view = self.view
        must = due(view.custody, view.dept, now)
        if must >= count:
            return count
        must = max(must, self._due_for_grace(closing, now))
        idle = sum(1 for host in loads(view.custody, view.dept, closing) if not host.units)
        return max(must, min(count, idle))

    def _due_for_grace(self, closing: dict[str, None], now: float) -> int:
        """Hosts that must go back now since prospective victims have asked for a grace (rule 3)."""
        custody, dept = self.view.custody, self.view.dept
        late_s = max(latenesses(custody, dept), default=0.0)
        count = due(custody, dept, now + late_s)
        if not count:
            return 0
        choice, candidates = self._choose(count, closing, now)
        late_s = max((candidates[unit].late_s for unit in choice.victims), default=0.0)
        return due(custody, dept, now + late_s)

    def _choose(self, count: int, closing: dict[str, None], now: float) -> tuple[Choice, dict[str, Candidate]]:
        """The victims that let `count` hosts go back, and all candidates; attempts in `closing` end anyway."""
        view = self.view
        hosts = loads(view.custody, view.dept, closing)
        candidates = view.preemption.on_notice(hosts, now)
        return registry.victims(view.policy.victims)(hosts, candidates, count), candidates


class GiveUpCordoned:
    """Rule 10: whatever the quota says.  Attempts that are closing end anyway."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __call__(self, said: Said, now: float) -> bool:
        hosts, due_at = self.view.custody.state.hosts, self.view.room.cordoned
        on = {name: [u for u in hosts[name].units if u not in said.closing] for name in sorted(due_at)}
        idle = [name for name in on if not on[name]]
        said.facts += [f.HostReleased(host=name, reason=because.Cordoned(hosts=[name])) for name in idle]
        drained = [name for name in on if on[name] and due_at[name] <= now]
        if not drained:
            return False
        why: dict[str, Reason] = {unit: because.HostDrained(host=name) for name in drained for unit in on[name]}
        choice = Choice(sorted(why, key=sort_key), drained)
        said.facts += hand_back(self.view, choice, why, because.HostDrained(host=drained[0]))
        return True  # the rest follows with the next decision, which sees who is back in the queue

    def next_moment(self, after: float) -> float:
        return min((until for until in self.view.room.cordoned.values() if until > after), default=NEVER)


class ReturnUseless:
    """Rule 11."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __call__(self, said: Said, now: float) -> bool:
        hosts, resting = self.view.custody.state.hosts, self.view.room.resting
        idle = sorted(n for n, until in resting.items() if until > now + KEPT_S and not hosts[n].units)
        why = [because.NotNeeded(quarantine=hosts[name].quarantine or "") for name in idle]
        said.facts += [f.HostReleased(host=name, reason=reason) for name, reason in zip(idle, why, strict=True)]
        return False

    def next_moment(self, after: float) -> float:  # noqa: ARG002
        return NEVER


# ------------------------------------------------------------------------------------------------------------------ notices


def due(custody: Custody, dept: str, now: float) -> int:
    """Hosts that `dept` must give back at `now`, though jobs end."""
    quota, held, config = custody.quota(dept), custody.held(dept), custody.state.config
    if config is None:
        return max(0, held - quota.hosts)
    notice_s = config.policy.notice_s  # both sums: each of them may be rounded, and a wake-up must find its time come
    levels = [level for level, by in quota.lowerings if by <= now + notice_s or by - notice_s <= now]
    return max(0, held - min(levels)) if levels else 0


def next_due(custody: Custody, dept: str, after: float) -> float:
    """When next after `after` hosts must be given back though jobs end; `NEVER` if there is no such time."""
    config = custody.state.config
    if config is None or custody.held(dept) <= custody.quota(dept).hosts:
        return NEVER
    times = [by - config.policy.notice_s for _, by in custody.quota(dept).lowerings]
    late_s = [0.0, *latenesses(custody, dept)]
    return min((at - early_s for at in times for early_s in late_s if at - early_s > after), default=NEVER)


def latenesses(custody: Custody, dept: str) -> list[float]:
    """How much longer hosts wait for jobs of `dept` that asked for it, of each that runs (rule 3)."""
    units = [custody.state.units[name] for name in custody.index.open.get(dept, ())]
    return [grace.late_s(custody, unit) for unit in units if unit.grace_s is not None]


def idle_hosts(view: View, count: int) -> list[str] | None:
    """`count` idle hosts to give back, those that every order of victims would choose: the first ones by name, those with
    parked VMs last.  Hosts with something scarce are the last of all, unless the department's waiting jobs need none of it and
    another department may: then they are the first.  None if an attempt has to end, or if not all hosts are alike in that
    (cordoned, in quarantine): then the order itself is asked."""
    index = view.custody.index
    if index.apart or view.custody.held(view.dept) - len(view.room.busy) < count:
        return None
    empty = {free: names for free, names in view.room.classes.items() if free.empty}
    if index.parked or any(free.scarce for free in empty):
        sign = -1 if not _needs_scarce(view) and _others_may_need_scarce(view) else 1
        # 1. what is scarce, by who may need it; 2. no parked VMs; 3. unique: the name
        order = sorted(
            (sign * free.scarce, name in index.parked, name) for free, names in empty.items() for name in names
        )
        return [name for *_, name in order[:count]]
    names = list(empty.values())
    return names[0][:count] if len(names) == 1 else list(islice(heapq.merge(*names), count))


def _needs_scarce(view: View) -> bool:
    """Jobs of the department itself wait for it."""
    return any(scarcity(size_in(each)) for each in view.state.sizes)


def _others_may_need_scarce(view: View) -> bool:
    """A notice does not say what its claimants need: jobs of another batch department may, and web instances that ask."""
    config = view.custody.state.config
    others = [each for each in config.departments if each.name != view.dept] if config is not None else []
    return any(each.kind == "batch" or (each.web is not None and scarcity(each.web.instance) > 0) for each in others)


def hand_back(view: View, choice: Choice, why: dict[str, Reason], reason: Reason) -> list[f.Fact]:
    """The victims end or move, and their hosts go back.  `why` each of them ends; `reason` of the releases."""
    ends = view.dispositions
    wishing = [unit for unit in choice.victims if ends.wishes_to_move(unit)] if view.active else []
    moving = moves(view.custody, view.room, wishing, choice.hosts, view.jobs.shape) if wishing else {}
    closings = {}
    for unit in choice.victims:
        ended = ends.preempted(unit, why[unit], saved=ends.saved(unit))
        closings[unit] = ends.moved(unit, why[unit]) if unit in moving else ended
    placements = {
        unit: view.placement(Start(unit, view.jobs.shape(unit), hosts, because.Migrates()))
        for unit, hosts in moving.items()
    }
    return interleave(view.custody, choice, closings, placements, reason)


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


def why_victim(victim: Candidate, hosts: int, kept_s: float, victims: str) -> Reason:
    """Why it ends.  `hosts`: how many go back in all; `victims`: the order of victims that chose it; `kept_s`: what a
    checkpoint saves of its run time; if there is any, the reason states what is lost too."""
    lost_s = round(victim.lost_s, 3) if kept_s else None
    return because.Reclaimed(hosts=hosts, running_s=round(victim.running_s, 3), victims=victims, lost_s=lost_s)


def interleave(
    custody: Custody,
    choice: Choice,
    closings: dict[str, f.AttemptClosed],
    placements: dict[str, f.UnitPlaced],
    reason: Reason,
) -> list[f.Fact]:
    """Closings in the order of the victims, which is that in which they enter the queue again, each with the placement of a
    unit that moves; each host is released as soon as the last attempt on it is closed, idle ones before (rule 4)."""
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


# -------------------------------------------------------------------------------------------------------------------- moves


class _Offer(NamedTuple):
    """A host that stays.  Natural order: rule 8; the name is unique."""

    unsettled: bool
    free: Free
    host: str


def moves(
    custody: Custody,
    room: Room,
    wishing: Iterable[str],
    going: Iterable[str],
    shape_of: Callable[[str], Shape] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Which of `wishing` move, in this order of preference, and to which hosts, rank by rank.  `going`: hosts given back;
    `shape_of`: what a unit needs beside its size (its constraint)."""
    leave = dict.fromkeys(going)
    left: dict[str, Free] | None = None  # what each host that stays offers; made on first use
    found: dict[str, tuple[str, ...]] = {}
    for name in wishing:
        unit = custody.state.units[name]
        if unit.held or unit.cancelled:
            continue
        if left is None:
            left = {host: free for host, free in room.free.items() if host not in leave}
        shape = shape_of(name) if shape_of is not None else _shape(unit)
        hosts = _hosts(custody, unit, shape, left, leave)
        if hosts is None:
            continue
        found[name] = hosts
        for rank, host in enumerate(hosts):
            if host != unit.hosts[rank]:
                _take(left, host, shape)
    return found


def _hosts(
    custody: Custody, unit: Unit, shape: Shape, left: dict[str, Free], leave: dict[str, None]
) -> tuple[str, ...] | None:
    """Rules 5, 6 and 8."""
    short = sum(host in leave for host in unit.hosts)
    offers = [
        _Offer(not _settled(custody, host), free, host)
        for host, free in left.items()
        if free.fits(shape) and host not in unit.hosts
    ]
    if len(offers) < short:
        return None
    chosen = iter(sorted(offers))
    return tuple(next(chosen).host if host in leave else host for host in unit.hosts)


def _settled(custody: Custody, host: str) -> bool:
    """True if every VM on the host is that of a live attempt."""
    vms = (custody.state.vms[key] for key in custody.state.hosts[host].vms)
    return all(custody.live(vm.unit, vm.attempt) for vm in vms)


def _shape(unit: Unit) -> Shape:
    return Shape(unit.nodes, unit.size, unit.exclusive)


def _take(left: dict[str, Free], host: str, shape: Shape) -> None:
    free = left.pop(host)
    if not shape.exclusive:
        left[host] = free.beside(shape)
