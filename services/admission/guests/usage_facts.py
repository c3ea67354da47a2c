"""What jobs use while they run, as their guests report (`POST used`), and the fact of it once no more can be reported.

Theory of operation
  A guest reports now and then what it has used since its VM began: totals, so the next report makes good a lost one.
  They are levels: summed over ranks, they go to the monitor as measures.  What counts permanently is the last report, and that
  is known when the attempt has no VM any more: then it is a fact (`attempt.measured`), one an attempt, whatever it ended of,
  also with its host.  The report of a job of one rank contains the same, and then there is no such fact.

Rules
  1. A word counts as long as its VM is open under the name that its guest goes by (`Custody.bound`), whatever its attempt is
     worth; so a guest that has to end sends its last report, and one whose VM has ended sends nothing more.
  2. Totals only grow: of two words of a rank the greater counts.
  3. What no machine could have used in the time that this VM is there is no word, and counted; nor is it believed of a
     report.
  4. Bounded by the VMs that are open: what is known of an attempt goes with its fact.
  5. An admission that dies loses these reports: guests of jobs that run repeat them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import web

from schemas import facts as f
from schemas.facts import Fact
from schemas.ids import is_instance
from schemas.measures import CORES_MAX, MEMORY_MAX_MB, JobMeasured, JobUsage
from schemas.times import exact
from services.admission.answers import HttpError, decoded, no_content
from services.admission.commands.dispatcher import Shell
from services.admission.core.admission import AdmissionCore
from services.admission.guests.guest import Guest
from services.admission.guests.usage_reports import Usages
from services.domain.custody.state import vm_key
from services.domain.refusal import Refused

BODY_MAX_BYTES: Final = 4096
FACTS_MAX: Final = 200  # of one envelope
RETRY_S: Final = 1.0
CLOCK_S: Final = 60.0  # by so much the clocks of two machines may differ
GOING_ON_S: Final = 366 * 86_400.0  # a VM that was suspended or moved is no older than that


class Word(msgspec.Struct, frozen=True):
    """Of one rank; `at`: when it was heard, UTC seconds."""

    cpu_seconds: float
    max_rss_mb: float | None
    at: float


_Key = tuple[str, int]  # unit, attempt


class JobUsages:
    def __init__(self, shell: Shell, core: AdmissionCore, usages: Usages) -> None:
        self._shell, self._core, self._usages = shell, core, usages
        self._words: dict[str, dict[int, dict[int, Word]]] = {}  # unit -> attempt -> rank -> its last
        self._due: dict[_Key, None] = {}
        self._news = asyncio.Event()

    async def used(self, request: web.Request, guest: Guest) -> web.Response:
        if is_instance(guest.unit):
            raise HttpError(
                400, Refused("invalid", "only a job's guest reports this; an instance's reports usage", "unit")
            )
        body = decoded(request, guest.body, JobUsage)
        self.hear(guest, body.cpu_seconds, body.max_rss_mb)
        return no_content()

    def hear(self, guest: Guest, cpu_seconds: float, max_rss_mb: float | None) -> None:
        if not self._is_plausible(guest, cpu_seconds, max_rss_mb):
            return
        if self._note(guest, cpu_seconds, max_rss_mb) is not None:
            ranks = self._words[guest.unit][guest.attempt]
            self._usages.hear_job(guest.known.dept, guest.rank, _so_far(_measured(guest.unit, guest.attempt, ranks)))

    def reports(
        self, guest: Guest, cpu_seconds: float | None, max_rss_mb: float | None
    ) -> tuple[float | None, float | None]:
        """What is believed of a report, with what its guest has said before; heard also where it is worth nothing else."""
        if not self._is_plausible(guest, cpu_seconds, max_rss_mb):
            return None, None
        word = None if cpu_seconds is None else self._note(guest, cpu_seconds, max_rss_mb)
        return (cpu_seconds, max_rss_mb) if word is None else (word.cpu_seconds, word.max_rss_mb)

    def _note(self, guest: Guest, cpu_seconds: float, max_rss_mb: float | None) -> Word | None:
        """What is known of this rank then; None: it was not heard."""
        vm = self._core.custody.bound(guest.unit, guest.named, guest.rank)
        if vm is None or vm.attempt != guest.attempt:  # rule 1
            return None
        ranks = self._words.setdefault(guest.unit, {}).setdefault(guest.attempt, {})
        word = ranks[guest.rank] = _greater(ranks.get(guest.rank), Word(cpu_seconds, max_rss_mb, self._shell.now()))
        return word

    def _is_plausible(self, guest: Guest, cpu_seconds: float | None, max_rss_mb: float | None) -> bool:
        """Rule 3.  What is not is counted."""
        vm = self._core.custody.bound(guest.unit, guest.named, guest.rank)
        new = vm is not None and vm.known_as in ("", vm_key(vm.unit, vm.attempt, vm.rank))
        there_s = self._shell.now() - vm.allocated_at + CLOCK_S if vm is not None and new else GOING_ON_S
        found = (cpu_seconds or 0.0) <= CORES_MAX * there_s and (max_rss_mb or 0.0) <= MEMORY_MAX_MB
        if not found:
            self._usages.implausible()
        return found

    def applied(self, fact: Fact, broken: tuple[str, ...]) -> None:
        """A valid fact came: nothing more is heard of an attempt whose last VM is gone, lost with its host, or another
        attempt's now."""
        if isinstance(fact, f.AttemptReported):
            self._reported(fact)
            return
        units = (fact.unit,) if isinstance(fact, f.VmEnded | f.VmAllocated) else broken
        for unit in units:
            for attempt in self._words.get(unit, ()):
                if not self._has_vm(unit, attempt):
                    self._due[unit, attempt] = None
                    self._news.set()

    def _reported(self, fact: f.AttemptReported) -> None:
        """Of a job of one rank its report says it all."""
        ranks = self._words.get(fact.unit, {}).get(fact.attempt, {})
        if fact.cpu_seconds is not None and ranks.keys() <= {0}:
            self._forget((fact.unit, fact.attempt))

    def _has_vm(self, unit: str, attempt: int) -> bool:
        known, state = self._core.unit(unit), self._core.custody.state
        keys = [vm_key(unit, attempt, rank) for rank in range(known.nodes if known is not None else 0)]
        hosts = [state.hosts.get(state.vms[key].host) for key in keys if key in state.vms]
        return any(host is not None and host.state != "lost" for host in hosts)

    def _forget(self, key: _Key) -> None:
        unit, attempt = key
        self._due.pop(key, None)
        attempts = self._words.get(unit, {})
        attempts.pop(attempt, None)
        if not attempts:
            self._words.pop(unit, None)

    # --------------------------------------------------------------------------------------------------------- the facts

    async def run(self) -> None:
        """As long as the door is open."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._due:
                try:
                    await self.write()
                except Refused:  # no journal at the moment
                    await asyncio.sleep(RETRY_S)

    async def write(self) -> None:
        """One envelope of what is due.  Raises `Refused`."""
        keys = list(self._due)[:FACTS_MAX]

        def facts(_now: float, _drafted: Sequence[Fact]) -> list[Fact]:
            return [_measured(*key, self._words[key[0]][key[1]]) for key in keys if key in self._due]

        await self._shell.propose(facts, cause=keys[0][0] if len(keys) == 1 else "")
        for key in keys:
            self._forget(key)


def _greater(before: Word | None, word: Word) -> Word:
    """Rule 2."""
    if before is None:
        return word
    peaks = [peak for peak in (before.max_rss_mb, word.max_rss_mb) if peak is not None]
    return Word(max(before.cpu_seconds, word.cpu_seconds), max(peaks, default=None), word.at)


def _measured(unit: str, attempt: int, ranks: dict[int, Word]) -> f.AttemptMeasured:
    words = [ranks[rank] for rank in sorted(ranks)]
    peaks = [word.max_rss_mb for word in words if word.max_rss_mb is not None]
    return f.AttemptMeasured(
        unit=unit,
        attempt=attempt,
        cpu_seconds=round(sum(word.cpu_seconds for word in words), 3),
        max_rss_mb=max(peaks, default=None),
        ranks=len(words),
        heard_at=min(word.at for word in words),
    )


def _so_far(said: f.AttemptMeasured) -> JobMeasured:
    return JobMeasured(
        unit=said.unit,
        attempt=said.attempt,
        cpu_seconds=said.cpu_seconds,
        max_rss_mb=said.max_rss_mb,
        ranks=said.ranks,
        heard_at=exact(said.heard_at),
    )
