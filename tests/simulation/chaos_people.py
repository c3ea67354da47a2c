"""Everybody outside of the services in a simulated cloud: people, scripts in their VMs, load balancers, bad luck.

Guests speak to admission by its own rules (`services.admission.commands.compose`): they ask again until they are answered,
power off only when told that their report is journaled or that they are gone, and may reach a door that is deposed and does
not know it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from schemas import facts as f
from schemas.config import OnTerm
from schemas.facts import Fact
from schemas.ids import is_instance, job_of
from schemas.releases import Release
from services.admission.commands import compose
from services.admission.core import attempt_status as standing
from services.admission.core import vm_reuse
from services.domain.custody.custody import Custody
from services.domain.custody.rules import RULES
from services.domain.custody.state import Unit
from services.domain.refusal import Refused
from services.executor.core.calls import Phase
from tests.simulation.chaos_node import Node
from tests.simulation.chaos_policies import COMPLETES, WALLTIME_S
from tests.simulation.chaos_site import Machine

if TYPE_CHECKING:
    from tests.simulation.chaos import Chaos

JOBS_MAX: Final = 14
STAYS: Final = 0.9  # of all guests ask for another job when theirs has completed
NEVER: Final = float("inf")
Compose = Callable[[Custody, list[Fact]], list[Fact]]


class Script:
    """What a unit's script does, whichever attempt it is: `seconds` of work, then `exit`; or 0 as soon as it is told to end."""

    def __init__(self, seed: int, unit: str) -> None:
        chance = random.Random(f"script {seed} {unit}")
        kind = chance.random()
        self.seconds = NEVER if kind < 0.1 else chance.uniform(0.05, 4.0)
        self.exit = 1 if kind > 0.9 else 0
        self.traps = chance.random() < 0.5


class People:
    def __init__(self, world: Chaos) -> None:
        self.world = world
        self.scripts: dict[str, Script] = {}
        self.submitted = 0
        self.slots: dict[str, None] = {}  # leases with a time of their own
        self.finished: dict[str, None] = {}  # units whose script came to its end, and said so
        world.site.last_words = self.last_words
        self.heard_until = world.clock
        self.released: Compose = lambda _custody, _drafted: []

    def actions(self) -> list[tuple[Callable[[], None], int]]:
        draw = self.world.draw
        return [
            *([(self.extend, 6)] if draw is not None and draw.leases else []),
            (self.guest, 40),
            (self.submit, 12),
            (self.job, 4),
            (self.host, 3),
            (self.load, 10),
            (self.balancer, 8),
            (self.scale, 10),
            (self.deploy, 2),
            (self.configure, 1),
            (self.host_fails, 2),
            (self.host_returns, 4),
            (self.vm_dies, 4),
        ]

    def _ask(self, writer: str, wanted: Compose) -> None:
        node = self.world.anybody(writer)
        if node is not None and node.leads:
            node.proposals.append(wanted)

    # ---------------------------------------------------------------------------------------------------------- people

    def submit(self) -> None:
        chance = self.world.chance
        if self.submitted >= JOBS_MAX:
            return
        self.submitted += 1
        dept, nodes, cores = chance.choice(("hpc", "hpc", "bio")), chance.choice((1, 1, 2)), chance.choice((1, 2))
        array, draw = (0, 1, 2) if chance.random() < 0.1 else (), self.world.draw
        more = {"array": array} | ({"user": "ann"} if draw is None else draw.job() | draw.lease(self.world.clock))

        def submitted(custody: Custody, drafted: list[Fact]) -> list[Fact]:
            if custody.state.config is None or custody.state.config.department(dept) is None:
                return []  # as the door does
            number = custody.state.job_last + 1 + sum(isinstance(fact, f.JobSubmitted) for fact in drafted)
            job = f.JobSubmitted(
                job=str(number),
                dept=dept,
                name="j",
                payload="p",
                nodes=nodes,
                cores=cores,
                walltime_s=WALLTIME_S,
                held=False,
                on_term=self.on_term(str(number)),
                **more,
            )
            if job.lease is not None and not job.best_effort:
                self.slots[job.job] = None
            return [job]

        self._ask("admission", submitted)

    def job(self) -> None:
        """Cancel, hold or release one."""
        kind = self.world.chance.choice((f.JobCancelled, f.JobHeld, f.JobResumed, f.JobResumed))
        pick = self.world.chance.random()

        def changed(custody: Custody, _drafted: list[Fact]) -> list[Fact]:
            units = [u.id for u in custody.state.units.values() if u.state != "final" and not is_instance(u.id)]
            return [kind(job=units[int(pick * len(units))], user="ann")] if units else []

        self._ask("admission", changed)

    def extend(self) -> None:
        """A lease is extended, if there is one."""
        pick, more_s = self.world.chance.random(), self.world.chance.uniform(0.5, 4.0)

        def extended(custody: Custody, _drafted: list[Fact]) -> list[Fact]:
            slots = [u.id for u in custody.state.units.values() if u.state != "final" and u.id in self.slots]
            if not slots:
                return []
            return [f.LeaseExtended(job=slots[int(pick * len(slots))], walltime_s=WALLTIME_S + more_s)]

        self._ask("admission", extended)

    def host(self) -> None:
        """Cordon, drain or uncordon one."""
        host, number = self.world.chance.choice(list(self.world.site.hosts)), self.world.chance.random()
        fact: Fact = f.HostUncordoned(host=host, reason="r", user="root")
        if number < 0.4:
            until = self.world.clock + 20.0 * number if number < 0.15 else None
            fact = f.HostCordoned(host=host, reason="r", user="root", drain=number < 0.25, until=until)
        self._ask("admission", lambda custody, _: [fact] if host in custody.state.hosts else [])

    def scale(self) -> None:
        minimum, exact = self.world.chance.choice(((None, None), (1, None), (2, None), (None, 0), (None, 1), (None, 2)))
        fact = f.ScaleRequested(dept="web", user="wendy", minimum=minimum, exact=exact)
        self._ask("admission", lambda _custody, _: [fact])

    def deploy(self) -> None:
        """A release; two doors, or two people, may take the same number."""
        unavailable, surge = self.world.chance.choice(((0, 1), (1, 0), (2, 1)))

        def asked(custody: Custody, _drafted: list[Fact]) -> list[Fact]:
            if custody.state.config is None or custody.state.config.department("web") is None:
                return []
            number = custody.state.release_last.get("web", 0) + 1
            return [
                f.ReleaseRequested(
                    dept="web",
                    release=number,
                    user="wendy",
                    content=Release(image=f"v{number}"),
                    max_unavailable=unavailable,
                    max_surge=surge,
                )
            ]

        self._ask("admission", asked)

    def configure(self) -> None:
        """The operator changes weights and limits, removes a department, or brings it back."""
        chosen = self.world.chance.choice(self.world.configs)

        def adopted(custody: Custody, _drafted: list[Fact]) -> list[Fact]:
            if custody.state.config is None or custody.state.config == chosen:
                return []
            return [f.ConfigAdopted(cloud=custody.state.cloud, custody_rules=RULES, config=chosen)]

        self.world.faults["configuration changed"] += 1
        self._ask("provisioner", adopted)

    def load(self) -> None:
        end, level = self.world.clock, self.world.chance.choice((0.0, 0.1, 0.9, 1.5))
        start = max(self.heard_until, end - 1.0)
        if end > start:
            self.heard_until = end
            fact = f.LoadObserved(dept="web", start=start, end=end, utilisation=level, samples=1)
            self._ask("scheduler.web", lambda _custody, _: [fact])

    def balancer(self) -> None:
        """A word on an instance: often that it has drained; that it is not reached, or is again; now and then nonsense."""
        pick, kind = self.world.chance.random(), self.world.chance.random()

        def heard(custody: Custody, _drafted: list[Fact]) -> list[Fact]:
            live = [u for u in custody.state.units.values() if is_instance(u.id) and u.live]
            drain = [u for u in live if u.drains_until is not None]
            if not live:
                return []
            some = drain if drain and kind < 0.7 else live
            unit = some[int(pick * len(some))]
            state: Literal["drained", "unready", "ready"] = (
                "drained" if unit.drains_until is not None or kind < 0.1 else "unready" if kind < 0.5 else "ready"
            )
            return [f.InstanceReported(unit=unit.id, attempt=unit.attempt, state=state, user="balancer")]

        self._ask("admission", heard)

    # -------------------------------------------------------------------------------------------------------- bad luck

    def host_fails(self) -> None:
        host = self.world.chance.choice(list(self.world.site.hosts))
        self.world.site.down.add(host)
        self.world.faults["host lost"] += 1
        if self.world.chance.random() < 0.5:
            for machine in self.world.site.on(host):
                del self.world.site.vms[machine.vm]

    def host_returns(self) -> None:
        for host in sorted(self.world.site.down):
            if self.world.chance.random() < 0.5:
                self.world.site.down.discard(host)

    def vm_dies(self) -> None:
        phases = (Phase.RUNNING, Phase.SAVED)
        running = [machine for machine in self.world.site.vms.values() if machine.phase in phases]
        if running:
            machine = self.world.chance.choice(running)
            self.world.faults["VM dies" if machine.phase is Phase.RUNNING else "saved VM is lost"] += 1
            if self.world.chance.random() < 0.5:
                machine.phase = Phase.OFF
            else:
                del self.world.site.vms[machine.vm]

    # ---------------------------------------------------------------------------------------------------------- guests

    def guest(self) -> None:
        running = [machine for machine in self.world.site.vms.values() if machine.phase is Phase.RUNNING]
        door = self.world.anybody("admission")
        if running and door is not None and door.leads:
            self._call(self.world.chance.choice(running), door)

    def _call(self, machine: Machine, door: Node) -> bool:
        """One call of a guest; True if anything came of it."""
        if machine.reported:
            return self._next(machine, door)
        unit, named = machine.unit, machine.attempt
        attempt = standing.speaks_for(door.core, unit, named, machine.rank)
        worth = standing.standing(door.core, unit, attempt, named)
        if worth in ("early", "away"):
            return False
        if worth == "gone" or (worth == "over" and not self._is_done(machine)):
            told = worth == "over" and self._traps(machine)
            return self._report(machine, door, attempt, told) if told else self.world.site.power_off(machine)
        if machine.started is None:
            return self._begin(machine, door, attempt)
        if self._is_done(machine):
            return self._report(machine, door, attempt)
        return False

    def _next(self, machine: Machine, door: Node) -> bool:
        """Its job has completed: it asks what is next."""
        now = door.now(self.world.clock)
        told = vm_reuse.following(door.core, machine.unit, machine.attempt, machine.rank, now)
        if told == "gone":
            return self.world.site.power_off(machine)
        if told == "park":
            return bool(self._parked(door, machine, [])) and self._propose(
                door, lambda: self._parked(door, machine, [])
            )
        if isinstance(told, str):
            return False
        self.world.faults["next job"] += 1
        machine.unit, machine.attempt, machine.rank = told.unit, told.attempt, told.rank
        machine.started, machine.reported = None, False
        return True

    def _parked(self, door: Node, machine: Machine, drafted: list[Fact]) -> list[Fact]:
        vm = door.custody.bound(machine.unit, machine.attempt, machine.rank)
        return vm_reuse.parked(door.core, vm, door.now(self.world.clock), drafted)

    def _begin(self, machine: Machine, door: Node, attempt: int) -> bool:
        known = door.custody.state.units[machine.unit]
        if known.began_at is not None:
            machine.started = self.world.clock
            return True
        addresses = ("127.0.0.1:80",) if is_instance(machine.unit) else ()
        running = [m for m in self.world.site.vms.values() if m.unit == machine.unit and m.phase is Phase.RUNNING]
        speaking = [m for m in running if standing.speaks_for(door.core, m.unit, m.attempt, m.rank) == attempt]
        if len(speaking) < known.nodes:
            return False
        return self._propose(door, lambda: compose.began(door.core, machine.unit, attempt, addresses))

    def _is_done(self, machine: Machine) -> bool:
        return self._end_of(machine) <= self.world.clock

    def _end_of(self, machine: Machine) -> float:
        """When the script of this machine ends; never where none has begun."""
        if machine.started is None or machine.rank != 0 or is_instance(machine.unit) or machine.reported:
            return NEVER
        return machine.started + self.script(machine.unit).seconds

    def script(self, unit: str) -> Script:
        return self.scripts.setdefault(unit, Script(self.world.seed, unit))

    def on_term(self, job: str) -> OnTerm | None:
        return random.Random(f"on_term {self.world.seed} {job}").choice((None, "stop", "complete"))

    def _traps(self, machine: Machine) -> bool:
        """Its script runs, and will end with 0 when it is told to end."""
        runs = machine.started is not None and self.world.clock < self._end_of(machine)
        return runs and machine.rank == 0 and not is_instance(machine.unit) and self.script(machine.unit).traps

    def last_words(self, machine: Machine) -> None:
        """OpenNebula has shut its VM down."""
        door = self.world.nodes.get("admission")
        if door is None or not door.leads or machine.reported or not self._traps(machine):
            return
        attempt = standing.speaks_for(door.core, machine.unit, machine.attempt, machine.rank)
        if standing.standing(door.core, machine.unit, attempt, machine.attempt) in ("live", "over"):
            self._report(machine, door, attempt, terminated=True)

    def _report(self, machine: Machine, door: Node, attempt: int, terminated: bool = False) -> bool:
        code = 0 if terminated else self.script(machine.unit).exit
        fact = f.AttemptReported(unit=machine.unit, attempt=attempt, exit=code, terminated=terminated)
        self.world.faults["exit 0 after SIGTERM"] += terminated
        if code == 0 and not terminated:
            self.finished[machine.unit] = None
        try:
            compose.report(door.core, fact, [])
        except Refused:
            known = door.core.unit(machine.unit)
            stays = known is not None and known.final == "completed" and not terminated
            if stays and self.world.chance.random() < STAYS:
                machine.reported = True  # its report is journaled: it asks what is next
                return True
            return self.world.site.power_off(machine)  # gone; or it is journaled

        def reported(_custody: Custody, drafted: list[Fact]) -> list[Fact]:
            live = door.custody.live(fact.unit, fact.attempt)
            said = compose.report(door.core, fact, drafted)
            stays = fact.exit == 0 and live and not terminated
            return [*said, *(self._parked(door, machine, drafted) if stays else ())]

        door.proposals.append(lambda custody, drafted: _or_nothing(lambda: reported(custody, drafted)))
        return True

    @staticmethod
    def _propose(door: Node, wanted: Callable[[], list[Fact]]) -> bool:
        door.proposals.append(lambda _custody, _drafted: _or_nothing(wanted))
        return True

    # ---------------------------------------------------------------------------------------------------------- healed

    def heal(self) -> None:
        """Nobody asks for anything more; what was held is released, what was cordoned is back."""

        def released(custody: Custody, _drafted: list[Fact]) -> list[Fact]:
            held = [u.id for u in custody.state.units.values() if u.held and u.state != "final"]
            cordoned = [host.name for host in custody.state.hosts.values() if host.cordoned]
            facts: list[Fact] = [f.JobResumed(job=unit, user="ann") for unit in held]
            return facts + [f.HostUncordoned(host=name, reason="", user="root") for name in cordoned]

        self.released = released

    def everything(self) -> bool:
        """Every guest calls; True if anything came of it."""
        door = self.world.nodes.get("admission")
        if door is None or not door.leads:
            return False
        if self.released(door.custody, []):
            door.proposals.append(self.released)
        running = [machine for machine in self.world.site.vms.values() if machine.phase is Phase.RUNNING]
        return sum(self._call(machine, door) for machine in running) > 0

    def next_due(self) -> float:
        running = [machine for machine in self.world.site.vms.values() if machine.phase is Phase.RUNNING]
        return min((self._end_of(machine) for machine in running), default=NEVER)

    def unrest(self) -> list[str]:
        """C7: what is not as it must be in a healed cloud at rest."""
        custody, site = self.world.truth.custody, self.world.site
        kills = self.world.draw is not None and self.world.draw.kills
        found = []
        for unit in custody.state.units.values():
            if is_instance(unit.id):
                continue
            if unit.state != "final":
                found.append(f"{unit.id} is {unit.state} (attempt {unit.attempt})")
            elif unit.final == "killed" and not kills:
                found.append(f"{unit.id} ended {unit.final}")
            elif unit.final == "completed":
                found += self._completed(unit)
            elif unit.final == "timeout" and self.script(unit.id).seconds < WALLTIME_S - 1:
                pass  # its ranks may have begun long before it was heard of
        live = {u.id for u in custody.state.units.values() if is_instance(u.id) and u.live}
        found += [f"VM of {m.unit}/{m.attempt} is left" for m in site.vms.values() if m.unit not in live]
        found += [f"{vm.unit}/{vm.attempt} has an open VM" for vm in custody.state.vms.values() if vm.unit not in live]
        found += [f"{host.name} is {host.state}" for host in custody.state.hosts.values() if host.state != "held"]
        found += [
            f"{name} holds {custody.held(name)} hosts and may keep {custody.quota(name).hosts}"
            for name in ("bio", "hpc", "web")
            if custody.held(name) > custody.quota(name).hosts
        ]
        wanted, held = custody.state.demands.get("web", 0), custody.held("web")
        return found + ([f"web demands {wanted} hosts and holds {held}"] if held < wanted else [])

    def _completed(self, unit: Unit) -> list[str]:
        """Its script came to its end, with 0; or it had been told to end, and wishes that to be one."""
        wish = self.on_term(job_of(unit.id)) or ("complete" if self.world.draw and unit.dept == COMPLETES else "stop")
        if unit.early:
            return [] if wish == "complete" else [f"{unit.id} was told to end, and counts as completed"]
        return [] if unit.id in self.finished else [f"{unit.id} has completed, and its script never came to its end"]


def _or_nothing(wanted: Callable[[], list[Fact]]) -> list[Fact]:
    try:
        return wanted()
    except Refused:
        return []
