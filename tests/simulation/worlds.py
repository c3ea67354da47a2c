"""Small worlds, exhaustively: every order of events on the real cores, deduplicated by state.

    .venv/bin/python -m tests.simulation.worlds_explore               # lists the worlds, and how to run them

What is real: custody and all cores, the envelope codec, admission's rules for guests (`compose`).  A state is
  land     the fold of the whole journal by custody and all cores but the executor's (`worlds_lands`)
  executor its core: what it has folded, seen and asked, and a poll that is on its way (`worlds_executor`)
  unread   messages of the journal that the executor has not read
  parked   for each writer the envelope that it has drafted and that has not been appended (S1: at most one)
  calls    issued to OpenNebula, not yet arrived; their caller may be dead
  site     OpenNebula's VMs and hosts (`worlds_site`)
  budget   how many spikes, cancels, losses, crashes, deaths and steps of the clock are left; and the clock

Every interleaving of: a writer decides, its envelope is appended, the executor reads one message, issues calls, a call arrives,
a poll is begun, a poll is heard, a guest calls, reports or stops; load rises, a job is cancelled, a host is lost and returns
(with or without its VMs), the executor crashes, time goes on to the next moment at which anybody has something to do.

Why that is all orders, though only the executor reads message by message
  D1  What a service other than the executor does is a function of the prefix that it has read, its own last envelope included.
      To read late, and decide, is the same as to decide when the journal had that length, and to be appended late: `parked`.
  D2  Its crash before the append is a decision never taken; its restart is a replay, which each step here is (`worlds_lands`);
      its successor's `leader.started` changes nothing that a core reads.  A stale leader's envelope is refused by the fence:
      again a decision never taken.  So only the executor's crash is an action: it forgets what it saw and asked, and its
      calls go on.
  D3  Facts that no rule of the executor reads (`BLIND`) are folded by it as soon as they are next: reading them changes
      nothing that it decides, calls or takes for news, so the step commutes with all others.
  D4  A poll that would be no news if it were heard at once is not begun; answers are heard when the call arrives, or never (the
      caller has crashed).  Late answers, lost answers and polls that tell old news are for chaos.
  D5  In a world that is `prompt` the executor reads at once, calls as soon as it may (as its edge does when nothing holds it
      up), and hears a poll when it is begun.  D1 holds for its decisions, and calls still arrive at any time; but it never sees
      the effect of a fact that it has not read (a guest that stops as its report is journaled), and never leaves out a call
      because two messages came together.  That is what the worlds that are not `prompt` are for; they are smaller.

What must be true in each state: `worlds_lands`' checks, C2 and C3 (as in `chaos`), X1, X2; and from each state, healed (hosts
back, no more faults, a fixed fair schedule): everything comes to rest, every job over, demand met, no host draining (C7).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from schemas import facts as f
from schemas.config import CloudConfig, Department, Policy
from schemas.ids import is_instance, sort_key
from services.domain.custody.rules import RULES
from services.executor.core.calls import Call
from tests.simulation.worlds_executor import Executors
from tests.simulation.worlds_lands import EXECUTOR, Land, Lands, Violation
from tests.simulation.worlds_site import CLOUD, CORES, MEMORY_MB, Machine, Site
from tests.support.world import START, batch, cloud, web

BLIND: Final = (
    f.DemandChanged, f.QuotaChanged, f.LoadObserved, f.AttemptBegan, f.JobSubmitted, f.JobHeld, f.JobResumed,
    f.ScaleRequested, f.HostCordoned, f.HostUncordoned, f.LeaderStarted,
)  # fmt: skip
WAIT_S: Final = 10.0  # from the warm-up to the story: longer than the web's window
HEALED_MAX: Final = 600  # steps from a state to rest
ONCE: Final = ("spike", "cancel", "loss", "crash", "die", "ticks")


class State(NamedTuple):
    land: int
    executor: int
    unread: tuple[int, ...]
    parked: tuple[int | None, ...]
    calls: tuple[tuple[Call, bool], ...]  # and whether its caller lives
    site: Site
    budget: tuple[int, ...]  # as ONCE
    clock: float


class Setting(NamedTuple):
    """A world.  `jobs`: department, nodes, cores; `web`: instances at first (None: no web department)."""

    hosts: int
    jobs: tuple[tuple[str, int, int], ...]
    web: int | None = 0
    budget: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
    prompt: bool = False


def setting(
    hosts: int, *jobs: tuple[str, int, int], web: int | None = 0, prompt: bool = False, **budget: int
) -> Setting:
    return Setting(hosts, jobs, web, tuple(budget.get(name, 0) for name in ONCE), prompt)


Move = tuple[str, State]


class World:
    def __init__(self, made: Setting) -> None:
        self.setting = made
        self.config = self._config()
        self.lands = Lands(self.config)
        self.executors = Executors(self.lands)
        self.writers = [*self.lands.writers, EXECUTOR]
        self.me = len(self.writers) - 1  # the executor's place in `parked`
        self.units: tuple[str, ...] = ()
        self.safe: set[tuple[int, Site]] = set()
        self.known: set[State] = set()  # from which everything ends
        self.first = self._warm_up()

    # ---------------------------------------------------------------------------------------------------------- the start

    def _departments(self) -> list[Department]:
        names = list(dict.fromkeys(name for name, _, _ in self.setting.jobs)) or ["hpc"]
        found = [batch(name, boot_timeout_s=1e6, walltime_max_s=1e6) for name in names]
        if self.setting.web is not None:
            wanted = {"instances_min": self.setting.web, "instances_max": self.setting.web + 1}
            found.append(
                web(
                    "web",
                    rule="threshold",
                    window_s=1.0,
                    signal_timeout_s=1e6,
                    boot_timeout_s=1e6,
                    drain_s=0.1,
                    **wanted,
                )
            )
        return found

    def _config(self) -> CloudConfig:
        made = cloud(*self._departments())
        return CloudConfig(name=made.name, departments=made.departments, policy=Policy(stuck_s=60.0))

    def _warm_up(self) -> State:
        """Without faults: leaders, configuration, hosts, the web's instances; then all jobs are submitted at once."""
        hosts = tuple(f"h{n + 1}" for n in range(self.setting.hosts))
        jobs = [str(n + 1) for n in range(len(self.setting.jobs))]
        self.units = (*jobs, *(f"web.{n + 1}" for n in range(30)))
        state = State(
            self.lands.first, self.executors.empty(), (), (None,) * len(self.writers), (), Site(hosts), (0,) * 6, START
        )
        for writer in self.writers:
            state = self._append(state, self._say(writer, START, f.LeaderStarted(epoch=1, instance="")))
        adopted = f.ConfigAdopted(cloud=CLOUD, custody_rules=RULES, config=self.config)
        state = self._append(state, self._say("provisioner", START, adopted))
        described = [f.HostDescribed(host=h, one_id=n + 1, cores=CORES, memory_mb=MEMORY_MB, cluster="default")
                     for n, h in enumerate(hosts)]  # fmt: skip
        state = self._append(state, self._say(EXECUTOR, START, *described))
        while state.unread:
            state = self._deliver(state)
        ledger = self.executors.ledger(state.executor)
        state = state._replace(executor=self.executors.start(state.land, ledger, START))
        state = self.rest(state)[-1]
        submitted = [
            f.JobSubmitted(job=job, dept=dept, user="ann", name="j", payload="p", nodes=nodes, cores=cores,
                           walltime_s=1e6)
            for job, (dept, nodes, cores) in zip(jobs, self.setting.jobs, strict=True)
        ]  # fmt: skip
        clock = state.clock + WAIT_S
        if submitted:
            state = self._append(state, self._say("admission", clock, *submitted))
        while state.unread:
            state = self._deliver(state)
        return state._replace(clock=clock, budget=self.setting.budget)

    def _say(self, writer: str, at: float, *facts: f.Fact) -> int:
        return self.lands.message(writer, at, facts)

    # ------------------------------------------------------------------------------------------------------------ moves

    def moves(self, s: State, faults: bool = True) -> Iterator[Move]:
        """Every state that one step leads to.  Without faults: in the order of a fair schedule."""
        for step, reached in self._steps(s, faults):
            yield step, self._prompt(reached) if self.setting.prompt else reached

    def _steps(self, s: State, faults: bool) -> Iterator[Move]:
        yield from self._appends(s)
        if s.unread:
            yield "executor reads", self._deliver(s)
        yield from self._decisions(s)
        yield from self._arrivals(s)
        if not self.setting.prompt:
            yield from self._calls(s)
        yield from self._polls(s)
        yield from self._guests(s)
        if faults:
            yield from self._faults(s)
            if s.budget[5]:
                yield from self._time(s._replace(budget=(*s.budget[:5], s.budget[5] - 1)))

    def _prompt(self, s: State) -> State:
        """D5: the executor reads what there is, and calls."""
        while s.unread:
            s = self._deliver_one(s)
        for _, reached in self._calls(s):
            s = reached
        return s

    def _appends(self, s: State) -> Iterator[Move]:
        for place, message in enumerate(s.parked):
            if message is not None:
                yield (
                    f"{self.writers[place]} appends",
                    self._append(s._replace(parked=_put(s.parked, place, None)), message),
                )

    def _append(self, s: State, message: int) -> State:
        s = s._replace(land=self.lands.step(s.land, message), unread=(*s.unread, message))
        return self._skip(s)

    def _skip(self, s: State) -> State:
        """D3."""
        while s.unread and all(isinstance(fact, BLIND) for fact in self.lands.said(s.unread[0]).facts):
            s = self._deliver_one(s)
        return s

    def _deliver(self, s: State) -> State:
        return self._skip(self._deliver_one(s))

    def _deliver_one(self, s: State) -> State:
        return s._replace(executor=self.executors.fold(s.executor, s.unread[0]), unread=s.unread[1:])

    def _decisions(self, s: State) -> Iterator[Move]:
        now = max(s.clock, self.lands[s.land].at)
        for writer, facts in self.lands.drafts(s.land, s.clock).items():
            place = self.writers.index(writer)
            if s.parked[place] is None:
                yield f"{writer} decides", s._replace(parked=_put(s.parked, place, self._say(writer, now, *facts)))
        if s.parked[self.me] is None and not any(self.lands.said(m).writer == EXECUTOR for m in s.unread):
            number, message = self.executors.decide(s.executor, s.clock)
            if message is not None:
                yield "executor decides", s._replace(executor=number, parked=_put(s.parked, self.me, message))

    def _arrivals(self, s: State) -> Iterator[Move]:
        for index, (call, cares) in enumerate(s.calls):
            if index and s.calls[index - 1] == (call, cares):
                continue
            site, result = s.site.perform(call, self.units)
            executor = self.executors.answer(s.executor, result, s.clock) if cares else s.executor
            left = s.calls[:index] + s.calls[index + 1 :]
            yield f"{_told(call)} arrives", s._replace(executor=executor, calls=left, site=site)

    def _calls(self, s: State) -> Iterator[Move]:
        number, made = self.executors.calls(s.executor, s.clock)
        if made:
            calls = tuple(sorted((*s.calls, *((call, True) for call in made)), key=repr))
            yield "executor calls", s._replace(executor=number, calls=calls)

    def _polls(self, s: State) -> Iterator[Move]:
        flying, strange = self.executors.polls(s.executor)
        if flying:
            while strange and s.unread:  # X6
                s = self._deliver(s)
            yield "poll is heard", s._replace(executor=self.executors.seen(s.executor, s.clock))
            return
        begun = self.executors.look(s.executor, s.site, s.clock)
        if begun is None:
            return
        if self.setting.prompt:
            yield "poll", s._replace(executor=self.executors.seen(begun, s.clock))
        else:
            yield "poll begins", s._replace(executor=begun)

    # ----------------------------------------------------------------------------------------------------------- guests

    def _guests(self, s: State) -> Iterator[Move]:
        land, door = self.lands[s.land], s.parked[0] is None
        for machine in s.site.machines:
            if not machine.host:
                continue
            unit = land.units[machine.unit]
            latest = unit.attempt == machine.attempt and unit.state != "final"
            if not (latest and unit.live):
                yield f"guest {machine.key} is told to go", s._replace(site=s.site.without(machine))
            if door and machine.rank == 0 and latest:
                yield from self._speaks(s, land, machine)

    def _speaks(self, s: State, land: Land, machine: Machine) -> Iterator[Move]:
        """Rank 0 calls: all have come up, or it is done."""
        unit, now = land.units[machine.unit], max(s.clock, land.at)
        name, attempt = machine.unit, machine.attempt
        fact: f.Fact
        if unit.began and not is_instance(name):
            fact = f.AttemptReported(unit=name, attempt=attempt, exit=0)
        elif unit.live and not unit.began and s.site.ranks(name, attempt) == unit.nodes:
            addresses = ("127.0.0.1:80",) if is_instance(name) else ()
            fact = f.AttemptBegan(unit=name, attempt=attempt, addresses=addresses)
        else:
            return
        yield (
            f"guest {machine.key}: {f.kind_of(fact)}",
            s._replace(parked=_put(s.parked, 0, self._say("admission", now, fact))),
        )

    # ----------------------------------------------------------------------------------------------------------- faults

    def _faults(self, s: State) -> Iterator[Move]:
        spike, cancel, loss, crash, die, _ = s.budget
        if spike:
            yield from self._spike(s._replace(budget=(spike - 1, *s.budget[1:])))
        if cancel and s.parked[0] is None:
            yield from self._cancel(s._replace(budget=(spike, cancel - 1, *s.budget[2:])))
        if loss:
            for host in s.site.hosts:
                if host not in s.site.down:
                    site = s.site._replace(down=(*s.site.down, host))
                    yield f"{host} is lost", s._replace(site=site, budget=(*s.budget[:2], loss - 1, *s.budget[3:]))
        for host in s.site.down:
            yield from self._returns(s, host)
        if crash:
            yield "executor crashes", self._crash(s._replace(budget=(*s.budget[:3], crash - 1, *s.budget[4:])))
        if die:
            for machine in s.site.machines:
                if machine.host:
                    site = s.site.without(machine)
                    yield f"VM {machine.key} dies", s._replace(site=site, budget=(*s.budget[:4], die - 1, s.budget[5]))

    def _spike(self, s: State) -> Iterator[Move]:
        """The web's meter has seen a whole window of high load; one more instance is asked for where nothing is in service."""
        land, now = self.lands[s.land], max(s.clock, self.lands[s.land].at)
        if self.setting.web:
            place = self.writers.index("scheduler.web")
            heard: f.Fact = f.LoadObserved(dept="web", start=now - 1.0, end=now, utilisation=1.5, samples=1)
            facts = (heard, *self.lands.drafts(s.land, s.clock).get("scheduler.web", ()))
            writer = "scheduler.web"
        else:
            place, writer = 0, "admission"
            facts = (f.ScaleRequested(dept="web", user="wendy", minimum=1),)
        if s.parked[place] is None and land.units is not None:
            yield "load rises", s._replace(parked=_put(s.parked, place, self._say(writer, now, *facts)))

    def _cancel(self, s: State) -> Iterator[Move]:
        land, now = self.lands[s.land], max(s.clock, self.lands[s.land].at)
        for name, unit in land.units.items():
            if not is_instance(name) and unit.state != "final":
                message = self._say("admission", now, f.JobCancelled(job=name, user="ann"))
                yield f"{name} is cancelled", s._replace(parked=_put(s.parked, 0, message))

    @staticmethod
    def _returns(s: State, host: str) -> Iterator[Move]:
        site = s.site._replace(down=tuple(h for h in s.site.down if h != host))
        yield f"{host} is back", s._replace(site=site)
        if s.site.on(host):
            yield f"{host} is back, rebooted", s._replace(site=site.without(*s.site.on(host)))

    def _crash(self, s: State) -> State:
        """D2: the successor folds to the end, and begins to look."""
        s = s._replace(parked=_put(s.parked, self.me, None), calls=tuple((call, False) for call, _ in s.calls))
        while s.unread:
            s = self._deliver_one(s)
        ledger = self.executors.ledger(s.executor)
        return s._replace(executor=self.executors.start(s.land, ledger, s.clock))

    def _time(self, s: State) -> Iterator[Move]:
        due = min(self.lands.wake_at(s.land, s.clock), self.executors.wake_at(s.executor, s.clock))
        if s.clock < due < START + 1e5:
            yield "time passes", s._replace(clock=due)

    # ------------------------------------------------------------------------------------------------ what must be true

    def check(self, s: State) -> None:
        """C2, C3."""
        if (s.land, s.site) in self.safe:
            return
        self.safe.add((s.land, s.site))
        land = self.lands[s.land]
        running: dict[str, int] = {}
        for name in s.site.hosts:
            state, dept = land.hosts.get(name, ("absent", None))
            machines = s.site.on(name)
            for machine in machines:
                unit = land.units[machine.unit]
                if not (state in ("draining", "lost") or (state == "held" and dept == unit.dept)):
                    raise Violation(f"{machine.key} runs on {name}, which is {state} of {dept}")
                if state != "lost" and running.setdefault(machine.unit, machine.attempt) != machine.attempt:
                    raise Violation(f"two attempts of {machine.unit} run at once")
            if state != "lost" and sum(machine.cores for machine in machines) > CORES:
                raise Violation(f"{name} runs {[machine.key for machine in machines]}")

    # ------------------------------------------------------------------------------------------------------------ healed

    def rest(self, s: State) -> list[State]:
        """C7: the states of a fair schedule from `s`, hosts being back, until rest or a state that is known to rest."""
        s = s._replace(site=s.site._replace(down=()), budget=(0,) * 6)
        path: list[State] = []
        seen: set[State] = set()
        while s not in self.known:
            if s in seen or len(path) > HEALED_MAX:
                raise Violation("healed, it goes round in circles")
            seen.add(s)
            path.append(s)
            following = next(self.moves(s, faults=False), None) or next(self._time(s), None)
            if following is None:
                self._at_rest(s)
                break
            s = self._prompt(following[1]) if self.setting.prompt else following[1]
            self.check(s)
        self.known.update(path)
        return [*path, s]

    def _at_rest(self, s: State) -> None:
        land, found = self.lands[s.land], []
        for name, unit in sorted(land.units.items(), key=lambda item: sort_key(item[0])):
            room = len(land.hosts) - land.demands.get("web", 0)
            waits = unit.state == "pending" and unit.nodes > room  # for a web that wants its hosts for ever
            if not (is_instance(name) or waits or unit.final in ("completed", "cancelled")):
                found.append(f"{name} is {unit.state}, {unit.final} (attempt {unit.attempt})")
        live = {name for name, unit in land.units.items() if is_instance(name) and unit.live}
        found += [f"VM {m.key} is left" for m in s.site.machines if m.unit not in live]
        found += [f"{name} is {state}" for name, (state, _) in land.hosts.items() if state != "held"]
        held = sum(1 for _, dept in land.hosts.values() if dept == "web")
        if held < land.demands.get("web", 0):
            found.append(f"the web demands {land.demands['web']} hosts and holds {held}")
        if found:
            raise Violation(f"healed, and it rests so: {'; '.join(found)}")


def _put(parked: tuple[int | None, ...], place: int, message: int | None) -> tuple[int | None, ...]:
    return (*parked[:place], message, *parked[place + 1 :])


def _told(call: Call) -> str:
    about = getattr(call, "key", None) or getattr(call, "host", "")
    return f"{type(call).__name__.lower()} {about}"
