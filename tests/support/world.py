"""A whole cloud in memory: one journal, a fold for each writer, a virtual clock.  No broker, no processes, no sleeping.

    world = World(cloud(batch("hpc"), web("web")))          # adopts the configuration
    world.hosts(3, cores=4)                                 # h1 h2 h3: described and cleared
    seat = world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.executor(); world.guests(run_s=10)                # stand-ins for the outside: see below
    world.grant("hpc", "h1", "h2")                          # by hand; or world.seat("provisioner", ProvisionerCore)
    job = world.submit(nodes=2)                             # job id
    world.settle()                                          # until no seat has anything to write
    world.advance(10)                                       # the clock moves from wake-up to wake-up, settling at each
    world.write("admission", fact, …)                       # any envelope by hand; returns [(fact, meta)]

What it is
  Every seat has its own `Custody` and core and folds the journal by itself, as a service does; facts go through the real
  envelope codec.  `seat.paused = True` makes it fall behind (its decisions are then concurrent, and may be void).
  `world.custody` is an observer's fold, always up to date.  `world.voids` are the (fact, meta) that came back void.

What it asserts, after each envelope and each step, for each seat that has folded
  custody's `check()` and the core's `check()` are empty; `load(dump())` gives the same bytes, the same decision and the same
  wake-up time; no seat writes for ever (`STEPS_MAX`).  `world.strict = False` turns it off, for large worlds.

Stand-ins
  `executor()` is level-triggered: allocates and starts a VM for each rank of a live attempt, ends VMs of attempts that are not
  live, clears draining hosts.  `guests(boot_s, run_s)` calls `attempt.began` `boot_s` after the VMs have started and reports
  exit 0 `run_s` later (a number, or a dict unit -> seconds; units without one run for ever).  `balancer(sessions_s)` reports an
  instance as drained so long after it began to drain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.envelope import Envelope, UnknownFact, decode, encode
from schemas.facts import Fact
from schemas.ids import is_instance, sort_key
from services.domain.core import NEVER, Core
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.domain.custody.state import Unit, vm_key

STEPS_MAX: Final = 2000  # of one `settle`: no story of a test is longer
START: Final = 1_000_000.0


def batch(name: str = "hpc", **policy: Any) -> Department:
    """A batch department; `weight`, `guarantee`, `maximum` go to the department, the rest to its policy."""
    own = {key: policy.pop(key) for key in ("weight", "guarantee", "maximum") if key in policy}
    return Department(name=name, kind="batch", batch=BatchPolicy(**policy), **own)


def web(name: str = "web", **policy: Any) -> Department:
    own = {key: policy.pop(key) for key in ("priority", "guarantee", "maximum") if key in policy}
    return Department(name=name, kind="web", web=WebPolicy(**policy), **own)


def cloud(*departments: Department) -> CloudConfig:
    return CloudConfig(name="test", departments=departments)


class NullCore:
    """Decides nothing and remembers nothing."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody

    def apply(self, fact: Fact, meta: Meta) -> None: ...

    def decide(self, now: float) -> list[Fact]:
        return []

    def wake_at(self) -> float:
        return NEVER

    def check(self) -> list[str]:
        return []

    def dump(self) -> bytes:
        return b""

    def load(self, data: bytes) -> None: ...


class Seat:
    """One writer: its fold, its core, how far it has read."""

    def __init__(self, writer: str, factory: Callable[[Custody], Core]) -> None:
        self.writer, self.factory = writer, factory
        self.custody = Custody()
        self.core: Any = factory(self.custody)
        self.read = 0
        self.paused = False

    def fold(self, journal: list[tuple[str, bytes]]) -> list[tuple[Fact, Meta]]:
        """Apply what has not been read; returns the facts of the last envelope with their metas."""
        seen: list[tuple[Fact, Meta]] = []
        while self.read < len(journal):
            writer, data = journal[self.read]
            self.read += 1
            seen = self._apply(writer, data, self.read)
        return seen

    def _apply(self, writer: str, data: bytes, position: int) -> list[tuple[Fact, Meta]]:
        envelope = decode(data, writer)
        seen: list[tuple[Fact, Meta]] = []
        for index, fact in enumerate(envelope.facts):
            assert not isinstance(fact, UnknownFact)
            void = fold_fact(self.custody, fact, position, index, writer, envelope.at)
            meta = Meta(
                position=position,
                index=index,
                writer=writer,
                at=self.custody.state.at,
                cause=envelope.cause,
                void=void,
                broken=tuple(self.custody.newly_broken),
                unsaved=tuple(self.custody.newly_unsaved),
            )
            self.core.apply(fact, meta)
            seen.append((fact, meta))
        return seen

    def twin(self) -> Seat:
        """What this seat would be after a restart from its snapshot."""
        other = Seat(self.writer, self.factory)
        other.custody.load(self.custody.dump())
        other.core.load(self.core.dump())
        other.read = self.read
        return other

    def verify(self, now: float) -> None:
        assert check(self.custody) == [], check(self.custody)
        assert self.core.check() == []
        twin = self.twin()
        assert twin.core.dump() == self.core.dump(), f"{self.writer}: load(dump()) is not the same state"
        assert twin.custody.dump() == self.custody.dump()
        assert twin.core.check() == []
        assert twin.core.decide(now) == self.core.decide(now), f"{self.writer} decides otherwise after a restart"
        assert twin.core.wake_at() == self.core.wake_at()


class World:
    def __init__(self, config: CloudConfig | None = None, *, now: float = START) -> None:
        self.now = now
        self.strict = True
        self.journal: list[tuple[str, bytes]] = []
        self.voids: list[tuple[Fact, Meta]] = []
        self.seats: dict[str, Seat] = {}
        self.observer = Seat("observer", NullCore)
        self._numbers = itertools.count(1)
        if config is not None:
            self.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))

    @property
    def custody(self) -> Custody:
        return self.observer.custody

    # --------------------------------------------------------------------------------------------------------- writing

    def seat(self, writer: str, factory: Callable[[Custody], Core], name: str = "") -> Seat:
        """A core joins; it folds what is there already.  `name` tells two seats of one writer apart."""
        seat = self.seats[name or writer] = Seat(writer, factory)
        seat.fold(self.journal)
        return seat

    def write(self, writer: str, *facts: Fact, at: float | None = None) -> list[tuple[Fact, Meta]]:
        """Append one envelope.  Returns its facts as they came back; void ones are added to `voids`."""
        number = len(self.journal) + 1
        envelope = Envelope(id=f"m{number}", writer=writer, epoch=1, at=self.now if at is None else at, facts=facts)
        self.journal.append((writer, encode(envelope)))
        seen = self.observer.fold(self.journal)
        self.voids += [(fact, meta) for fact, meta in seen if meta.void is not None]
        for seat in self.seats.values():
            self._follow(seat)
        return seen

    def _follow(self, seat: Seat) -> None:
        if not seat.paused and seat.read < len(self.journal):
            seat.fold(self.journal)
            if self.strict:
                seat.verify(self.now)

    def step(self) -> bool:
        """Each seat that is not paused decides once, in the order of joining.  True if anything was written."""
        wrote = False
        for seat in list(self.seats.values()):
            wrote = self.decide(seat) or wrote
        return wrote

    def decide(self, seat: Seat) -> bool:
        """One seat folds what it has not read, unless it is paused, and decides on what it has."""
        self._follow(seat)
        facts = [] if seat.paused else seat.core.decide(max(self.now, seat.custody.state.at))
        if facts:
            self.write(seat.writer, *facts)
        return bool(facts)

    def settle(self) -> None:
        """Step until no seat has anything to write."""
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise AssertionError(f"still writing after {STEPS_MAX} steps: {self.tail(6)}")

    def advance(self, seconds: float) -> None:
        """Let time pass, from wake-up to wake-up, settling at each."""
        end = self.now + seconds
        self.settle()
        for _ in range(STEPS_MAX):
            due = min((seat.core.wake_at() for seat in self.seats.values() if not seat.paused), default=NEVER)
            self.now = min(end, max(self.now, due))
            self.settle()
            if self.now >= end and due >= end:
                return
        raise AssertionError(f"more than {STEPS_MAX} wake-ups")

    def restart(self, name: str) -> Seat:
        """Replace a seat by its twin from the snapshot."""
        self.seats[name] = self.seats[name].twin()
        return self.seats[name]

    def tail(self, count: int) -> list[Fact]:
        return [fact for writer, data in self.journal[-count:] for fact in decode(data, writer).facts]  # type: ignore[misc]

    def facts(self, kind: type | None = None) -> list[Any]:
        """All facts of the journal, of one kind if given."""
        every = self.tail(len(self.journal))
        return [fact for fact in every if kind is None or isinstance(fact, kind)]

    # -------------------------------------------------------------------------------------------------- things to write

    def hosts(self, count: int, *, cores: int = 4, memory_mb: int = 8192, gpus: int = 0, first: int = 1) -> list[str]:
        """`count` free hosts h<first>, …"""
        names = [f"h{n}" for n in range(first, first + count)]
        described = [
            f.HostDescribed(host=name, one_id=n, cores=cores, memory_mb=memory_mb, gpus=gpus)
            for n, name in enumerate(names, start=first)
        ]
        self.write("executor", *described)
        self.write("executor", *[f.HostCleared(host=name) for name in names])
        return names

    def grant(self, dept: str, *hosts: str) -> None:
        """Quota and grants by hand: `dept` holds these hosts as well."""
        held = self.custody.held(dept) + len(hosts)
        self.quota(dept, held)
        self.write("provisioner", *[f.HostGranted(host=host, dept=dept) for host in hosts])

    def quota(self, dept: str, hosts: int, *, by_s: float = 0.3) -> None:
        self.write("provisioner", f.QuotaChanged(dept=dept, hosts=hosts, by=self.now + by_s))

    def submit(self, dept: str = "hpc", **fields: Any) -> str:
        """A job of one core on one node, unless `fields` of `job.submitted` say otherwise.  Returns its id."""
        job = str(self.custody.state.job_last + 1)
        given: dict[str, Any] = {"user": "ann", "name": "job", "payload": "p", "walltime_s": 3600.0} | fields
        self.write("admission", f.JobSubmitted(job=job, dept=dept, **given))
        return job

    def cancel(self, unit: str) -> None:
        self.write("admission", f.JobCancelled(job=unit, user="ann"))

    def begin(self, unit: str, address: str | None = None) -> None:
        """All guests of the unit's attempt have called."""
        known = self.unit(unit)
        addresses = (address,) * known.nodes if address else ()
        self.write("admission", f.AttemptBegan(unit=unit, attempt=known.attempt, addresses=addresses))

    def report(self, unit: str, exit: int = 0, terminated: bool = False) -> None:
        attempt = self.unit(unit).attempt
        self.write("admission", f.AttemptReported(unit=unit, attempt=attempt, exit=exit, terminated=terminated))

    def start_vms(self, unit: str) -> None:
        """The unit's VMs are allocated and started; those that it resumes are saved ones, or move."""
        known, state = self.unit(unit), self.custody.state
        for rank, host in enumerate(known.hosts):
            moving = [vm.vm for vm in state.vms.values() if (vm.unit, vm.rank) == (unit, rank) and known.resumes]
            old = self.custody.index.saved.get(unit, {}).get(rank) or (moving[-1] if moving else 0)
            vm = old or next(self._numbers)
            allocated = f.VmAllocated(unit=unit, attempt=known.attempt, rank=rank, vm=vm, host=host)
            self.write("executor", allocated, f.VmStarted(unit=unit, attempt=known.attempt, rank=rank))

    def end_vm(self, unit: str, rank: int = 0, why: str = "gone") -> None:
        self.write("executor", f.VmEnded(unit=unit, attempt=self.unit(unit).attempt, rank=rank, why=why))

    def lose(self, host: str) -> None:
        self.write("executor", f.HostLost(host=host, reason="monitoring"))

    def cordon(self, host: str) -> None:
        self.write("admission", f.HostCordoned(host=host, reason="repair", user="root"))

    def drain(self, host: str, by_s: float | None = 0.0) -> None:
        """What still runs there is ended after `by_s`; None: nothing is."""
        until = None if by_s is None else self.now + by_s
        self.write("admission", f.HostCordoned(host=host, reason="repair", user="root", drain=True, until=until))

    def rest(self, host: str, for_s: float = 60.0) -> None:
        """In quarantine, or out of it again: `for_s` 0."""
        until = self.now + for_s if for_s else 0.0
        self.write("executor", f.HostQuarantined(host=host, until=until, reason="starts failed"))

    def unit(self, name: str) -> Unit:
        return self.custody.state.units[name]

    def states(self, dept: str = "hpc") -> dict[str, str]:
        """Unit -> pending, open, or how it ended."""
        units = [unit for unit in self.custody.state.units.values() if unit.dept == dept]
        return {unit.id: unit.final or unit.state for unit in sorted(units, key=lambda u: sort_key(u.id))}

    # -------------------------------------------------------------------------------------------------------- stand-ins

    def executor(self) -> Seat:
        return self.seat("executor", StandInExecutor)

    def guests(self, *, boot_s: float = 0.0, run_s: float | Mapping[str, float] = NEVER) -> Seat:
        """`run_s` may be a dict that the test changes later."""
        return self.seat("admission", lambda custody: StandInGuests(custody, boot_s, run_s), "guests")

    def balancer(self, *, sessions_s: float = 0.0) -> Seat:
        return self.seat("admission", lambda custody: StandInBalancer(custody, sessions_s), "balancer")


class StandInExecutor(NullCore):
    def decide(self, now: float) -> list[Fact]:
        state, index = self.custody.state, self.custody.index
        found: list[Fact] = []
        taken = max((vm.vm for vm in state.vms.values()), default=0)
        numbers = itertools.count(max(taken, state.position * 100))
        for vm in sorted(state.vms.values(), key=lambda v: (sort_key(v.unit), v.attempt, v.rank)):
            if not self.custody.live(vm.unit, vm.attempt) or state.hosts[vm.host].state in ("draining", "lost"):
                saves = state.units[vm.unit].suspended and vm.started_at is not None
                why = f.SUSPENDED if saves else "stopped"
                found.append(f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=why))
            elif vm.started_at is None:
                found.append(f.VmStarted(unit=vm.unit, attempt=vm.attempt, rank=vm.rank))
        for names in [index.open[dept] for dept in sorted(index.open)]:
            for unit in [state.units[name] for name in sorted(names, key=sort_key)]:
                found += self._allocate(unit, numbers)
        draining = [state.hosts[name] for name in sorted(index.by_state["draining"])]
        return found + [f.HostCleared(host=host.name) for host in draining if not host.vms]

    def _allocate(self, unit: Unit, numbers: itertools.count[int]) -> list[Fact]:
        """A VM for each rank that never had one, once no VM of an older attempt is open (X2, X3)."""
        if not unit.live:
            return []
        had = unit.allocated.get(unit.attempt, 0)
        if unit.vms_open > had.bit_count():
            return []
        saved = self.custody.index.saved.get(unit.id, {})
        return [
            f.VmAllocated(unit=unit.id, attempt=unit.attempt, rank=rank, vm=saved.get(rank) or next(numbers), host=host)
            for rank, host in enumerate(unit.hosts)
            if not had >> rank & 1
        ]


class StandInGuests(NullCore):
    def __init__(self, custody: Custody, boot_s: float, run_s: float | Mapping[str, float]) -> None:
        super().__init__(custody)
        self.boot_s, self.run_s = boot_s, run_s

    def decide(self, now: float) -> list[Fact]:
        found: list[Fact] = []
        for unit, due in self._due():
            if due > now:
                continue
            if unit.began_at is None:
                addresses = ("127.0.0.1:80",) if is_instance(unit.id) else ()
                found.append(f.AttemptBegan(unit=unit.id, attempt=unit.attempt, addresses=addresses))
            else:
                found.append(f.AttemptReported(unit=unit.id, attempt=unit.attempt, exit=0))
        return found

    def wake_at(self) -> float:
        return min((due for _, due in self._due()), default=NEVER)

    def _due(self) -> list[tuple[Unit, float]]:
        """Live units that will call, with the time of the call."""
        found: list[tuple[Unit, float]] = []
        index, state = self.custody.index, self.custody.state
        for names in [index.open[dept] for dept in sorted(index.open)]:
            for unit in [state.units[name] for name in sorted(names, key=sort_key)]:
                due = self._call(unit) if unit.live else NEVER
                if due < NEVER:
                    found.append((unit, due))
        return found

    def _call(self, unit: Unit) -> float:
        if unit.began_at is not None:
            if is_instance(unit.id):
                return NEVER
            seconds = self.run_s if isinstance(self.run_s, float | int) else self.run_s.get(unit.id, NEVER)
            return unit.began_at + seconds
        vms = [self.custody.state.vms.get(vm_key(unit.id, unit.attempt, rank)) for rank in range(unit.nodes)]
        started = [vm.started_at for vm in vms if vm is not None and vm.started_at is not None]
        return max(started) + self.boot_s if len(started) == unit.nodes else NEVER


class StandInBalancer(NullCore):
    def __init__(self, custody: Custody, sessions_s: float) -> None:
        super().__init__(custody)
        self.sessions_s = sessions_s
        self.draining: dict[str, float] = {}  # instance that drains, and is not reported -> since when

    def apply(self, fact: Fact, meta: Meta) -> None:
        if isinstance(fact, f.InstanceDraining) and meta.void is None:
            self.draining.setdefault(fact.unit, meta.at)
        elif isinstance(fact, f.InstanceReported | f.AttemptClosed):
            self.draining.pop(fact.unit, None)

    def decide(self, now: float) -> list[Fact]:
        return [
            f.InstanceReported(unit=name, attempt=1, state="drained", user="balancer")
            for name, since in self.draining.items()
            if since + self.sessions_s <= now and self.custody.live(name, 1)
        ]

    def wake_at(self) -> float:
        live = (since for name, since in self.draining.items() if self.custody.live(name, 1))
        return min(live, default=NEVER) + self.sessions_s

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.draining)

    def load(self, data: bytes) -> None:
        self.draining = msgspec.msgpack.decode(data, type=dict[str, float])
