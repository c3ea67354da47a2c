"""The engine of a shell: fold what has arrived, draft what follows, one envelope at a time.

    reader ──▶ fold (custody, core) ──▶ edges
                  │
       leading and nothing outstanding?
                  │
      proposals + decide(now) ──▶ one envelope ──▶ fenced append ──▶ journal ──▶ reader

What it decides: when to fold and when to draft.  It must never decide *what* follows from the state (the core does), and never
change state other than by folding.  It has loops, which the service's task group runs: `fold_forever`, `append_forever`, and
the watch on the journal's room.

Rules (PROTOCOL, Shells)
  S1  one envelope outstanding; a fact counts when it has come back, not when it was sent
  S3  a new leader writes `leader.started` first and decides after it has come back; an envelope of another writer on the own
      subject, while this one leads or is about to, means deposed
  S4  the same fact void again and again: stop (`drafts`)
  S6  now = max(own clock, fold time); a broker's timestamp that does not fit the own clock: stop
  S8  unknown custody kinds or rules: stop
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from copy import copy
from enum import Enum
from typing import Any, Final, Protocol

from nats.js import JetStreamContext

from schemas.envelope import Received
from schemas.facts import Fact, LeaderStarted, LeaderStopped, begins, kind_of
from schemas.subjects import journal
from services.domain.core import NEVER
from services.domain.custody.meta import Meta
from services.domain.custody.rules import Incompatible
from services.domain.custody.state import Leader
from services.domain.exits import Exit, Stop
from services.domain.refusal import Refused
from services.runtime.alarm import Alarm
from services.runtime.clock import Clock, StepDetector, decision_time, skew_s
from services.runtime.drafts import Draft, VoidStreaks
from services.runtime.journal.append import Deposed, Full, Journal
from services.runtime.journal.fold import Fold, Stored
from services.runtime.journal.headroom import Room
from services.runtime.journal.reader import Reader
from services.runtime.log import Log
from services.runtime.proposals import Compose, Outcome, Proposal
from services.runtime.refusals import FULL

BATCH_MAX: Final = 500  # messages folded before it is decided again what follows from them
SLICE_BYTES: Final = 16 << 10  # of them before others have their turn: a millisecond or two of facts
PROPOSALS_MAX: Final = 10_000  # waiting callers; more would wait longer than PROPOSE_TIMEOUT_S
PROPOSE_TIMEOUT_S: Final = 5.0
FULL_RETRY_S: Final = 0.5  # between two tries of decided facts while the journal is full
WAKE_MIN_S: Final = 0.002  # a timer may fire a little early by the wall clock
WAKE_MAX_S: Final = 1.0  # look again at least this often: the wall clock may be set
SLOW_DECIDE_S: Final = 0.002  # a decide that takes longer rests as long: at most half a processor, whatever arrives
SKEW_MAX_DEFAULT_S: Final = 0.5  # until a configuration is adopted


class Phase(Enum):
    FOLLOWING = "following"  # standby, or a pure follower
    STARTING = "starting"  # `leader.started` is to be written or on its way
    LEADING = "leading"
    STOPPING = "stopping"  # `leader.stopped` is to be written or on its way
    STOPPED = "stopped"


class Timings(Protocol):
    """Where durations go (`metrics.ShellMetrics`)."""

    def appended(self, seconds: float) -> None: ...
    def decided(self, seconds: float) -> None: ...
    def refused(self, reason: str) -> None: ...


class Engine:
    """`own_stopped` is called when another instance's `leader.stopped` of this writer is folded; `absorbed` with the number of
    messages after each batch, and with their bytes; `settled` after each batch, and once after the first catch-up."""

    def __init__(
        self,
        fold: Fold,
        *,
        writer: str | None,
        instance: str,
        clock: Clock,
        timings: Timings,
        log: Log,
        own_stopped: Callable[[], None],
        absorbed: Callable[[int, int], None],
        settled: Callable[[], None],
    ) -> None:
        self.fold, self.writer, self.instance = fold, writer, instance
        self.process = secrets.token_hex(6)  # names this process in message ids and in the lease
        self.phase = Phase.FOLLOWING
        self.phase_changed = asyncio.Event()
        self.full = False
        self.room = Room(self.wake, log)
        self.predecessor: Leader | None = None  # the last leader before this one took over
        self._subject = journal(writer) if writer else ""
        self._clock, self._timings, self._log = clock, timings, log
        self._own_stopped, self._absorbed, self.settle = own_stopped, absorbed, settled
        self._reader: Reader | None = None
        self._journal: Journal | None = None
        self._kicked = asyncio.Event()
        self._parcelled = asyncio.Event()
        self._proposals: deque[Proposal] = deque()
        self._draft: Draft | None = None
        self._ids = itertools.count(1)
        self._dirty = True  # decide has not seen the last fact
        self._decided_first = False
        self._not_before = 0.0  # loop time before which decided facts are not tried again
        self._wake_at = 0.0
        self._alarm = Alarm(self.kick)
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._streaks = VoidStreaks()
        self._steps = StepDetector(clock)
        self._rest_until = 0.0  # loop time before which decide is not run again

    # ------------------------------------------------------------------------------------------------------- for callers

    @property
    def leads(self) -> bool:
        return self.phase is Phase.LEADING

    @property
    def epoch(self) -> int:
        """How many leaders this writer has had."""
        leader = self.fold.custody.state.leaders.get(self.writer or "")
        return leader.epoch if leader else 0

    @property
    def proposals_waiting(self) -> int:
        return len(self._proposals)

    def now(self) -> float:
        return decision_time(self._clock(), self.fold.custody.state.at)

    def kick(self) -> None:
        """There is something to do."""
        self._kicked.set()

    def wake(self) -> None:
        """Run `decide` soon, though no fact has arrived."""
        self._dirty = True
        self._kicked.set()

    def attach(self, reader: Reader, append: Journal | None) -> None:
        self._reader, self._journal = reader, append

    def is_own(self, message_id: str) -> bool:
        """True for envelopes that this process has sent."""
        return message_id.startswith(self.process)

    async def propose(self, compose: Compose, cause: str) -> Outcome:
        """See `Service.propose`."""
        if self.phase is not Phase.LEADING and self.phase is not Phase.STOPPING:
            raise Refused("unavailable", f"this replica of {self.writer} does not lead at the moment")
        if len(self._proposals) >= PROPOSALS_MAX:
            raise Refused("unavailable", f"{PROPOSALS_MAX} requests are waiting already; try again in a moment")
        proposal = Proposal(compose, cause, asyncio.get_running_loop().create_future())
        self._proposals.append(proposal)
        self._kicked.set()
        try:
            async with asyncio.timeout(PROPOSE_TIMEOUT_S):
                return await proposal.answer
        except TimeoutError:
            text = f"not confirmed within {PROPOSE_TIMEOUT_S:.0f} s; it may still happen: try again with the same request id"
            raise Refused("unavailable", text) from None

    async def wait_for(self, position: int, timeout_s: float) -> None:
        """Returns when `position` is folded.  Raises TimeoutError."""
        if self.fold.position >= position:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (position, next(self._ids), waiter))
        async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
            await waiter

    # ----------------------------------------------------------------------------------------------------------- leading

    async def take_over(self, end: int) -> None:
        """S3: fold to `end`, write `leader.started`, return when it has come back."""
        await self.wait_for(end, math.inf)
        self._steps.trust()
        known = self.fold.custody.state.leaders.get(self.writer or "")
        self.predecessor = copy(known)
        self._enter(Phase.STARTING)
        await self._until(Phase.LEADING)

    async def step_down(self) -> None:
        """Take what is waiting, write `leader.stopped`, return when it has come back."""
        if self.phase is Phase.STARTING:  # a `leader.stopped` now would be the predecessor's
            await self._until(Phase.LEADING)
        self._enter(Phase.STOPPING)
        await self._until(Phase.STOPPED)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._dirty = True
        if phase is Phase.STOPPED:
            self._refuse_all()
        self.phase_changed.set()
        self._kicked.set()

    def abandon(self) -> None:
        """The process ends: it no longer leads, and requests that still wait will get no better answer."""
        self.phase = Phase.STOPPED
        self._refuse_all()

    def _refuse_all(self) -> None:
        error = Refused("unavailable", f"this replica of {self.writer} has stopped leading")
        if self._draft is not None:
            self._draft.refuse(error)
        while self._proposals:
            proposal = self._proposals.popleft()
            if not proposal.answer.done():
                proposal.answer.set_exception(error)

    async def _until(self, phase: Phase) -> None:
        while self.phase is not phase:
            self.phase_changed.clear()
            await self.phase_changed.wait()

    # ----------------------------------------------------------------------------------------------------------- folding

    def loops(self, js: JetStreamContext) -> dict[str, Coroutine[Any, Any, None]]:
        """What has to run beside each other, by name."""
        found = {"fold": self.fold_forever()}
        return found | {"append": self.append_forever(), "room": self.room.watch(js)} if self.writer else found

    async def fold_forever(self) -> None:
        assert self._reader is not None
        while True:
            await self._kicked.wait()
            self._kicked.clear()
            left = BATCH_MAX
            while some := self._reader.take(left, SLICE_BYTES):
                self._absorb(some)
                left -= len(some)
                if left and self._reader.waiting:
                    await asyncio.sleep(0)
            await self._reader.acknowledge()
            self._advance()
            if self._reader.waiting:
                self._kicked.set()
            if self._kicked.is_set():
                await asyncio.sleep(0)  # let the connection and the edges have their turn

    def _absorb(self, batch: list[Stored]) -> None:
        fold = self.fold
        for message in batch:
            envelope, seen = self._feed(message)
            if envelope is None:
                self._log.error("garbage in the journal", position=message.position, subject=message.subject)
            elif message.subject == self._subject:
                self._own(message, envelope, seen)
        self._dirty = True
        if fold.listener is not None:
            self.settle()
        self._release_waiters()
        self._absorbed(len(batch), self.room.folded(batch))

    def _feed(self, message: Stored) -> tuple[Received | None, list[tuple[Fact, Meta]]]:
        try:
            return self.fold.feed(message)
        except Incompatible as error:
            raise Stop(Exit.INCOMPATIBLE, f"{error}; install a version that does (PROTOCOL S8)") from error
        except Exception as error:
            error.add_note(f"while folding journal position {message.position} of {message.subject}")
            raise

    def _release_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.fold.position:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def _own(self, message: Stored, envelope: Received, seen: list[tuple[Fact, Meta]]) -> None:
        draft = self._draft
        if draft is not None and draft.parcel is not None and draft.parcel.id == envelope.id:
            self._came_back(draft, message, envelope, seen)
        elif self.is_own(envelope.id):
            return  # one that was given up for lost, and was not
        elif self.phase is not Phase.FOLLOWING and self.phase is not Phase.STOPPED:
            raise Stop(Exit.DEPOSED, f"another instance of {self.writer} wrote message {message.position}")
        elif any(isinstance(fact, LeaderStopped) for fact, _ in seen):
            self._own_stopped()

    def _came_back(self, draft: Draft, message: Stored, envelope: Received, seen: list[tuple[Fact, Meta]]) -> None:
        parcel = draft.parcel
        assert parcel is not None
        known_at = parcel.known_at if parcel.known_at is not None else self._clock()
        parcel.position = message.position
        self._timings.appended(max(0.0, self._clock() - parcel.sent_at))
        self._draft = None
        self.full = False
        if self._log.is_debug:
            fields = {
                "position": message.position,
                "cause": envelope.cause,
                "facts": [kind_of(fact) for fact, _ in seen],
            }
            self._log.debug("written", **fields, void=[meta.void.value for _, meta in seen if meta.void is not None])
        draft.came_back(seen, message.position)
        self.refuse_skew(skew_s(parcel.sent_at, known_at, message.stored_at))
        self._streaks.note(seen)
        for fact, _ in seen:
            if isinstance(fact, LeaderStarted) and self.phase is Phase.STARTING:
                self._enter(Phase.LEADING)
            elif isinstance(fact, LeaderStopped):
                self._enter(Phase.STOPPED)

    @property
    def skew_max_s(self) -> float:
        config = self.fold.custody.state.config
        return config.policy.skew_max_s if config is not None else SKEW_MAX_DEFAULT_S

    def refuse_skew(self, skew: float) -> None:
        """S6.  `skew` as of `clock.skew_s`; raises `Stop` if it is too large to lead with."""
        limit = self.skew_max_s
        if abs(skew) > limit:
            side = "behind" if skew > 0 else "ahead of"
            text = f"this machine's clock is {abs(skew):.3f} s {side} the broker's; at most {limit} s is allowed (PROTOCOL S6)"
            raise Stop(Exit.SKEWED, text)

    # ---------------------------------------------------------------------------------------------------------- drafting

    def _advance(self) -> None:
        if self._draft is not None or self.phase in (Phase.FOLLOWING, Phase.STOPPED):
            return
        self._refuse_step()
        now = self.now()
        draft = self._compose(now)
        if not draft.facts:
            self._arm(now)
            return
        self._decided_first = draft.crowded and not self._decided_first
        draft.seal(
            id=f"{self.process}-{next(self._ids)}",
            writer=self.writer or "",
            epoch=self.epoch + (self.phase is Phase.STARTING),
            at=now,
            position=self.fold.position,
        )
        self._draft = draft
        self._parcelled.set()

    def _refuse_step(self) -> None:
        step_s = self._steps.step_s()
        if abs(step_s) > self.skew_max_s:
            text = f"this machine's clock was set by {step_s:+.3f} s while leading; a restart compares it with the broker's"
            raise Stop(Exit.SKEWED, f"{text} (PROTOCOL S6)")

    def _compose(self, now: float) -> Draft:
        draft = Draft()
        if self.phase is Phase.STARTING:
            if self._may_try():
                draft.add_decided([LeaderStarted(epoch=self.epoch + 1, instance=self.instance)])
            return draft
        decided = self._decide(now)
        if self._decided_first:
            draft.add_decided(decided)
        draft.add_proposals(self._proposals, now, self.fold.position, self.room if self.room.scarce else None)
        if not self._decided_first:
            draft.add_decided(decided)
        if self.phase is Phase.STOPPING and not draft.facts and self._may_try():
            draft.add_decided([LeaderStopped(epoch=self.epoch)])
        return draft

    def _may_try(self) -> bool:
        return asyncio.get_running_loop().time() >= self._not_before

    def _decide(self, now: float) -> list[Fact]:
        """What follows from the state, if it may be something else than last time."""
        if self.phase is not Phase.LEADING or not self._may_try() or not (self._dirty or now >= self._wake_at):
            return []
        loop = asyncio.get_running_loop()
        if loop.time() < self._rest_until:
            self._wake_at = 0.0
            return []
        self._dirty = False
        began = time.perf_counter()
        facts = self.fold.core.decide(now)
        took_s = time.perf_counter() - began
        self._timings.decided(took_s)
        self._rest_until = loop.time() + took_s if took_s > SLOW_DECIDE_S else 0.0
        if self.room.scarce:
            facts = [fact for fact in facts if not begins(fact)]
        self._wake_at = NEVER if facts else self.fold.core.wake_at()  # facts come back, and then it is decided again
        if self.room.scarce:  # what may not begin may be due already
            self._wake_at = max(self._wake_at, now + FULL_RETRY_S)
        return facts

    def _arm(self, now: float) -> None:
        """Nothing to write: come back when a limit is reached or a full journal may be tried again."""
        loop = asyncio.get_running_loop()
        delay_s = WAKE_MAX_S if self._wake_at == NEVER else min(WAKE_MAX_S, max(WAKE_MIN_S, self._wake_at - now))
        delay_s = max(delay_s, self._not_before - loop.time(), self._rest_until - loop.time())
        self._alarm.set(delay_s)

    # --------------------------------------------------------------------------------------------------------- appending

    async def append_forever(self) -> None:
        """Sends one draft after another; what becomes of it is seen by the fold."""
        assert self._journal is not None
        while True:
            await self._parcelled.wait()
            self._parcelled.clear()
            draft = self._draft
            if draft is None or draft.parcel is None:
                continue
            try:
                await self._journal.append(draft.parcel)
            except Full as error:
                self._give_up(draft, error)
            except Deposed as error:
                raise Stop(Exit.DEPOSED, str(error)) from error

    def _give_up(self, draft: Draft, error: Full) -> None:
        """The journal accepts nothing.  Requests get the error, decided facts are retried."""
        if not self.full:
            self._log.error("the journal accepts nothing until it has space again", why=error)
        self.full = True
        self._timings.refused(FULL)
        self._draft = None
        self._dirty = True
        self._not_before = asyncio.get_running_loop().time() + FULL_RETRY_S
        draft.refuse(Refused("unavailable", str(error)))
        self._kicked.set()
