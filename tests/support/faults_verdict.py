"""What must be true of a cloud after faults, judged from outside: from its journal, its history, and the scripts' witness.

Each function returns sentences about what is wrong; an empty list is the proof.

    V1  every job completed, exactly once, by the journal and by the history; no request made two jobs
    V2  no attempt ran twice, no two attempts of a unit ran at once, no finished job ran again (the witness and the journal)
    V3  every job's output is of one attempt, whole
    V4  hosts are conserved: none unknown, lost, or draining; each held by one department at most
    V5  state is the journal: folded twice it is the same bytes; what a service had saved while it ran is what a fold from the
        beginning gives at that position; snapshot and tail give what the whole journal gives; `check()` is empty throughout
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from schemas import facts as f
from schemas.ids import is_instance
from services.admission.core.admission import AdmissionCore
from services.admission.core.attempt_status import stored_under
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.executor.core.executor import ExecutorCore
from services.monitor.core.monitor import MonitorCore
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.journal.fold import CoreFactory, Fold, Stored
from services.runtime.journal.snapshots import Snapshot, restore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from tests.support.faults import Siege

LOOKS, LOOK_S = 20, 0.25
CORES: Final[dict[str, CoreFactory]] = {
    "admission": AdmissionCore,
    "provisioner": ProvisionerCore,
    "executor": ExecutorCore,
    "scheduler.hpc": lambda custody: BatchCore(custody, "hpc"),
    "scheduler.web": lambda custody: WebCore(custody, "web"),
    "monitor": MonitorCore,
}


class Story:
    """The valid facts of a journal, and the custody that they lead to."""

    def __init__(self, journal: list[Stored]) -> None:
        fold = Fold(None, MonitorCore)
        self._all = [told for message in journal for told in fold.feed(message)[1]]
        self.facts = [(fact, meta) for fact, meta in self._all if meta.void is None]
        self.custody: Custody = fold.custody
        self.garbage, self.unknown = fold.garbage, fold.unknown

    def of(self, *kinds: type) -> list[Any]:
        return [fact for fact, _ in self.facts if isinstance(fact, kinds)]

    def about(self, unit: str) -> list[str]:
        """Every fact of a unit, void ones too: what is known where its end is wrong."""
        mine = [(fact, meta) for fact, meta in self._all if getattr(fact, "unit", getattr(fact, "job", None)) == unit]
        return [
            f"  {m.position} {m.at:.3f} {m.writer}: {fact}{f' void: {m.void}' if m.void else ''}" for fact, m in mine
        ]


def insist(problems: list[str]) -> None:
    """AssertionError that tells all of `problems`, if there are any."""
    if problems:
        raise AssertionError("\n".join(problems))


async def judge(cloud: Siege, submitted: dict[str, str], count: int) -> Story:
    """Everything that this module asks of a cloud at rest, except V1 by the history, which is whole only when it is closed.
    `submitted`: request id -> job; `count`: hosts that there are."""
    journal = await cloud.journal()
    story = Story(journal)
    insist(jobs(story, submitted))
    insist(runs(cloud.told(), story))
    insist(apart(story))
    insist(hosts(story, count))
    for _ in range(LOOKS):  # an instance may go while we look
        left = vms(await cloud.alive(), Story(await cloud.journal()))
        if not left:
            break
        await asyncio.sleep(LOOK_S)
    insist(left)
    read = {job: await cloud.output(job) for job in submitted.values()}
    insist(outputs(read, story))
    insist(state(journal, await cloud.snapshots()))
    return story


# --------------------------------------------------------------------------------------------------------------- the jobs


def jobs(story: Story, submitted: dict[str, str]) -> list[str]:
    """V1 by the journal."""
    found = [f"garbage in the journal: {story.garbage}"] if story.garbage or story.unknown else []
    made = [fact.job for fact in story.of(f.JobSubmitted)]
    if sorted(made) != sorted(submitted.values()):
        found.append(f"{len(submitted)} jobs were confirmed, the journal has {len(made)}")
    successes = Counter(fact.unit for fact in story.of(f.AttemptReported) if fact.exit == 0)
    for job in made:
        unit = story.custody.state.units[job]
        if unit.final != "completed" or successes[job] != 1:
            found.append(f"job {job} ended {unit.final!r} with {successes[job]} successful reports")
            found += story.about(job)
    return found


def history(path: Path, story: Story) -> list[str]:
    """V1 by the history in SQLite, which is to tell of the same attempts as the journal."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        states = dict(db.execute("SELECT unit, state FROM jobs"))
        until_ms = round(max(meta.at for _, meta in story.facts) * 1000)  # an instance may come after we looked
        attempts = sorted(db.execute("SELECT unit, attempt FROM attempts WHERE placed_ms <= ?", (until_ms,)))
        open_ = list(db.execute("SELECT unit FROM jobs WHERE ended_ms IS NULL"))
    placed = sorted((fact.unit, fact.attempt) for fact in story.of(f.UnitPlaced))
    found = [f"the history says that job {unit} is {state}" for unit, state in states.items() if state != "completed"]
    found += [f"the history has no end of job {unit}" for (unit,) in open_]
    if sorted(states) != sorted(fact.job for fact in story.of(f.JobSubmitted)):
        found.append("the history has other jobs than the journal")
    if attempts != placed:
        found.append(f"the history's attempts differ from the journal's: {set(attempts) ^ set(placed)}")
    return found


def runs(witness: list[str], story: Story) -> list[str]:
    """V2 by the witness."""
    found = [f"witness: {line}" for line in witness if line.startswith("overlap")]
    starts = Counter(line for line in witness if line.startswith("start "))
    found += [f"'{line}' was said {count} times" for line, count in starts.items() if count > 1]
    ended: dict[str, str] = {}
    for line in witness:
        what, unit, attempt = line.split(" ")
        if what == "start" and unit in ended and _completed_as(story, unit) == int(ended[unit]):
            found.append(f"job {unit} ran again as attempt {attempt} after its attempt {ended[unit]} had completed it")
        if what == "end":
            ended[unit] = attempt
    for fact in story.of(f.AttemptReported):
        name = stored_under(story.custody.state.units.get(fact.unit), fact.attempt)
        if fact.exit == 0 and f"end {fact.unit} {name}" not in witness:
            found.append(f"attempt {fact.unit}/{fact.attempt} was reported and has not ended")
    return found


def _completed_by(story: Story, unit: str) -> int:
    return next((r.attempt for r in story.of(f.AttemptReported) if r.unit == unit and r.exit == 0), 0)


def _completed_as(story: Story, unit: str) -> int:
    """The attempt that completed it, by the name that its script knew: one that was resumed goes by its first one."""
    return stored_under(story.custody.state.units.get(unit), _completed_by(story, unit))


def apart(story: Story) -> list[str]:
    """V2 by the journal: one VM a rank of an attempt; a VM starts only when those of older attempts have ended, unless their
    host is lost; nothing is placed after its end."""
    found: list[str] = []
    allocated = Counter((fact.unit, fact.attempt, fact.rank) for fact in story.of(f.VmAllocated))
    found += [f"VM {key} was allocated {count} times" for key, count in allocated.items() if count > 1]
    started: dict[str, dict[tuple[int, int], str]] = {}
    where: dict[tuple[str, int, int], str] = {}
    whose: dict[int, tuple[str, int, int]] = {}
    lost: set[str] = set()
    for fact, _ in story.facts:
        if isinstance(fact, f.HostLost):
            lost.add(fact.host)
        elif isinstance(fact, f.VmAllocated):
            where[fact.unit, fact.attempt, fact.rank] = fact.host
            unit, attempt, rank = whose.get(
                fact.vm, (fact.unit, 0, 0)
            )  # it continues as another attempt's, or another job's
            started.get(unit, {}).pop((attempt, rank), None)
            whose[fact.vm] = fact.unit, fact.attempt, fact.rank
        elif isinstance(fact, f.VmEnded):
            started.get(fact.unit, {}).pop((fact.attempt, fact.rank), None)
        elif isinstance(fact, f.VmStarted):
            mine = started.setdefault(fact.unit, {})
            older = [key for key, host in mine.items() if key[0] < fact.attempt and host not in lost]
            found += [f"attempt {fact.unit}/{fact.attempt} started beside {key}" for key in older]
            mine[fact.attempt, fact.rank] = where[fact.unit, fact.attempt, fact.rank]
    return found


def outputs(read: dict[str, bytes], story: Story) -> list[str]:
    """V3: `read` is each job's standard output."""
    found = []
    for job, data in read.items():
        attempt = _completed_as(story, job)
        if data.decode() != f"start {job} {attempt}\nend {job} {attempt}\n":
            found.append(f"the output of job {job}, completed by attempt {attempt}, is {data!r}")
    return found


def hosts(story: Story, count: int) -> list[str]:
    """V4."""
    state = story.custody.state
    found = [] if len(state.hosts) == count else [f"{len(state.hosts)} hosts instead of {count}"]
    return found + [f"host {h.name} is {h.state}" for h in state.hosts.values() if h.state not in ("free", "held")]


def vms(alive: dict[int, str], story: Story) -> list[str]:
    """Nothing runs that the journal does not know, and nothing but instances; a VM may wait for a job."""
    known = {vm.vm for vm in story.custody.state.vms.values()}
    found = [f"VM {number} ({tag}) is in OpenNebula and not in the journal" for number, tag in alive.items()
             if number not in known]  # fmt: skip
    busy = [v for v in story.custody.state.vms.values() if not is_instance(v.unit) and v.parked_at is None]
    return found + [f"VM of {v.unit} is left" for v in busy]


# -------------------------------------------------------------------------------------------------------------- the state


def folded(journal: list[Stored], name: str, visit: Callable[[Fold], None] = lambda _fold: None) -> Fold:
    """A service's state after the whole journal; `visit` is called after each message."""
    fold = Fold(None if name == "monitor" else name, CORES[name])
    for message in journal:
        fold.feed(message)
        visit(fold)
    return fold


def bytes_of(fold: Fold) -> tuple[bytes, bytes, int]:
    return fold.custody.dump(), fold.core.dump(), fold.own_last


def state(journal: list[Stored], snapshots: dict[str, Snapshot]) -> list[str]:
    """V5."""
    found: list[str] = []
    for name in CORES:
        found += _state(journal, name, snapshots.get(name))
    return found


def _state(journal: list[Stored], name: str, snapshot: Snapshot | None) -> list[str]:
    found: list[str] = []

    def visit(fold: Fold) -> None:
        problems = fold.core.check()
        if name == "monitor":  # once for all: every service has the same custody
            problems += check(fold.custody)
        found.extend(f"{name} at {fold.position}: {problem}" for problem in problems)
        saved = snapshot is not None and snapshot.position == fold.position
        if saved and bytes_of(fold) != (snapshot.custody, snapshot.core, snapshot.own_last):  # type: ignore[union-attr]
            found.append(f"{name} had another state at {fold.position} than the journal gives")

    whole = bytes_of(folded(journal, name, visit))
    if bytes_of(folded(journal, name)) != whole:
        found.append(f"{name}: the same journal gave other bytes")
    if snapshot is not None and snapshot.position <= len(journal):
        fold = Fold(name, CORES[name])
        restore(snapshot, fold)
        for message in journal[snapshot.position :]:
            fold.feed(message)
        if bytes_of(fold) != whole:
            found.append(f"{name}: its snapshot at {snapshot.position} and the tail give other bytes than the journal")
    return found[:20]
