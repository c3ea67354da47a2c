"""What is removed from the object store, and when: automatically, since no user would do it.

Theory of operation
  Scripts and inputs are counted by the jobs that need them; without one they go.  What jobs leave (output, kept files) goes by
  age, and before that, the oldest first, where its department has nearly used up its share.  The store's own order is the order
  of age, so a pass reads from the oldest object on, and ends where all that follows is too young.

Rules
  1. Nothing goes that an open job needs: its script and inputs, its output and files, its checkpoints.
  2. Script and inputs go `IDLE_S` after the last job that needs them has ended, at once where there is too little room: many
     submit the same again.  Inputs may belong to several scripts: none goes before all of these have been read.
  3. What a job leaves goes as a whole (a stream, an attempt's files), `store_keep_s` after its end; where the department has
     used `HIGH` of its share, until it is below `LOW`, but never before `store_keep_min_s`.
  4. What was removed is counted by its reason.  A store that does not answer is asked again in the next pass.
  5. What an admission left that ended in the middle of storing something has no owner, and is removed (`Objects`, rule 6): with
     the first pass, when what the last one left is old enough, and then each `SWEEP_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

from schemas import facts as f
from schemas.config import Limits
from schemas.facts import Fact
from schemas.ids import job_of
from services.admission.core.admission import AdmissionCore
from services.admission.storage.checkpoints import Checkpoints
from services.admission.storage.output import Files, Outputs, StreamId
from services.admission.storage.payloads import STORE_ERRORS, Packed, Payloads
from services.admission.storage.quotas import DEPARTMENT, Shares, Why, removing
from services.admission.storage.removed import KIND, Removed
from services.domain.refusal import Refused
from services.runtime.broker.objects import CUT_OFF_S, Described
from services.runtime.log import Log

EVERY_S: Final = 60.0
IDLE_S: Final = 600.0
HIGH: Final = 0.8  # above, what is old goes; below what PhoenixStreamNearLimit warns of
LOW: Final = 0.7
SWEEP_S: Final = 86400.0  # every description is read for it
REST: Final = 20.0  # after a pass, a pause of this many times its length
_ENDING: Final = (f.AttemptClosed, f.AttemptReported, f.JobCancelled, f.ArrayCancelled, f.DepartmentClosed)


class Needed:
    """Which scripts and inputs open jobs need (rule 2)."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}  # open job -> key of its payload
        self.of: Counter[str] = Counter()  # payload -> open jobs
        self.idle: OrderedDict[str, float] = OrderedDict()  # payload without one -> since when (monotonic)
        self.inputs: dict[str, tuple[str, ...]] = {}  # payload -> its inputs
        self.unread: dict[str, None] = {}  # payloads whose inputs are not known yet
        self.of_input: Counter[str] = Counter()  # input -> payloads

    def open(self, job: str, payload: str) -> None:
        self.jobs[job] = payload
        self.of[payload] += 1
        self.idle.pop(payload, None)
        if payload not in self.inputs:
            self.unread[payload] = None

    def end(self, job: str, now: float) -> None:
        payload = self.jobs.pop(job)
        self.of[payload] -= 1
        if not self.of[payload]:
            del self.of[payload]
            self.idle[payload] = now

    def read(self, payload: str, inputs: tuple[str, ...]) -> None:
        self.unread.pop(payload, None)
        if payload not in self.inputs:
            self.inputs[payload] = tuple(dict.fromkeys(inputs))
            self.of_input.update(self.inputs[payload])

    def forget(self, payload: str) -> tuple[str, ...]:
        """It is gone: the inputs that are no longer needed."""
        self.idle.pop(payload, None)
        self.unread.pop(payload, None)
        inputs = self.inputs.pop(payload, ())
        self.of_input.subtract(inputs)
        gone = tuple(key for key in inputs if not self.of_input[key])
        for key in gone:
            del self.of_input[key]
        return gone

    def has(self, key: str) -> bool:
        return key in self.of or key in self.idle or key in self.of_input


class Retention:
    def __init__(
        self,
        core: AdmissionCore,
        shares: Shares,
        payloads: Payloads,
        outputs: Outputs,
        files: Files,
        checkpoints: Checkpoints,
        removed: Removed,
        log: Log,
    ) -> None:
        self._core, self._shares, self._payloads, self._removed = core, shares, payloads, removed
        self._outputs, self._files, self._checkpoints = outputs, files, checkpoints
        self._log = log
        self._needed = Needed()
        self._is_open = False
        self._sweep_at = 0.0  # by the monotonic clock; 0: with the next pass, which is the first one
        payloads.settled = self._settled

    # ------------------------------------------------------------------------------------------------ what is needed

    def applied(self, fact: Fact) -> None:
        """A valid fact came."""
        if not self._is_open:
            return
        if isinstance(fact, f.JobSubmitted):
            self._needed.open(fact.job, fact.payload)
        elif isinstance(fact, f.DepartmentClosed):
            for name in list(self._needed.jobs):
                self._look_at(name)
        elif isinstance(fact, _ENDING):
            self._look_at(job_of(fact.job if isinstance(fact, f.Cancelled) else fact.unit))

    def _look_at(self, name: str) -> None:
        job = self._core.job(name)
        if name in self._needed.jobs and (job is None or not job.left):
            self._needed.end(name, time.monotonic())

    def _settled(self, packed: Packed) -> None:
        self._needed.read(packed.key, tuple(packed.inputs))
        if packed.key not in self._needed.of:
            self._needed.idle[packed.key] = time.monotonic()  # nothing came of it

    # ------------------------------------------------------------------------------------------------------- removing

    def opening(self) -> None:
        """Before the doors are."""
        self._shares.begin()
        self._removed.begin()
        self._needed, self._sweep_at = Needed(), 0.0
        for name, payload in self._core.open_payloads():
            self._needed.open(name, payload)
        self._is_open = True

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                begun = time.monotonic()
                try:
                    await self.once()
                except (Refused, *STORE_ERRORS) as error:
                    self._log.warning("object store not cleaned up", error=type(error).__name__)
                await self._rest(max(0.0, time.monotonic() - begun) * REST)
        finally:
            self._is_open = False

    async def _rest(self, least_s: float) -> None:
        if least_s:
            await asyncio.sleep(min(least_s, EVERY_S))
        self._shares.pressed.clear()
        try:
            async with asyncio.timeout(EVERY_S):
                await self._shares.pressed.wait()
        except TimeoutError:
            return

    async def once(self) -> None:
        """One pass."""
        await self._shares.look()
        if not self._shares.is_counted:
            await self._shares.count()
        await self._read_payloads()
        over = self._over(self._shares.departments(), HIGH)
        over = await self._remove_payloads(over)
        await self._remove_old(over)
        await self._sweep()

    async def _sweep(self) -> None:
        """Rule 5."""
        now = time.monotonic()
        if now < self._sweep_at:
            return
        swept = await self._shares.sweep(CUT_OFF_S)
        if swept:
            self._log.info("incomplete objects removed", objects=swept)
        self._sweep_at = now + (SWEEP_S if self._sweep_at else CUT_OFF_S + EVERY_S)

    def _over(self, departments: Iterable[str], part: float) -> set[str]:
        return {name for name in departments if self._is_over(name, part)}

    def _is_over(self, department: str, part: float) -> bool:
        """Without a share (a department that is configured no more) by age alone."""
        share = self._shares.share(department)
        return 0 < part * share < self._shares.used(department)

    async def _read_payloads(self) -> None:
        for payload in list(self._needed.unread):
            if payload in self._needed.unread:
                data = await self._payloads.get(payload)
                inputs = () if data is None else tuple(x.key for x in self._payloads.decoded(data).inputs)
                self._needed.read(payload, inputs)

    async def _remove_payloads(self, over: set[str]) -> set[str]:
        """Rule 2.  Returns the departments that are still `over`."""
        now = time.monotonic()
        for payload, since in list(self._needed.idle.items()):
            if payload not in self._needed.idle or payload in self._payloads.pinned:
                continue
            if now - since >= IDLE_S or self._shares.department_of(payload) in over:
                with removing("ended"):
                    await self._payloads.remove(payload)
                    for key in () if payload in self._needed.of else self._needed.forget(payload):
                        await self._payloads.remove(key)
                over = self._over(over, LOW)
        return over

    async def _remove_old(self, over: set[str]) -> None:
        """Rule 3."""
        limits, now = self._limits(), time.time()
        youngest = now - (min(limits.store_keep_min_s, limits.store_keep_s) if over else limits.store_keep_s)
        async for found in self._shares.each():
            if found.at > youngest:
                return
            if (why := self._due(found, limits, now, over)) is not None:
                if why == "size":  # before it is removed, so that no reader finds neither output nor reason
                    await self._removed.note(found.metadata.get(DEPARTMENT, ""), self._since(found))
                with removing(why):
                    await self._remove(found)
                over = self._over(over, LOW)

    def _limits(self) -> Limits:
        config = self._core.custody.state.config
        return config.limits if config is not None else Limits()

    def _due(self, found: Described, limits: Limits, now: float, over: set[str]) -> Why | None:
        """Why it is to go now; None: it stays."""
        kind, _, rest = found.name.partition("/")
        if kind in ("job", "input"):
            stays = self._needed.has(found.name) or found.name in self._payloads.pinned or self._needed.unread
            return None if stays else "ended"
        unit = self._core.unit(rest.partition("/")[0])
        if unit is not None and unit.state != "final":
            return None
        if kind == "checkpoint":
            return "ended"
        since = self._since(found)
        if since <= now - limits.store_keep_s:
            return "age"
        if kind == KIND:
            return None
        is_over = found.metadata.get(DEPARTMENT, "") in over
        return "size" if is_over and since <= now - limits.store_keep_min_s else None

    def _since(self, found: Described) -> float:
        """When its job ended, as far as that is known: it was stored before."""
        unit = self._core.unit(found.name.split("/")[1])
        return max(found.at, (unit.ended_at or 0.0) if unit is not None else 0.0)

    async def _remove(self, found: Described) -> None:
        """It, and what is of no use without it."""
        match found.name.split("/"):
            case ["out", unit, attempt, rank, stream, _]:
                await self._outputs.forget(StreamId(unit, int(attempt), int(rank), stream))
            case ["files", unit, attempt, *_]:
                await self._files.forget(unit, int(attempt))
            case ["checkpoint", unit, *_]:
                await self._checkpoints.forget(unit)
            case ["job" | "input", *_]:
                await self._payloads.remove(found.name)
                return
        await self._shares.delete(found.name)  # what no chain and no index leads to any more
