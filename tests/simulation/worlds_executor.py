"""The executor of a small world: its fold, which may lag behind the journal, and what it has seen of OpenNebula, as a number.

Theory of operation
  The executor has two views, so it is not part of the land: it reads the journal when it does, and what it has seen, asked and
  waits for is part of the state.  An *executor state* is the real core, pickled; equal ones have equal numbers.  A poll that
  has been begun and not been heard is part of it.

What equal means
  Ticks (`ledger.tick`: the order of polls, answers and facts) matter only in relation to polls and looks that are on their
  way; they are replaced by their place among those.  Dicts are put in order, times that were set twice are set once: calls of
  one decision may arrive in any order anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import msgspec

from schemas import facts as f
from services.domain.custody.custody import Custody
from services.executor.core.allocations import Unsure
from services.executor.core.calls import Allocate, Call, HostSight, HostsSeen, Phase, PoolSeen, Result
from services.executor.core.executor import ExecutorCore
from services.executor.core.host_health import Known
from services.executor.core.ledger import LedgerState, Room
from services.executor.core.observed_vm import ObservedVm
from services.executor.core.site_fault import Ended
from services.executor.core.utilisation_reports import Seen
from tests.simulation.worlds_lands import EXECUTOR, Lands, Numbers, Violation, feed, no_judge, normalise, pack
from tests.simulation.worlds_site import Site

CALLS_MAX: Final = 16  # more than a small world has VMs
Names = dict[str, None]


_PARTS: Final = (
    "allocations",
    "backoff",
    "health",
    "hidden",
    "probation",
    "utilisation",
    "site",
)  # of the reconcilers: owners with views of their own


class VmReconcilerView(msgspec.Struct, array_like=True):
    """What `VmReconciler` remembers."""

    observed_vms: dict[str, ObservedVm]
    started: Names
    ended: dict[str, str]
    stuck: Names
    terminates: Names
    saves: Names
    deploys: Names
    evicted: Names
    doubted: dict[int, bool]
    blocked: dict[str, Names]
    untagged: Names
    tagged_saved: dict[int, None]
    tags_from: int
    sent: dict[str, int]
    watched: dict[int, str]
    strays: dict[int, str]


class AllocationsView(msgspec.Struct, array_like=True):
    """What `Allocations` remembers."""

    audited: bool
    allocating: dict[str, Allocate]
    unsure: dict[str, Unsure]
    later: dict[str, Allocate]
    refusals: dict[str, int]
    untold: dict[str, f.VmRefused]
    allocated: dict[str, f.VmAllocated]
    promised: dict[int, str]
    orphans: dict[int, Phase]
    foreign: dict[int, None]
    clashes: dict[int, None]
    stale: Names
    waking: Names


class HostReconcilerView(msgspec.Struct, array_like=True):
    """What `HostReconciler` remembers."""

    polled: bool
    pool_wanted: bool
    suspicious: bool
    seen: dict[str, HostSight]
    news: Names
    empty: dict[str, int]
    looks: dict[str, int]
    looking: dict[str, int]
    not_before: dict[str, float]
    ignored: Names


class HealthView(msgspec.Struct, array_like=True):
    """What `HostHealth` remembers."""

    known: dict[str, Known]


class HiddenView(msgspec.Struct, array_like=True):
    """What `HiddenVms` remembers."""

    hidden: dict[int, None]
    seen_at: dict[int, int]
    missed_at: dict[int, int]


class ProbationView(msgspec.Struct, array_like=True):
    """What `Probation` remembers."""

    rests: dict[str, tuple[int, float]]
    times: dict[str, int]
    due: dict[str, float]
    over: dict[str, str]
    blamed_at: dict[str, float]
    trying: dict[str, str]


class SiteView(msgspec.Struct, array_like=True):
    """What `SiteFault` remembers."""

    ended: dict[str, Ended]
    begun: dict[str, tuple[str, float]]
    found: f.StartsPaused | None
    over: str
    failures: int
    next_at: float
    trying: str
    until: float
    tried: Names
    wanted_at: float | None


class BackoffView(msgspec.Struct, array_like=True):
    """What `AllocationBackoff` remembers."""

    refusals: int
    until: float


class UtilisationView(msgspec.Struct, array_like=True):
    """What `UtilisationReports` remembers."""

    seen: dict[str, Seen]


class LedgerView(msgspec.Struct, array_like=True):
    """What `Ledger` remembers."""

    state: LedgerState
    by_unit: dict[str, Names]
    by_host: dict[str, Names]
    by_vm: dict[int, str]
    weight: dict[str, Room]
    leavers: dict[str, Names]
    away: Names
    parked: dict[str, Names]
    wants: dict[str, Allocate]
    binding: dict[str, Allocate]
    dirty: Names
    freed: Names
    worn: Names
    rebound: dict[str, str]
    refused: list[f.VmAllocated]
    touched: dict[str, int]
    saved_at: dict[int, int]
    tick: int


class Service(msgspec.Struct, array_like=True):
    """One executor process.  `poll`: ticket, and what was true, of a poll that has been begun and not been heard."""

    custody: bytes
    ledger: LedgerView
    host_reconciler: HostReconcilerView
    vm_reconciler: VmReconcilerView
    allocations: AllocationsView
    backoff: BackoffView
    health: HealthView
    hidden: HiddenView
    probation: ProbationView
    utilisation: UtilisationView
    site: SiteView
    timers: list[tuple[float, str]]
    poll: tuple[int, Site] | None = None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Service)


class Process:
    """A live executor."""

    def __init__(self, core: ExecutorCore, poll: tuple[int, Site] | None = None) -> None:
        self.core, self.poll = core, poll

    @property
    def _owners(self) -> tuple[tuple[Any, Any], ...]:
        core = self.core
        return (
            (core.ledger, LedgerView),
            (core.host_reconciler, HostReconcilerView),
            (core.vm_reconciler, VmReconcilerView),
            (core.vm_reconciler.allocations, AllocationsView),
            (core.vm_reconciler.allocations.backoff, BackoffView),
            (core.host_reconciler.health, HealthView),
            (core.host_reconciler.hidden, HiddenView),
            (core.host_reconciler.probation, ProbationView),
            (core.host_reconciler.utilisation, UtilisationView),
            (core.host_reconciler.site, SiteView),
        )

    def dump(self) -> bytes:
        core = self.core
        _forget_what_is_not_read(core.custody)
        _tidy_ticks(self)
        views = [
            kind(*(_in_order(getattr(owner, name)) for name in kind.__struct_fields__)) for owner, kind in self._owners
        ]
        timers = sorted(dict.fromkeys(core.timers._heap))
        return _encoder.encode(Service(pack(core.custody), *views, timers, self.poll))

    def load(self, data: bytes, config: Any) -> None:
        """Become the process that `data` tells of."""
        service, core = _decoder.decode(data), self.core
        core.custody.load(service.custody)
        if core.custody.state.rules:
            core.custody.state.config = config
        views = (
            service.ledger,
            service.host_reconciler,
            service.vm_reconciler,
            service.allocations,
            service.backoff,
            service.health,
            service.hidden,
            service.probation,
            service.utilisation,
            service.site,
        )
        for (owner, kind), view in zip(self._owners, views, strict=True):
            for name in kind.__struct_fields__:
                setattr(owner, name, getattr(view, name))
        core.timers._heap[:] = service.timers
        self.poll = service.poll

    def refuse_unknown_fields(self) -> None:
        """A field that these views do not know would make different states equal."""
        for owner, kind in self._owners:
            known = {*kind.__struct_fields__, "custody", "ledger", "host_reconciler", "timers", "_on", *_PARTS}
            unknown = [name for name in vars(owner) if name not in known]
            assert not unknown, f"{type(owner).__name__}.{unknown[0]} is to be a field of {kind.__name__}"


def _in_order(view: Any) -> Any:
    if isinstance(view, dict):
        return {key: _in_order(view[key]) for key in sorted(view)}
    if isinstance(view, LedgerState):
        return LedgerState(**{name: _in_order(getattr(view, name)) for name in LedgerState.__struct_fields__})
    return view


def _forget_what_is_not_read(custody: Custody) -> None:
    """What neither a rule of the executor nor custody's verdict on any fact reads."""
    normalise(custody)
    custody.state.demands = {}
    for unit in custody.state.units.values():
        unit.began_at = unit.placed_at = None
        unit.addresses = ()


def _tidy_ticks(process: Process) -> None:
    """Ticks as their place among polls and looks that are on their way: nothing else compares them."""
    core, poll = process.core, process.poll
    host_reconciler, ledger, vm_reconciler = core.host_reconciler, core.ledger, core.vm_reconciler
    flying = sorted([*host_reconciler.looking.values(), *([poll[0]] if poll else [])])
    place = {tick: 3 * (index + 1) for index, tick in enumerate(flying)}

    def among(tick: int) -> int:
        return 3 * bisect_left(flying, tick) + 1

    valid = [host for host, tick in host_reconciler.empty.items() if tick > ledger.touched.get(host, 0)]
    host_reconciler.looking = {host: place[tick] for host, tick in host_reconciler.looking.items()}
    host_reconciler.looks = {host: among(tick) for host, tick in host_reconciler.looks.items()}
    ledger.touched.update({host: among(tick) for host, tick in ledger.touched.items()})
    host_reconciler.empty = {host: ledger.touched.get(host, 0) + 1 for host in valid}
    for observed in vm_reconciler.observed_vms.values():
        observed.heard = among(observed.heard)
        observed.rests_from = None if observed.rests_from is None else among(observed.rests_from)
    vm_reconciler.sent = dict.fromkeys(
        vm_reconciler.sent, 0
    )  # compared with time-outs alone, and nothing times out here
    ledger.saved_at = {vm: among(tick) for vm, tick in ledger.saved_at.items()}
    hidden = host_reconciler.hidden
    hidden.seen_at = {vm: among(tick) for vm, tick in hidden.seen_at.items()}
    hidden.missed_at = {vm: among(tick) for vm, tick in hidden.missed_at.items()}
    allocations = vm_reconciler.allocations
    allocations.unsure = {
        key: one._replace(tick=among(one.tick), from_tick=None if one.from_tick is None else among(one.from_tick))
        for key, one in allocations.unsure.items()
    }
    if poll is not None:
        process.poll = place[poll[0]], poll[1]
    ledger.tick = 3 * len(flying) + 2


class Executors:
    def __init__(self, lands: Lands) -> None:
        self.lands = lands
        self.names = Numbers()
        self.memo: dict[tuple[Any, ...], Any] = {}
        self._process = Process(ExecutorCore(Custody()))
        self._process.refuse_unknown_fields()

    def _number(self, process: Process) -> int:
        data = process.dump()
        if data not in self.names.of:
            problems = process.core.check()
            if problems:
                raise Violation("; ".join(problems))
        return self.names.number(data)

    def _load(self, number: int) -> Process:
        """The one process there is, as it was: whoever loads another one has finished with the one before."""
        self._process.load(self.names.values[number], self.lands.config)
        return self._process

    # ------------------------------------------------------------------------------------------------------------- steps

    def start(self, land: int, ledger: bytes, clock: float) -> int:
        """A new leader: it has folded the whole journal, and begins to look."""
        custody, _ = self.lands.load(land)
        core = ExecutorCore(custody)
        core.load(ledger)
        core.take_over(max(clock, custody.state.at))
        return self._number(Process(core))

    def empty(self) -> int:
        return self._number(Process(ExecutorCore(Custody())))

    def ledger(self, number: int) -> bytes:
        return self._load(number).core.dump()

    def fold(self, number: int, message: int) -> int:
        key = ("fold", number, message)
        found = self.memo.get(key)
        if found is None:
            process = self._load(number)
            feed(process.core.custody, [process.core], self.lands.said(message), no_judge)
            found = self.memo[key] = self._number(process)
        return found

    def decide(self, number: int, clock: float) -> tuple[int, int | None]:
        """The state after deciding, and the envelope, if there is anything to say."""
        key = ("decide", number, clock)
        if key not in self.memo:
            process = self._load(number)
            now = max(clock, process.core.custody.state.at)
            facts = tuple(process.core.decide(now))
            message = self.lands.message(EXECUTOR, now, facts) if facts else None
            self.memo[key] = self._number(process), message
        found: tuple[int, int | None] = self.memo[key]
        return found

    def calls(self, number: int, clock: float) -> tuple[int, tuple[Call, ...]]:
        key = ("calls", number, clock)
        if key not in self.memo:
            process = self._load(number)
            made = tuple(process.core.calls(max(clock, process.core.custody.state.at), CALLS_MAX))
            self.memo[key] = self._number(process), made
        found: tuple[int, tuple[Call, ...]] = self.memo[key]
        return found

    def wake_at(self, number: int, clock: float) -> float:
        """When it has something to do if nothing happens; it finds out by looking at what it could do now."""
        key = ("wake", number, clock)
        if key not in self.memo:
            core = self._load(number).core
            now = max(clock, core.custody.state.at)
            core.decide(now)
            due = core.wake_at()
            core.calls(now, CALLS_MAX)
            self.memo[key] = min(due, core.wake_at())
        found: float = self.memo[key]
        return found

    def answer(self, number: int, result: Result, clock: float) -> int:
        key = ("answer", number, result.call, result.outcome, result.vm, repr(result.found), clock)
        found = self.memo.get(key)
        if found is None:
            process = self._load(number)
            process.core.observe(result, max(clock, process.core.custody.state.at))
            found = self.memo[key] = self._number(process)
        return found

    # ------------------------------------------------------------------------------------------------------------- polls

    def look(self, number: int, site: Site, clock: float) -> int | None:
        """A poll of everything is begun; None if one is under way, or if this one would be no news."""
        key = ("look", number, site, clock)
        if key not in self.memo:
            started = None
            if not self.polls(number)[0] and self._see(number, site, clock) != number:
                process = self._load(number)
                process.poll = (process.core.ticket(), site)
                started = self._number(process)
            self.memo[key] = started
        found: int | None = self.memo[key]
        return found

    def _see(self, number: int, site: Site, clock: float) -> int:
        process = self._load(number)
        process.poll = (process.core.ticket(), site)
        self._observe(process, clock)
        return self._number(process)

    def polls(self, number: int) -> tuple[bool, bool]:
        """Whether a poll is on its way, and whether it shows VMs whose tags must be read (X6: fold to the end first)."""
        key = ("polls", number)
        if key not in self.memo:
            process = self._load(number)
            poll = process.poll
            self.memo[key] = poll is not None, poll is not None and bool(process.core.strangers(poll[1].vm_pool()))
        found: tuple[bool, bool] = self.memo[key]
        return found

    def seen(self, number: int, clock: float) -> int:
        key = ("seen", number, clock)
        if key not in self.memo:
            process = self._load(number)
            self._observe(process, clock)
            self.memo[key] = self._number(process)
        found: int = self.memo[key]
        return found

    @staticmethod
    def _observe(process: Process, clock: float) -> None:
        core, poll = process.core, process.poll
        assert poll is not None
        now = max(clock, core.custody.state.at)
        unknown = core.strangers(poll[1].vm_pool())
        strange = [sight for sight in poll[1].vm_pool(tags=True) if sight.vm in unknown]
        core.observe(HostsSeen(poll[0], poll[1].host_pool()), now)
        core.observe(PoolSeen(poll[0], poll[1].vm_pool(), strange), now)
        process.poll = None
