"""The agent beside HAProxy, whatever comes in whatever order, and whatever is lost on the way (`phoenix.haproxy`).

H1  no slot gets requests at an address at which HAProxy has not seen the instance healthy, at the health path of what it runs,
    nor at one of no instance, but for the moment until an end is heard of
H2  a slot never goes to maint before its instance is closed, unless another slot has it, and then it is drained first
H3  no two slots are made to serve one instance; if a person's hand has done so, one of them drains
H4  when nothing more comes, a few looks later every instance has its slot, or waits because there are too few; what drains has
    no new requests, everything else is free; and then nothing is said any more
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from phoenix.balance.feed import Listed
from phoenix.haproxy.reconciler import Maint, plan
from phoenix.haproxy.table import Table
from tests.support.haproxy_model import Model

SLOTS = 3
PORTS = 5
LOOKS_MAX = 12  # of the end: out, address, drain, ready for everyone, and again for those who took over an address

ops = st.one_of(
    st.tuples(st.just("begin"), st.integers(1, PORTS)),
    st.tuples(st.just("drain"), st.integers(0, 9)),
    st.tuples(st.just("close"), st.integers(0, 9)),
    st.tuples(st.just("close unheard"), st.integers(0, 9)),
    st.tuples(st.just("audit"), st.just(0)),
    *(st.tuples(st.just("look"), st.just(99)) for _ in range(4)),  # the agent looks often
    st.tuples(st.just("look, commands lost"), st.integers(0, 4)),
    st.tuples(st.just("checks"), st.just(0)),
    st.tuples(st.just("slow checks begin"), st.just(0)),
    st.tuples(st.just("slow checks end"), st.just(0)),
    st.tuples(st.just("requests"), st.integers(0, 3)),
    st.tuples(st.just("a hand"), st.integers(0, 9)),
    st.tuples(st.just("agent restarts"), st.just(0)),
    st.tuples(st.just("haproxy restarts"), st.just(0)),
    st.tuples(st.just("haproxy reloads without its map"), st.just(0)),
)

LOOKS = [("look", 99)] * 4  # as many as an instance takes to be ready
FULL = [("begin", 1), ("begin", 2), ("begin", 3), *LOOKS, ("checks", 0)]


@dataclass
class Instance:
    unit: str
    port: int
    draining: bool = False

    @property
    def health_path(self) -> str:
        return "/up" if self.port % 2 else "/healthz"

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def listed(self, starts: bool = False) -> Listed:
        state = "starting" if starts else "draining" if self.draining else "running"
        address = None if starts else f"127.0.0.1:{self.port}"
        told = {"health_path": self.health_path, "connections": self.port}
        return Listed(unit=self.unit, attempt=1, state=state, address=address, **told)  # type: ignore[arg-type]


@dataclass
class World:
    """The department's truth, what the agent has heard of it, and HAProxy."""

    model: Model = field(default_factory=lambda: Model(SLOTS))
    table: Table = field(default_factory=Table)
    alive: list[Instance] = field(default_factory=list)
    now: float = 0.0
    units: int = 0

    def step(self, op: str, number: int) -> None:
        self.now += 1
        if op == "begin" and number not in {one.port for one in self.alive}:
            self._begin(number)
        elif op in ("drain", "close", "close unheard") and self.alive:
            self._end(op, self.alive[number % len(self.alive)])
        elif op == "audit":
            self._audit()
        elif op.startswith("look"):
            self.look(number)
        elif op == "checks":
            self.model.check()
        elif op == "slow checks begin":
            self.model.begin_slow_checks()
        elif op == "slow checks end":
            self.model.end_slow_checks()
        elif op == "requests":
            for server in self.model.servers:
                server.sessions = number if server.serves else min(server.sessions, number)
        elif op == "a hand" and self.alive:
            server = self.model.servers[number % SLOTS]
            server.address, server.ordered = self.alive[number % len(self.alive)].address, "ready"
            server.is_up = server.seen = True
        elif op == "agent restarts":
            self.table = Table()
            self._audit()
        elif op == "haproxy restarts":
            self.model.restart()
        elif op == "haproxy reloads without its map":
            self.model.reload_without_map()

    def _begin(self, port: int) -> None:
        self.units += 1
        new = Instance(f"web.{self.units}", port)
        if port > PORTS // 2:  # an audit has seen it boot
            self.table.audited([*(one.listed() for one in self.alive), new.listed(starts=True)], self.now, self.now)
        self.alive.append(new)
        self.model.listening[new.address] = new.health_path
        self.table.began(new.unit, 1, [f"127.0.0.1:{port}"], self.now)

    def _end(self, op: str, one: Instance) -> None:
        if op == "drain":
            one.draining = True
            self.table.draining(one.unit, 1, None, self.now)
            return
        self.alive.remove(one)
        self.model.listening.pop(one.address, None)
        if op == "close":
            self.table.closed(one.unit, 1, self.now)

    def _audit(self) -> None:
        self.table.audited([one.listed() for one in self.alive], self.now, self.now)

    def look(self, commands: int = 99) -> bool:
        """True if there was something to tell.  H1 to H3 hold after each command."""
        if not self.table.is_known:
            return False
        orders = plan(self.table.all(), self.model.slots(), True).orders
        told = [(order.slot, command) for order in orders for command in order.commands]
        known = {one.address for one in self.table.all()}
        for slot, command in told[:commands]:
            server, doubles = self.model.named(slot), self.doubles()
            if isinstance(command, Maint) and server.address in known:
                others = {s.address for s in self.model.servers if s is not server and s.ordered != "maint"}
                assert server.address in others, f"H2: {server}"
                assert (server.ordered, server.sessions) == ("drain", 0), f"H2: {server}"
            was = server.serves
            self.model.tell(slot, command)
            assert was or not server.serves or server.seen, f"H1: {server}"
            self.check_serving()
            assert self.doubles() <= doubles, "H3"
        return bool(told)

    def check_serving(self) -> None:
        assert all(server.seen for server in self.model.servers if server.serves), "H1"

    def doubles(self) -> int:
        up = [server.address for server in self.model.servers if server.serves]
        return len(up) - len(set(up))

    def settle(self) -> None:
        """H4."""
        self.now += 1
        self._audit()
        self.model.end_slow_checks()
        for _ in range(LOOKS_MAX):
            for server in self.model.servers:
                server.sessions = 0
            self.model.check()
            if not self.look():
                break
        assert not self.look(), "H4: it goes on"
        at = {server.address: server for server in self.model.servers if server.ordered != "maint"}
        homeless = [one for one in self.alive if not one.draining and one.address not in at]
        draining = sum(one.draining and one.address in at for one in self.alive)
        free = sum(server.ordered == "maint" for server in self.model.servers)
        assert not (homeless and free), "H4: one waits beside a free slot"
        assert len(at) == SLOTS - free, "H3, H4: two slots with one address"
        for one in self.alive:
            if one.address in at:
                server = at[one.address]
                assert server.ordered == ("drain" if one.draining else "ready")
                assert one.draining or (server.path, server.limit) == (one.health_path, one.port), "H4: path or limit"
        assert len(at) == draining + sum(not one.draining and one.address in at for one in self.alive)


@settings(max_examples=400)
@given(st.lists(ops, max_size=40))
@example([*FULL, ("slow checks begin", 0), ("close", 0), ("begin", 4), *LOOKS, ("slow checks end", 0)])
@example([("begin", 1), ("a hand", 0), ("a hand", 1), ("requests", 3), ("look", 99), ("look", 99)])
def test_whatever_comes_it_converges_and_nobody_is_sent_to_the_wrong_place(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.step("audit", 0)
    for op, number in steps:
        world.step(op, number)
        world.check_serving()
    world.settle()
