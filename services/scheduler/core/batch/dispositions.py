"""How an attempt of a batch department is ended: its closing, with the reason.

Theory of operation
  The batch core decides which attempts end (broken, cancelled, over a limit, victims of a notice, preempted for a job); this
  module decides what becomes of each.  It reads custody and the jobs, and changes nothing.

Rules
  1. A cancelled attempt ends as cancelled, whatever else happened to it.
  2. A preempted attempt is handled as its job asks (`on_reclaim`), else as its department does.  Where that is suspension, it
     is suspended if the cloud supports it (`CloudConfig.capabilities`) and there is work to save: its guests called, in this
     attempt or one that was suspended, and its host is still held (a VM whose host was taken is ended at once).  Else it is
     requeued, and the reason says so; or killed, if that has happened too often (`faults`).  Best-effort is suspended where the
     cloud supports that, unless its job asks otherwise.  Where migration is asked for, the attempt moves if other hosts of the
     department have room at this moment (`reclaim`), else it is suspended, else requeued.  It may move on notice alone: moving
     for another job of the department would take the room that is being made.
  3. A lease whose time is over is stopped: that is its agreed end, not a limit that it exceeded.
  4. Only best-effort is preempted for another job; production never is, within its own department.
  5. A unit that lost its saved work too often (each loss requeued it, beyond `requeues_max`) is not suspended again.
  6. The reason of a VM that failed or was refused quotes OpenNebula's message, as the executor recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import Cause
from schemas.config import BatchPolicy, OnReclaim
from schemas.facts import Disposal
from schemas.reasons import Reason
from schemas.size import Size
from services.domain.capabilities import can
from services.domain.custody.broken import cause_of, why_broken
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.faults import FAULTS_MAX, is_fault
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.launches import is_counted, is_its_own, is_launch_failure
from services.scheduler.core.batch.state import Again
from services.scheduler.core.state.limits import Limit


class Dispositions:
    """`policy`: the department's settings now."""

    def __init__(self, custody: Custody, jobs: Jobs, policy: Callable[[], BatchPolicy]) -> None:
        self.custody, self.jobs, self.policy = custody, jobs, policy

    def close(self, name: str, disposal: Disposal, why: Reason) -> f.AttemptClosed:
        return f.AttemptClosed(unit=name, attempt=self.custody.state.units[name].attempt, disposal=disposal, why=why)

    def broken(self, name: str) -> f.AttemptClosed:
        unit = self.custody.state.units[name]
        assert unit.broken is not None
        if unit.cancelled:
            return self.close(name, Disposal.CANCELLED, because.Cancelled())
        cause, why = cause_of(unit.broken), why_broken(unit.broken)
        if cause in (Cause.RECLAIMED, Cause.SEIZED):
            return self.preempted(name, why)
        return self._again(unit, cause, because.EndedVm(**self._words(unit)) if cause is Cause.VM_ENDED else why)

    def _again(self, unit: Unit, cause: Cause, why: Reason) -> f.AttemptClosed:
        """The attempt ended though neither user nor department asked for it: the unit starts again."""
        state = self.jobs.state
        again = state.again.get(unit.id)
        if is_launch_failure(unit, cause):
            words, counted = self._words(unit), is_counted(state, cause)
            return start_again(unit.id, unit.attempt, again, why, words, counted=counted)
        return requeue(unit.id, unit.attempt, again, self.policy(), cause, why)

    def _words(self, unit: Unit) -> dict[str, Any]:
        """OpenNebula's message about the unit's attempt (rule 6)."""
        said = self.jobs.state.refused.get(unit.id)
        if said is None or said.attempt != unit.attempt:
            return {}
        return {"refused": said.failure, "refused_why": said.why} if said.failure else {"vm": said.why}

    def overdue(self, limit: Limit) -> f.AttemptClosed:
        name, policy = limit.unit, self.policy()
        if limit.kind == "slot" or (limit.kind == "walltime" and self.jobs.job(name).lease is not None):
            return self.close(name, Disposal.STOPPED, because.LeaseEnded(walltime_s=self.jobs.job(name).walltime_s))
        if limit.kind == "walltime":
            return self.close(name, Disposal.TIMEOUT, because.Walltime(walltime_s=self.jobs.job(name).walltime_s))
        words = self._words(self.custody.state.units[name])
        why = because.BootTimeout(limit=limit.kind, boot_timeout_s=policy.boot_timeout_s, **words)
        cause = Cause.START_TIMEOUT if limit.kind == "start" else Cause.BOOT_TIMEOUT
        return self._again(self.custody.state.units[name], cause, why)

    def preempted(self, name: str, why: Reason, *, saved: bool = False) -> f.AttemptClosed:
        attempt, again = self.custody.state.units[name].attempt, self.jobs.state.again.get(name)
        return close_preempted(name, attempt, self._wish(name), again, self.policy(), why, saved=saved)

    def moved(self, name: str, why: Reason) -> f.AttemptClosed:
        """The attempt continues elsewhere at once: its placement follows in the same envelope."""
        return self.close(name, Disposal.MIGRATE, why)

    def made_way(self, names: Iterable[str], for_unit: str, closing: dict[str, None]) -> list[f.AttemptClosed]:
        """Rule 4: preempts the attempts whose room `for_unit` needs, except those that are `closing` anyway."""
        why = because.Preempted(job=for_unit)
        return [self.preempted(name, why, saved=self.saved(name)) for name in names if name not in closing]

    def saved(self, name: str) -> bool:
        """True if the unit's attempt would be suspended were it a victim now."""
        able = self._can("suspend", self.custody.state.units[name].size)
        return able and self._has_work(name) and self._requeues(name) <= self.policy().requeues_max  # rule 5

    def saves_later(self, name: str) -> bool:
        """True if the unit's attempt has not begun, and would be suspended once it has."""
        unit = self.custody.state.units[name]
        return self._can("suspend", unit.size) and unit.began_at is None and self._wish(name) == "suspend"

    def wishes_to_move(self, name: str) -> bool:
        """True if the unit's attempt, were it a victim now and were there room, would move to other hosts."""
        can = self._wish(name) == "migrate" and self._can("migrate", self.custody.state.units[name].size)
        return can and self._has_work(name)

    def _has_work(self, name: str) -> bool:
        return saves(self.custody.state.units[name], self._wish(name), self.jobs.used_s(name))

    def kept_s(self, name: str) -> float:
        """How much of the unit's run time is safe and would be continued if it were a victim now, in seconds."""
        spent = self._requeues(name) >= self.policy().requeues_max
        return 0.0 if spent or self._wish(name) == "kill" else self.jobs.checkpoints.kept_s(name)

    def _requeues(self, name: str) -> int:
        again = self.jobs.state.again.get(name)
        return 0 if again is None else again.requeues

    def _wish(self, name: str) -> OnReclaim:
        """Rule 2."""
        job = self.jobs.job(name)
        return job.on_reclaim or (
            "suspend" if job.best_effort and self._can("suspend", job.size) else self.policy().on_reclaim
        )

    def _can(self, wish: OnReclaim, size: Size) -> bool:
        """True if this cloud can do that with a unit that has this much."""
        config = self.custody.state.config
        return config is not None and can(config.capabilities, wish, size)


def close_preempted(
    unit: str, attempt: int, wish: OnReclaim, again: Again | None, policy: BatchPolicy, why: Reason, *, saved: bool
) -> f.AttemptClosed:
    """The attempt's host is needed or gone: dispose of it as the job wishes.  `saved`: it can be suspended (`saves`)."""
    instead = "suspend" if saved else "requeue"
    if wish in ("suspend", "migrate") and wish != instead:
        why = msgspec.structs.replace(why, asked=wish, instead=instead)
    if saved:
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.SUSPEND, why=why)
    if wish == "kill":
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.KILL, why=why)
    return requeue(unit, attempt, again, policy, Cause.RECLAIMED, why)


def saves(unit: Unit, wish: OnReclaim, used_s: float) -> bool:
    """True if the job wishes that its work be saved, and there is some.  `used_s`: saved by earlier suspensions."""
    return wish in ("suspend", "migrate") and (unit.began_at is not None or used_s > 0)


def start_again(
    unit: str, attempt: int, again: Again | None, why: Reason, words: dict[str, Any], *, counted: bool
) -> f.AttemptClosed:
    """It ended before it began: back into the queue, or held (`launches`).  `words`: what OpenNebula reported of it; `counted`:
    `launches.is_counted`."""
    held = counted and is_its_own(again)
    failed = again.launches + 1 if held and again is not None else None
    why = msgspec.structs.replace(why, began=False, failed=failed)
    reason = because.Held(failed=failed, **words) if held else None
    return f.AttemptClosed(
        unit=unit, attempt=attempt, disposal=Disposal.REQUEUE, why=why, hold=held, hold_reason=reason
    )


def requeue(
    unit: str, attempt: int, again: Again | None, policy: BatchPolicy, cause: Cause, why: Reason
) -> f.AttemptClosed:
    """Back into the queue, or killed if that has happened too often."""
    count, most = (0 if again is None else again.requeues), policy.requeues_max
    if is_fault(cause):
        count, most = (0 if again is None else again.faults), min(FAULTS_MAX, policy.requeues_max)
    if count < most:
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.REQUEUE, why=why)
    spent = msgspec.structs.replace(why, requeues=count, requeues_max=most)
    return f.AttemptClosed(unit=unit, attempt=attempt, disposal=Disposal.KILL, why=spent)
