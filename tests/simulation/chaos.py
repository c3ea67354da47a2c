"""A whole cloud in one process, under every fault that the protocol knows, on a virtual clock: a seed is a story.

    .venv/bin/python -m tests.simulation.chaos SEED          # tells the story of one seed, and what is wrong in it

What is real: all cores (admission, provisioner, executor, two batch schedulers, one web scheduler), the shared fold, the
envelope codec, snapshots, and admission's rules for guests.  What is not: the broker (a list, fenced by the expected
sequence), the shells (`chaos_node`), OpenNebula and its guests (`chaos_site`).

What happens, at random
  Each node reads its own prefix of the journal and decides on it.  Envelopes arrive late, twice, or after their node has died.
  Nodes are killed and start again from a snapshot or from the beginning; some killed ones go on as zombies until the fence
  stops them, and the zombie of an executor goes on calling OpenNebula.  Calls arrive arbitrarily late, also after their
  caller's death; answers are lost.  Polls show a past.  Hosts fail and come back with their VMs still running; VMs die; boots
  fail.  People submit, cancel, hold, release, cordon, scale; load rises and falls; scripts end, fail, hang.

What must be true after each step (PROTOCOL, check())
  C1  `check()` of custody and of each core that has moved
  C2  nothing runs on a host that its department does not hold, draining and lost hosts excepted; never over a host's capacity
  C3  no two attempts of a unit run, lost hosts excepted; no rank of an attempt is started twice
  C4  a department loses a host only by its own release, by a seizure above its quota, or by loss
  C5  leaders of a writer are counted without a gap: nobody wrote past the fence
Afterwards
  C6  a node's live state, a replay from the beginning, and snapshot and tail are the same bytes
  C7  healed, the cloud comes to rest within bounded rounds: every job over, those that could end well completed, no VM left but
      instances, all hosts in use, the web's demand met
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, Final

from schemas import facts as f
from schemas.custody import RULES, Custody
from schemas.custody_check import check
from schemas.facts import Fact
from schemas.meta import Meta
from schemas.subjects import journal
from services.admission.core import AdmissionCore
from services.executor.core import ExecutorCore
from services.provisioner.core import ProvisionerCore
from services.runtime.fold import Fold, Stored
from services.runtime.snapshots import Snapshot
from services.scheduler.batch import BatchCore
from services.scheduler.web import WebCore
from tests.simulation.chaos_executor import Hands
from tests.simulation.chaos_node import Deposed, Message, Node
from tests.simulation.chaos_people import People
from tests.simulation.chaos_site import CORES, Site
from tests.support.world import START, NullCore, batch, cloud, web

STEPS: Final = 400  # of chaos; about fifty envelopes, and as many while it heals
ROUNDS_MAX: Final = 600  # of the healed cloud, until it rests
WARM_ROUNDS: Final = (0, 6, 10, 14, 20)  # without faults, before chaos begins: some clouds are young, some are at work
QUIET_ROUNDS: Final = (
    4  # in which nothing happens, and the cloud is at rest: a poll is heard one round after it was made
)
HOSTS: Final = 4
CLOUD_ID: Final = "c1"
FACTORIES: Final[dict[str, Callable[[Custody], Any]]] = {
    "admission": AdmissionCore,
    "provisioner": ProvisionerCore,
    "executor": ExecutorCore,
    "scheduler.bio": lambda custody: BatchCore(custody, "bio"),
    "scheduler.hpc": lambda custody: BatchCore(custody, "hpc"),
    "scheduler.web": lambda custody: WebCore(custody, "web"),
}
CONFIG: Final = cloud(
    batch("bio", boot_timeout_s=8.0),
    batch("hpc", boot_timeout_s=8.0, weight=2.0),
    web("web", window_s=1.0, instances_max=2, boot_timeout_s=8.0),
)


class Wrong(AssertionError):
    """Something that must be true is not; the message names it and the seed."""


class Chaos:
    """One cloud.  `run` lives through a seed and raises `Wrong`."""

    fenced = True  # False: the broker takes what anybody sends, which must be noticed

    def __init__(self, seed: int, tell: Callable[[str], None] = lambda _text: None) -> None:
        self.seed, self.tell = seed, tell
        self.chance = random.Random(f"chaos {seed}")
        self.clock = START
        self.log: list[Stored] = []
        self.last: dict[str, int] = {}
        self.flying: list[Message] = []
        self.nodes: dict[str, Node] = {}
        self.zombies: list[Node] = []
        self.snapshots: dict[str, Snapshot] = {}
        self.births = 0
        self.truth = Fold(None, NullCore)
        self.judged = 0
        self.moved: dict[int, Node] = {}
        self.site = Site(CLOUD_ID, self.chance, {f"h{n}": n for n in range(1, HOSTS + 1)})
        self.hands = Hands(self)
        self.people = People(self)
        for writer in FACTORIES:
            self.start(writer)

    # ---------------------------------------------------------------------------------------------------------- the story

    def run(self, steps: int = STEPS) -> None:
        actions = self._actions()
        names, weights = [a for a, _ in actions], [w for _, w in actions]
        for _ in range(self.chance.choice(WARM_ROUNDS)):
            self._round()
            self.people.submit()
            self._pass_time()
        for _ in range(steps):
            self.clock += self.chance.choice((0.0, 0.001, 0.01, 0.05, 0.3))
            self.site.live(self.clock)
            self.act(self.chance.choices(names, weights)[0])
        self.heal()

    def _actions(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self.read, 60),
            (self.write, 50),
            (self.arrive, 40),
            (self.kill, 3),
            (self.save, 3),
            (self.revive, 5),
            *self.hands.actions(),
            *self.people.actions(),
        ]

    def act(self, action: Callable[[], None]) -> None:
        """One step, and then what must be true."""
        try:
            action()
        except Deposed as deposed:
            self.drop(deposed.node)
        self.verify()

    def everybody(self) -> list[Node]:
        return [*self.nodes.values(), *self.zombies]

    def anybody(self, writer: str | None = None) -> Node | None:
        found = [node for node in self.everybody() if writer is None or node.writer == writer]
        return self.chance.choice(found) if found else None

    # ------------------------------------------------------------------------------------------------------ the journal

    def read(self) -> None:
        node = self.anybody()
        if node is not None:
            self.follow(node, self.chance.choice((1, 1, 2, 5, 20)))

    def follow(self, node: Node, count: int) -> None:
        if node.read < len(self.log):
            self.moved[id(node)] = node
            node.follow(self.log, count)

    def write(self) -> None:
        node = self.anybody()
        if node is not None:
            self.send(node)

    def send(self, node: Node) -> bool:
        if node.writer == "provisioner" and node.leads and node.custody.state.config is None:
            adopted = f.ConfigAdopted(cloud=CLOUD_ID, custody_rules=RULES, config=CONFIG)
            node.proposals.append(lambda custody, _drafted: [] if custody.state.config else [adopted])
        message = node.draft(self.clock)
        if message is None:
            return False
        self.flying.append(message)
        if self.chance.random() < 0.1:
            self.flying.append(message)  # sent again, since no answer came
        return True

    def arrive(self) -> None:
        if self.flying:
            self.store(self.flying.pop(self.chance.randrange(len(self.flying))))

    def store(self, message: Message) -> None:
        """The broker's side of a fenced append."""
        if self.fenced and self.last.get(message.writer, 0) != message.expected:
            self._refused(message)
            return
        position = len(self.log) + 1
        stored = Stored(position, journal(message.writer), message.data, self.clock)
        self.log.append(stored)
        self.last[message.writer] = position
        before = {
            name: (self.truth.custody.held(name), self.truth.custody.quota(name).hosts)
            for name in ("bio", "hpc", "web")
        }
        epoch = getattr(self.truth.custody.state.leaders.get(message.writer), "epoch", 0)
        envelope, seen = self.truth.feed(stored)
        if envelope is None:
            raise self.wrong(f"garbage at {position}")
        self.tell(f"{self.clock - START:8.3f} {position:4} {message.writer:14} {told(seen)}")
        for fact, meta in seen:
            self._judge(fact, meta, before, epoch)

    def _judge(self, fact: Fact, meta: Meta, before: dict[str, tuple[int, int]], epoch: int) -> None:
        """C4, C5."""
        if meta.void is not None:
            return
        if isinstance(fact, f.HostSeized):
            held, quota = before[fact.dept]
            if held <= quota:
                raise self.wrong(f"{fact.host} was seized though {fact.dept} held {held} of {quota}")
            before[fact.dept] = held - 1, quota
        elif isinstance(fact, f.HostReleased):
            dept = meta.writer.partition(".")[2]
            before[dept] = before[dept][0] - 1, before[dept][1]
        elif isinstance(fact, f.LeaderStarted) and fact.epoch != epoch + 1:
            raise self.wrong(f"{meta.writer} began epoch {fact.epoch} after {epoch}")

    def _refused(self, message: Message) -> None:
        """S2: the node asks which envelope is the last one; if it is not its own, it ends."""
        last = self.log[self.last[message.writer] - 1] if message.writer in self.last else None
        for node in self.everybody():
            if node.outstanding == message.id and (last is None or last.data != message.data):
                ours = any(stored.data == message.data for stored in self.log)
                if not ours:
                    self.drop(node)
                return

    # ------------------------------------------------------------------------------------------------- death and return

    def start(self, writer: str) -> None:
        self.births += 1
        node = Node(writer, FACTORIES[writer], f"{writer}-{self.births}")
        node.start_from(self.snapshots.get(writer) if self.chance.random() < 0.7 else None)
        self.nodes[writer] = node
        self.moved[id(node)] = node

    def kill(self) -> None:
        """SIGKILL; or it goes on, cut off, until the fence stops it."""
        if not self.nodes:
            return
        node = self.nodes.pop(self.chance.choice(list(self.nodes)))
        if self.chance.random() < 0.4:
            self.zombies.append(node)
        self.tell(f"{self.clock - START:8.3f}      {node.instance} is killed, having read {node.read}")

    def drop(self, node: Node) -> None:
        if self.nodes.get(node.writer) is node:
            del self.nodes[node.writer]
        self.zombies = [zombie for zombie in self.zombies if zombie is not node]
        self.moved.pop(id(node), None)

    def save(self) -> None:
        node = self.anybody()
        if node is not None and node.leads:
            self.snapshots[node.writer] = node.snapshot()

    def revive(self) -> None:
        dead = [writer for writer in FACTORIES if writer not in self.nodes]
        if dead:
            self.start(self.chance.choice(dead))

    # ------------------------------------------------------------------------------------------------ what must be true

    def wrong(self, what: str) -> Wrong:
        return Wrong(f"{what}\n    reproduce: .venv/bin/python -m tests.simulation.chaos {self.seed}")

    def verify(self) -> None:
        problems = [problem for node in self.moved.values() for problem in node.problems()]
        self.moved.clear()
        if self.truth.position > self.judged:
            self.judged = self.truth.position
            problems += check(self.truth.custody)
        problems += self._site_problems()
        if problems:
            raise self.wrong("; ".join(problems))

    def _site_problems(self) -> list[str]:
        """C2, C3."""
        custody, found = self.truth.custody, []
        running: dict[str, int] = {}
        for name in self.site.hosts:
            host, machines = custody.state.hosts.get(name), self.site.on(name)
            lost = host is not None and host.state == "lost"
            for machine in machines:
                unit = custody.state.units[machine.unit]
                own = host is not None and host.state == "held" and host.dept == unit.dept
                what = f"{machine.unit}/{machine.attempt}/{machine.rank}"
                if host is None or not (own or host.state in ("draining", "lost")):
                    found.append(f"{what} runs on {name}, which is {host and host.state} of {host and host.dept}")
                if not lost and running.setdefault(machine.unit, machine.attempt) != machine.attempt:
                    found.append(
                        f"attempts {running[machine.unit]} and {machine.attempt} of {machine.unit} run at once"
                    )
            if not lost and sum(machine.cores for machine in machines) > CORES:
                found.append(f"{name} runs {machines}")
        return found + [f"{key} was started {count} times" for key, count in self.site.ran.items() if count > 1]

    def same_bytes(self) -> None:
        """C6."""
        for node in self.nodes.values():
            replayed = Fold(node.writer, node.factory)
            resumed = Node(node.writer, node.factory, "resumed")
            resumed.start_from(self.snapshots.get(node.writer))
            for message in self.log[: node.read]:
                replayed.feed(message)
            for message in self.log[resumed.read : node.read]:
                resumed.fold.feed(message)
            for name, fold in (("a replay", replayed), ("snapshot and tail", resumed.fold)):
                if resumed.read > node.read:
                    continue
                if (fold.custody.dump(), fold.core.dump()) != (node.custody.dump(), node.core.dump()):
                    raise self.wrong(f"{node.writer}: {name} gives another state than the one that lived")

    # ------------------------------------------------------------------------------------------------------------ healed

    def heal(self) -> None:
        """C7: every fault is over; then everything pending must finish."""
        self.tell(f"{self.clock - START:8.3f}      healed")
        self.zombies.clear()
        while self.flying:
            self.act(self.arrive)
        self.site.down.clear()
        self.site.boots_fail = 0.0
        for writer in FACTORIES:
            if writer not in self.nodes:
                self.start(writer)
        self.people.heal()
        quiet = 0
        for _ in range(ROUNDS_MAX):
            quiet = 0 if self._round() else quiet + 1
            if quiet >= QUIET_ROUNDS and not self._pass_time():
                break
        left = self.people.unrest()
        if left:
            raise self.wrong(f"healed, and it does not come to rest: {'; '.join(left)}")
        self.same_bytes()

    def _round(self) -> bool:
        """Everybody reads everything, everything arrives; True if anything has happened."""
        before = len(self.log)
        for writer in FACTORIES:
            if writer not in self.nodes:
                self.start(writer)
        for node in list(self.nodes.values()):
            self.act(lambda node=node: self.follow(node, len(self.log)))  # type: ignore[misc]
            self.send(node)
            while self.flying:
                self.act(self.arrive)
        called = self.hands.everything()
        spoken = self.people.everything()
        return len(self.log) > before or called or spoken

    def _pass_time(self) -> bool:
        """To the next moment at which anybody has something to do; False if there is none."""
        due = [node.core.wake_at() for node in self.nodes.values()]
        due += [self.site.next_due(), self.people.next_due()]
        later = [at for at in due if self.clock < at < START + 1e6]
        if not later and not any(at <= self.clock for at in due):
            return False
        self.clock = min(later) if later and not any(at <= self.clock for at in due) else self.clock + 0.05
        self.site.live(self.clock)
        return True


def told(seen: list[tuple[Fact, Meta]]) -> str:
    """An envelope in one line."""
    parts = []
    for fact, meta in seen:
        about = (
            getattr(fact, name)
            for name in ("host", "unit", "job", "dept", "attempt", "hosts", "exit", "disposal")
            if hasattr(fact, name)
        )
        parts.append(f"{f.kind_of(fact)}({' '.join(map(str, about))}){f' VOID {meta.void}' if meta.void else ''}")
    return ", ".join(parts)


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not argv[0].isdecimal():
        print("usage: python -m tests.simulation.chaos SEED", file=sys.stderr)
        return 2
    try:
        Chaos(int(argv[0]), print).run()
    except AssertionError as error:
        print(f"WRONG: {error}")
        return 1
    print("all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
