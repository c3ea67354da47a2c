"""A model of what the executor, OpenNebula and the guests do, as far as the other cores can see it: facts after a while.

Theory of operation
  The model hears every fact and answers with what a healthy cluster would say: a host that is draining is cleared, an attempt
  that is placed begins, one that has begun reports when its run time is over.  Latencies of 0 answer at the same instant.

Rules
  1. A host is cleared `end_s` after its release or seizure, and no sooner than what was ended there is gone.
  2. An attempt begins `boot_s` after its placement, and no sooner than all that was ended on its hosts is gone: later than in
     production where there would be room beside that (PROTOCOL, X3), never sooner.
  3. A job that was suspended continues where it stopped; every other attempt runs from the last checkpoint, or from the start
     (`checkpointing`).
  4. An attempt that is not live any more says nothing.
  5. VMs themselves are not modelled: no `vm.*` fact is written.  The fault simulation in `tests/simulation` has them.
  6. Suspending and resuming take as long as the memory of the job's VMs takes to disk and back, one VM after the other
     (InterGrid, eq. 1), and what `latencies` say beside.  Different jobs do not wait for each other's.  Moving is modelled as
     the two together, the cold way: it takes longer than a live one, and never promises what a live one may miss.
  7. What is modelled of a web department's load is how busy its instances are, not sessions: one that drains has drained after
     `latencies.drain_s`.
  8. Where run time and time limit are equal, the job completes: both are counted by the same sums, and ends come first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from phoenix.simulate.checkpointing import Habit, Life
from phoenix.simulate.workload import Latencies
from schemas import facts as f
from schemas.facts import Disposal, Fact
from schemas.ids import is_instance, sort_key
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta


class End(NamedTuple):
    """When an attempt reports; natural order: time, then unit (unique), as it was submitted."""

    at: float
    order: tuple[int, int, str]
    unit: str
    attempt: int


class Cluster:
    """`run_s`: how long each job runs undisturbed, by unit; `habits`: of those that checkpoint."""

    def __init__(
        self,
        custody: Custody,
        latencies: Latencies,
        run_s: Mapping[str, float],
        habits: Mapping[str, Habit] | None = None,
    ) -> None:
        self.custody, self.latencies, self.run_s = custody, latencies, run_s
        self.habits = habits or {}
        self.saves: list[End] = []  # when the next checkpoint of an attempt is whole
        self._lives: dict[str, Life] = {}  # of jobs that checkpoint and have begun
        self.ends: list[End] = []
        self._waiting: list[tuple[float, int, str, int]] = []  # (due, order, host or unit, attempt; 0: a host)
        self._order = 0
        self._gone_at: dict[str, float] = {}  # host -> when what was ended there is gone, if that takes a while
        self._used_s: dict[
            str, float
        ] = {}  # suspended job -> for how long it has run, summed up as the batch core does
        self._hosts: dict[str, tuple[str, ...]] = {}  # of the open attempt
        self._began_at: dict[str, float] = {}  # open attempts of jobs
        self._memory_mb: dict[str, int] = {}  # of a job that was placed, on all its hosts
        self._saved_at: dict[str, float] = {}  # suspended job -> when it is on disk
        self._resuming_s: dict[str, float] = {}  # job that is being resumed -> how long that takes
        self.suspending_s = self.resuming_s = 0.0
        self._hears: dict[type, Callable[[Any, Meta], None]] = {
            f.HostReleased: self._drain,
            f.HostSeized: self._drain,
            f.UnitPlaced: self._placed,
            f.AttemptBegan: self._began,
            f.InstanceDraining: self._drains,
            f.AttemptClosed: self._closed,
        }

    def hear(self, fact: Fact, meta: Meta) -> None:
        handler = self._hears.get(type(fact))
        if handler is not None and meta.void is None:
            handler(fact, meta)

    def _wait(self, due: float, name: str, attempt: int) -> None:
        self._order += 1
        heapq.heappush(self._waiting, (due, self._order, name, attempt))

    def _drain(self, fact: f.HostReleased | f.HostSeized, meta: Meta) -> None:
        due = max(meta.at + self.latencies.end_s, self._gone_at.get(fact.host, 0.0))
        self._wait(due, fact.host, 0)

    def _drains(self, fact: f.InstanceDraining, meta: Meta) -> None:
        """Rule 7."""
        self._wait(meta.at + self.latencies.drain_s, fact.unit, fact.attempt)

    def _placed(self, fact: f.UnitPlaced, meta: Meta) -> None:
        gone_at = self._gone_at
        start = max([meta.at, *(gone_at[host] for host in fact.hosts if host in gone_at)]) if gone_at else meta.at
        memory_mb, boot_s = fact.memory_mb * len(fact.hosts), self.latencies.boot_s
        if fact.unit in self._used_s:
            boot_s = self.latencies.resume_s + _moved_s(memory_mb, self.latencies.resume_mb_per_s)
            start = max(start, self._saved_at.get(fact.unit, 0.0))
            self._resuming_s[fact.unit] = boot_s
        self._wait(start + boot_s, fact.unit, fact.attempt)
        self._hosts[fact.unit], self._memory_mb[fact.unit] = fact.hosts, memory_mb

    def _began(self, fact: f.AttemptBegan, meta: Meta) -> None:
        if is_instance(fact.unit):
            return
        length_s = self._length_s(fact.unit)
        if fact.unit in self.habits:
            life = self._lives.setdefault(fact.unit, Life(length_s, self.habits[fact.unit]))
            length_s = life.length_s
            self._save_next(life, fact.unit, fact.attempt, meta.at)
        seconds = max(0.0, length_s - self._used_s.get(fact.unit, 0.0))  # rule 8
        self._began_at[fact.unit] = meta.at
        self.resuming_s += self._resuming_s.pop(fact.unit, 0.0)
        heapq.heappush(self.ends, End(meta.at + seconds, sort_key(fact.unit), fact.unit, fact.attempt))

    def _closed(self, fact: f.AttemptClosed, meta: Meta) -> None:
        hosts, began_at = self._hosts.pop(fact.unit, ()), self._began_at.pop(fact.unit, None)
        ends_s = self.latencies.end_s
        if fact.disposal in (Disposal.SUSPEND, Disposal.MIGRATE):
            save_s = self.latencies.suspend_s
            save_s += _moved_s(self._memory_mb.get(fact.unit, 0), self.latencies.suspend_mb_per_s)
            ends_s = max(ends_s, save_s)
            self.suspending_s += save_s
            self._saved_at[fact.unit] = meta.at + save_s
            if began_at is not None:
                self._used_s[fact.unit] = self._used_s.get(fact.unit, 0.0) + (meta.at - began_at)
        else:
            self._used_s.pop(fact.unit, None)
            if fact.unit in self._lives:
                self._lives[fact.unit] = self._lives[fact.unit].cut_short()
            ends_s = max(ends_s, self.custody.state.units[fact.unit].grace_s or 0.0)
        if ends_s:
            for host in hosts:
                self._gone_at[host] = max(self._gone_at.get(host, 0.0), meta.at + ends_s)

    def _length_s(self, unit: str) -> float:
        """How long the attempt that begins runs undisturbed, from its job's start."""
        return self.run_s[unit]

    def _exit(self, _unit: str) -> int:
        """With which exit code the attempt that is over reports."""
        return 0

    def _save_next(self, life: Life, unit: str, attempt: int, began_at: float) -> None:
        due_s = life.next_s
        if due_s is not None:
            at = began_at + max(0.0, due_s - self._used_s.get(unit, 0.0))
            heapq.heappush(self.saves, End(at, sort_key(unit), unit, attempt))

    # -------------------------------------------------------------------------------------------------------- speaking

    def next_due(self) -> float:
        """When something happens here; what has been overtaken (rule 4) is forgotten."""
        live, ends, waiting = self.custody.live, self.ends, self._waiting
        for coming in (ends, self.saves):
            while coming and not live(coming[0].unit, coming[0].attempt):
                heapq.heappop(coming)
        while waiting and waiting[0][3] and not live(waiting[0][2], waiting[0][3]):
            heapq.heappop(waiting)
        due = min(waiting[0][0] if waiting else NEVER, ends[0].at if ends else NEVER)
        return min(due, self.saves[0].at) if self.saves else due

    def at_work(self) -> bool:
        """True if a job runs or is about to."""
        return bool(self.ends) or any(attempt for _, _, _, attempt in self._waiting)

    def reports(self, now: float) -> list[Fact]:
        """Checkpoints that are whole and attempts that are over by `now`, by time and job."""
        found: list[Fact] = []
        while self.saves and self.saves[0].at <= now:
            save = heapq.heappop(self.saves)
            if self.custody.live(save.unit, save.attempt):
                life = self._lives[save.unit]
                life.done += 1
                self._save_next(life, save.unit, save.attempt, self._began_at[save.unit])
                found.append(f.CheckpointReported(unit=save.unit, attempt=save.attempt))
        while self.ends and self.ends[0].at <= now:
            end = heapq.heappop(self.ends)
            if self.custody.live(end.unit, end.attempt):
                self._forget(end.unit)
                found.append(f.AttemptReported(unit=end.unit, attempt=end.attempt, exit=self._exit(end.unit)))
        return found

    def _forget(self, unit: str) -> None:
        self._used_s.pop(unit, None)
        for known in (self._hosts, self._began_at, self._lives, self._memory_mb, self._saved_at):
            known.pop(unit, None)

    def answers(self, now: float) -> tuple[list[Fact], list[Fact]]:
        """What the executor and what the guests (through admission) say by `now`."""
        cleared: list[Fact] = []
        began: list[Fact] = []
        while self._waiting and self._waiting[0][0] <= now:
            _, _, name, attempt = heapq.heappop(self._waiting)
            if not attempt:
                cleared.append(f.HostCleared(host=name))
                self._gone_at.pop(name, None)
            elif self.custody.live(name, attempt):
                began.append(self._word(name, attempt))
        return cleared, began

    def _word(self, unit: str, attempt: int) -> Fact:
        if self.custody.state.units[unit].drains_until is None:
            return f.AttemptBegan(unit=unit, attempt=attempt)
        return f.InstanceReported(unit=unit, attempt=attempt, state="drained", user="balancer")


def _moved_s(memory_mb: int, mb_per_s: float) -> float:
    """How long so much memory takes to disk or back; 0: no time."""
    return memory_mb / mb_per_s if mb_per_s else 0.0
