"""What really happened: folded up to the period, learned from in it; and the period played again under a configuration.

Theory of operation
  The record is read once.  A custody fold of its own (`truth`) settles which facts were void, VMs and all; what was valid goes
  to the stage.  Where the period begins the stage is copied (`origin`): replays begin there, as often as wanted.  The stage
  itself continues with what really happened: its books are what replays are compared with, and run times, paces and load are
  learned on the way.  Where the record continues after the period, more run times are.

Rules
  1. Memory holds the period's events and who is not over; of the time before only the fold.
  2. Both replays begin from the same bytes and hear the same events: what differs is the configuration, or the hosts.
  3. With a configuration of one's own, those adopted within the period are left out; `notes` say so, and whatever else
     cannot be compared.
  4. A period does not begin while the cloud's hosts are joining one by one (`SETTLE_S`).
  5. `hosts` is how many there are at any moment of the replay, at most: hosts that are described when it begins and join in it
     count, others that join in it are left out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from phoenix.simulate.journal import Journal
from phoenix.simulate.workload import Outcome
from phoenix.whatif.lives import Lives, Paces, Unknown
from phoenix.whatif.record import Record
from phoenix.whatif.stage import OF_VMS, OUTSIDE, Event, Stage
from schemas import facts as f
from schemas.config import CloudConfig
from schemas.facts import Fact
from schemas.ids import is_instance
from schemas.journal_record import Line
from schemas.size import Size
from services.domain.custody.meta import Meta
from services.scheduler.edge.plugins import Lack, lacking

EVENTS_MAX: Final = 5_000_000  # of a period: some GiB of memory
PRUNE_EVERY: Final = 20_000  # envelopes of the time before: who is over is forgotten
SETTLE_S: Final = 5.0  # without a host's first joining: those that are still absent are away, not about to come


class TooMuch(Exception):
    """The period is larger than can be played.  The message says what would be possible."""


class Played(NamedTuple):
    """A replay.  `assumed`: jobs that ran and whose run time is not known; `refusals`: why -> jobs."""

    outcome: Outcome
    assumed: int
    refusals: dict[str, int]
    facts: int
    void: int


class Past:
    """Reads the record.  Raises `TooMuch`, `record.CutShort`, and what the fold raises."""

    def __init__(self, record: Record, since: float, until: float, progress: Callable[[int], None] | None = None):
        self.since, self.until = since, until
        self.truth = Journal()
        self.truth.readers = [self._judge]
        self.stage = Stage()
        self.lives, self.paces = Lives(self.stage.journal.custody), Paces(self.stage.journal.custody)
        self.learning = [self.lives.hear, self.paces.hear]
        self.stage.journal.readers += self.learning
        self.origin: Stage | None = None
        self.happened: Outcome | None = None
        self.hosts = 0
        self.config: CloudConfig | None = None  # in force when the period begins
        self.events: list[Event] = []
        self.busiest: dict[str, float] = {}
        self.load: dict[str, list[tuple[float, float]]] = {}
        self.saturated_s: dict[str, float] = {}
        self.vms_failed = self.configs = 0
        self.unready: set[str] = set()  # instances that were not ready at some time
        self._valid: list[Fact] = []
        self._at = since  # of what was folded last
        self.late = False  # the period would have begun before the cloud
        self._joined_at = -math.inf  # a host was described, or seen well for the first time
        for count, line in enumerate(record.entries(), start=1):
            self._take(line, count)
            if progress is not None and not count % PRUNE_EVERY:
                progress(count)
        if self.origin is None:
            self._mark()
        self._end()
        self.lives.end(max(until, self._at))

    # --------------------------------------------------------------------------------------------------------- reading

    def _judge(self, fact: Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        if not isinstance(fact, OF_VMS):
            self._valid.append(fact)
        elif isinstance(fact, f.VmEnded) and self.origin is not None and self.happened is None:
            self.vms_failed += sum(not is_instance(unit) for unit in meta.broken)

    def _take(self, line: Line, count: int) -> None:
        if line.at >= self.since and self.origin is None and self._is_there(line.at):
            self.since = max(self.since, line.at) if self.late else self.since
            self._mark()
        self._valid = []
        self.truth.append(line.writer, line.facts, line.at)
        valid = self._valid
        if not valid:
            return
        within = self.origin is not None and self.happened is None and line.at < self.until
        came = [fact for fact in valid if self._is_outside(fact)] if within else []
        if line.at >= self.until:
            self._end()
        if self.origin is not None and line.at > self._at:  # what changed back within an instant has not changed
            self.stage.recorder.note(self._at)
        self._at = max(self._at, line.at)
        if any(map(self._joins, valid)):
            self._joined_at = line.at
        self.stage.feed(line.writer, valid, line.at)
        if self.origin is None:
            if not count % PRUNE_EVERY:
                self.lives.forget_ended()
                self.stage.recorder.forget_ended()
            return
        if self.happened is not None:  # after the period: only run times are learned
            return
        if any(isinstance(fact, f.HostCleared) for fact in came):
            self.hosts = max(self.hosts, _here(self.stage))
        for fact in came:
            self.events.append(self._event(line, fact))
        if len(self.events) > EVENTS_MAX:
            raise TooMuch(f"the period has more than {EVENTS_MAX:,} events: choose a shorter one with --since, --until")

    def _joins(self, fact: Fact) -> bool:
        """Looked at before it is folded."""
        hosts = self.stage.journal.custody.state.hosts
        if isinstance(fact, f.HostDescribed):
            return fact.host not in hosts
        return isinstance(fact, f.HostCleared) and (fact.host not in hosts or hosts[fact.host].state == "absent")

    def _is_there(self, now: float) -> bool:
        """A cloud with a configuration and its hosts (rule 4): a period that was to begin before begins here."""
        state = self.stage.journal.custody.state
        absent = any(host.state == "absent" for host in state.hosts.values())
        joining = absent and now - self._joined_at < SETTLE_S
        there = state.config is not None and _here(self.stage) > 0 and not joining
        self.late = self.late or not there
        return there

    def _mark(self) -> None:
        """The period begins."""
        self.lives.forget_ended()
        self.stage.recorder.forget_ended()
        readers = self.stage.journal.readers
        self.stage.journal.readers = [read for read in readers if read not in self.learning]
        self.origin = copy.deepcopy(self.stage)
        self.stage.journal.readers = readers
        self.paces.forget()
        state = self.stage.journal.custody.state
        self.hosts = _here(self.stage)
        self.config = state.config
        self.stage.recorder.begin(self.since)
        self._at = self.since

    def _end(self) -> None:
        """The period is over; what comes now tells how long jobs take that ran then."""
        if self.happened is None and self.origin is not None:
            self.stage.recorder.note(self._at)
            outcome = self.stage.recorder.outcome_of("happened", self.since, self.until, self.hosts)
            self.happened = copy.deepcopy(outcome)
            self.pace = self.paces.medians()

    def _is_outside(self, fact: Fact) -> bool:
        """Looked at before it is folded."""
        if isinstance(fact, f.Cancelled):
            return fact.user != ""  # admission's own: a lease whose time has passed
        if isinstance(fact, f.HostCleared):
            host = self.stage.journal.custody.state.hosts.get(fact.host)
            return host is None or host.state in ("absent", "lost")
        if isinstance(fact, f.InstanceReported):
            self.unready |= {fact.unit} if fact.state in ("unready", "unreachable") else set()
        self.configs += isinstance(fact, f.ConfigAdopted)
        return isinstance(fact, OUTSIDE)

    def _event(self, line: Line, fact: Fact) -> Event:
        if not isinstance(fact, f.LoadObserved):
            return Event(line.at, line.writer, fact)
        served = self.stage.serving.mean(fact.dept, fact.start, fact.end)
        if fact.utilisation is not None and fact.end > fact.start:
            self.busiest[fact.dept] = max(self.busiest.get(fact.dept, 0.0), fact.utilisation)
            self.load.setdefault(fact.dept, []).append((fact.start - self.since, fact.utilisation * served))
            if fact.utilisation >= 1.0:
                self.saturated_s[fact.dept] = self.saturated_s.get(fact.dept, 0.0) + fact.end - fact.start
        return Event(line.at, line.writer, fact, served)

    # --------------------------------------------------------------------------------------------------------- playing

    def play(
        self,
        label: str,
        config: CloudConfig | None = None,
        hosts: int | None = None,
        *,
        unknown: Unknown = "longest",
    ) -> Played:
        """The period again, under `config` (None: what was in force, with its changes) and on `hosts` hosts."""
        assert self.origin is not None
        in_force = config or self.config
        if in_force is None:
            raise TooMuch("the cloud had no configuration when the period began: choose a later --since")
        stage = copy.deepcopy(self.origin)
        stage.begin(self.since, in_force, self.lives, self.pace, unknown)
        known = dict.fromkeys(stage.journal.custody.state.hosts)
        joining = [event.fact.host for event in self.events if isinstance(event.fact, f.HostCleared)]
        gone = _resize(stage, self.since, hosts, joining)
        events = [
            event
            for event in self.events
            if not (config is not None and isinstance(event.fact, f.ConfigAdopted))
            and getattr(event.fact, "host", "") not in gone
            and (hosts is None or getattr(event.fact, "host", "") in {"": None, **known})
        ]
        stage.play(self.since, self.until, events, self.busiest)
        outcome = stage.recorder.outcome_of(label, self.since, self.until, self.hosts if hosts is None else hosts)
        _with_load(outcome, self.load)
        assumed = len(stage.cluster.assumed)
        return Played(outcome, assumed, stage.recorder.refusals, stage.journal.facts, stage.journal.void)

    def lacking(self) -> list[Lack]:
        """Plug-ins that were in force in the period, and are not here: what was in force may not be played again."""
        adopted = [event.fact.config for event in self.events if isinstance(event.fact, f.ConfigAdopted)]
        in_force = [config for config in (self.config, *adopted) if config is not None]
        return list(dict.fromkeys(lack for config in in_force for lack in lacking(config)))

    def what_happened(self) -> Outcome:
        assert self.happened is not None
        _with_load(self.happened, self.load)
        return self.happened


def _here(stage: Stage) -> int:
    """Hosts that have been seen well once."""
    return sum(host.state != "absent" for host in stage.journal.custody.state.hosts.values())


def _with_load(outcome: Outcome, load: dict[str, list[tuple[float, float]]]) -> None:
    for record in outcome.web:
        record.load = load.get(record.department, [])


def _resize(stage: Stage, at: float, hosts: int | None, joining: Iterable[str]) -> dict[str, None]:
    """Hosts are added, or taken away (rule 5): those that only join in the period first, then empty ones, of equal ones the
    last by name.  Returns those that are gone."""
    known = stage.journal.custody.state.hosts
    here = [name for name, host in known.items() if host.state != "absent"]
    coming = [name for name in dict.fromkeys(joining) if name in known and known[name].state == "absent"]
    if hosts is None:
        return {}
    beyond = len(here) + len(coming) - hosts
    if beyond > 0:
        by_name = sorted(here + coming, reverse=True)
        gone = sorted(by_name, key=lambda name: (known[name].state != "absent", len(known[name].units)))[:beyond]
        for name in gone:
            taken = [] if known[name].state == "absent" else [f.HostLost(host=name, reason="taken away (what if)")]
            facts: list[Fact] = [*taken, f.HostRemoved(host=name)]
            stage.feed("executor", facts, at)
        return dict.fromkeys(gone)
    like = known[max(here)] if here else None
    names = [f"whatif{number:05}" for number in range(1, 1 - beyond)]
    for number, name in enumerate(names):
        size, labels, cluster = (like.size, dict(like.labels), like.cluster) if like else (Size(1, 1 << 10), {}, "")
        described = f.HostDescribed(
            host=name,
            one_id=1_000_000 + number,
            **size.fields(),
            labels=labels,
            cluster=cluster,
        )
        stage.feed("executor", [described, f.HostCleared(host=name)], at)
    return {}
