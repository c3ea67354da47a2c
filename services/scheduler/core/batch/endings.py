"""How an attempt of a batch department ends when it is not its own doing: the closing of each, with its reason.

Theory of operation
  The batch core says which attempts end (broken, cancelled, over a limit, victims of a notice, making way); this module says
  what becomes of each.  It reads custody and the book, and changes nothing.

Rules
  1. Whoever was cancelled ends as cancelled, whatever else befell it.
  2. A preempted one is disposed of as its job wishes, else as its department does (`reclaim`).  Best-effort is suspended
     where the cloud can do that, unless its job says otherwise: to make way is what it is for.  Who wishes to migrate may do
     so on notice alone: who makes way for a job of the department would take the room that is being made.
  3. A lease whose time is over is stopped: that is its end as agreed, not a limit that it ran into.
  4. Only best-effort makes way for another job.  Production ends for nobody of its own department.
  5. Whom saving has failed too often (it was requeued for that while it waited, beyond `requeues_max`) is not suspended again.
  6. Whose VM failed, or was refused, is told so in OpenNebula's words, as the executor wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from schemas import facts as f
from schemas.config import BatchPolicy, OnReclaim
from schemas.facts import Disposal
from schemas.reasons import Code, Reason, because
from services.domain.capabilities import can
from services.domain.custody.broken import why_broken
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch import reclaim
from services.scheduler.core.batch.book import Book
from services.scheduler.core.batch.launches import is_counted, is_launch_failure
from services.scheduler.core.state.limits import Limit


class Endings:
    """`policy`: the department's settings now."""

    def __init__(self, custody: Custody, book: Book, policy: Callable[[], BatchPolicy]) -> None:
        self.custody, self.book, self.policy = custody, book, policy

    def close(self, name: str, disposal: Disposal, why: Reason) -> f.AttemptClosed:
        return f.AttemptClosed(unit=name, attempt=self.custody.state.units[name].attempt, disposal=disposal, why=why)

    def broken(self, name: str) -> f.AttemptClosed:
        unit = self.custody.state.units[name]
        assert unit.broken is not None
        if unit.cancelled:
            return self.close(name, Disposal.CANCELLED, because(Code.CANCELLED))
        why = why_broken(unit.broken)
        if why.code in (Code.RECLAIMED, Code.HOST_TAKEN):
            return self.preempted(name, why)
        return self._again(unit, because(why.code, **self._words(unit)) if why.code is Code.VM_ENDED else why)

    def _again(self, unit: Unit, why: Reason) -> f.AttemptClosed:
        """By no wish of anybody: it starts again."""
        state = self.book.state
        again = state.again.get(unit.id)
        if is_launch_failure(unit, why):
            return reclaim.start_again(unit.id, unit.attempt, again, why, counted=is_counted(state, why))
        return reclaim.requeue(unit.id, unit.attempt, again, self.policy(), why)

    def _words(self, unit: Unit) -> dict[str, str]:
        """What OpenNebula said of the unit's attempt (rule 6)."""
        said = self.book.state.refused.get(unit.id)
        if said is None or said.attempt != unit.attempt:
            return {}
        return {"refused": said.failure, "refused_why": said.why} if said.failure else {"vm": said.why}

    def overdue(self, limit: Limit) -> f.AttemptClosed:
        name, policy = limit.unit, self.policy()
        if limit.kind == "slot" or (limit.kind == "walltime" and self.book.job(name).lease is not None):
            return self.close(
                name, Disposal.STOPPED, because(Code.LEASE_ENDED, walltime_s=self.book.job(name).walltime_s)
            )
        if limit.kind == "walltime":
            return self.close(name, Disposal.TIMEOUT, because(Code.WALLTIME, walltime_s=self.book.job(name).walltime_s))
        words = self._words(self.custody.state.units[name])
        why = because(Code.BOOT_TIMEOUT, limit=limit.kind, boot_timeout_s=policy.boot_timeout_s, **words)
        return self._again(self.custody.state.units[name], why)

    def preempted(self, name: str, why: Reason, *, saved: bool = False) -> f.AttemptClosed:
        attempt, again = self.custody.state.units[name].attempt, self.book.state.again.get(name)
        return reclaim.close_preempted(name, attempt, self._wish(name), again, self.policy(), why, saved=saved)

    def moved(self, name: str, why: Reason) -> f.AttemptClosed:
        """It goes on elsewhere at once: its placement follows in the same envelope."""
        return self.close(name, Disposal.MIGRATE, why)

    def made_way(self, names: Iterable[str], for_unit: str, closing: dict[str, None]) -> list[f.AttemptClosed]:
        """Rule 4: those whose room `for_unit` needs; not those that are `closing` anyway."""
        why = because(Code.MADE_WAY, job=for_unit)
        return [self.preempted(name, why, saved=self.saved(name)) for name in names if name not in closing]

    def saved(self, name: str) -> bool:
        """True if the unit's attempt would be suspended were it a victim now."""
        return self._able and self._has_work(name) and self._requeues(name) <= self.policy().requeues_max  # rule 5

    def saves_later(self, name: str) -> bool:
        """True if the unit's attempt has not begun, and would be suspended once it has."""
        return self._able and self.custody.state.units[name].began_at is None and self._wish(name) == "suspend"

    def wishes_to_move(self, name: str) -> bool:
        """True if the unit's attempt would go on elsewhere were it a victim now and were there room."""
        return self._wish(name) == "migrate" and self._can("migrate") and self._has_work(name)

    def _has_work(self, name: str) -> bool:
        return reclaim.saves(self.custody.state.units[name], self._wish(name), self.book.used_s(name))

    def kept_s(self, name: str) -> float:
        """How much of what the unit has run is safe and would be gone on from, were it a victim now, in seconds."""
        spent = self._requeues(name) >= self.policy().requeues_max
        return 0.0 if spent or self._wish(name) == "kill" else self.book.saved.kept_s(name)

    def _requeues(self, name: str) -> int:
        again = self.book.state.again.get(name)
        return 0 if again is None else again.requeues

    def _wish(self, name: str) -> OnReclaim:
        """Rule 2."""
        job = self.book.job(name)
        return job.on_reclaim or ("suspend" if job.best_effort and self._able else self.policy().on_reclaim)

    @property
    def _able(self) -> bool:
        """True if this cloud can suspend."""
        return self._can("suspend")

    def _can(self, wish: OnReclaim) -> bool:
        config = self.custody.state.config
        return config is not None and can(config.capabilities, wish)
