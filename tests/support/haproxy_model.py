"""HAProxy's slots as a model: what each command does to a server, as HAProxy 2.6 was seen to do it (docs/howto/haproxy.md).

tests/integration/test_haproxy.py sends the same commands to the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from phoenix.haproxy.reconciler import (
    Command,
    DeclareDown,
    Drain,
    Maint,
    Order,
    Ready,
    SetAddress,
    SetLimit,
    SetPath,
    SetWeight,
)
from phoenix.haproxy.slots import Address, Ordered, Slot

DEFAULT_PATH = "/healthz"  # of a server without an entry in the map
NOWHERE: Address = ("127.0.0.1", 1)


@dataclass
class Server:
    """`seen`: a health check has passed at this address and its path since it left maint.  `checking`: where one is under way
    that will pass, and count whatever the server's address is by then."""

    name: str
    address: Address = NOWHERE
    ordered: Ordered = "maint"
    is_up: bool = False
    weight: int = 1
    path: str = ""
    limit: int = 64
    sessions: int = 0
    seen: bool = False
    checking: Address | None = None

    @property
    def serves(self) -> bool:
        return self.ordered == "ready" and self.is_up

    def slot(self) -> Slot:
        return Slot(
            *(self.name, self.address, self.ordered, self.is_up, True, self.weight, self.sessions),
            is_checking=self.checking is not None,
            path=self.path,
            limit=self.limit,
        )


@dataclass
class Model:
    """`listening`: addresses where health checks pass, at any path, and the path at which that says something."""

    count: int
    listening: dict[Address, str] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.servers = [Server(f"phoenix{number}") for number in range(1, self.count + 1)]

    def reload_without_map(self) -> None:
        for server in self.servers:
            server.path, server.limit = "", 64

    def slots(self) -> list[Slot]:
        return [server.slot() for server in self.servers]

    def named(self, name: str) -> Server:
        return next(server for server in self.servers if server.name == name)

    def tell(self, slot: str, command: Command) -> None:
        server = self.named(slot)
        if isinstance(command, SetAddress):
            server.address, server.seen = command.address, False
        elif isinstance(command, SetWeight):
            server.weight = command.weight
        elif isinstance(command, SetLimit):
            server.limit = command.limit
        elif isinstance(command, SetPath):
            assert command.is_new == (not server.path)  # else it is refused, or there are two entries
            server.path = command.path
        elif isinstance(command, DeclareDown):
            if server.ordered != "maint":  # in maint it is forgotten as soon as the server leaves it
                server.is_up = False
        elif isinstance(command, Maint):
            server.ordered, server.is_up, server.seen = "maint", False, False
        elif isinstance(command, Drain | Ready):
            if server.ordered == "maint":
                server.is_up = True  # until its first check
            server.ordered = "drain" if isinstance(command, Drain) else "ready"

    def says_something(self, server: Server) -> bool:
        return self.listening.get(server.address) == (server.path or DEFAULT_PATH)

    def check(self) -> None:
        """A round of health checks."""
        for server in self.servers:
            if server.ordered != "maint":
                server.is_up = server.address in self.listening
                server.seen = server.seen or self.says_something(server)

    def begin_slow_checks(self) -> None:
        for server in self.servers:
            listens = server.ordered != "maint" and server.address in self.listening
            server.checking = server.address if listens else server.checking

    def end_slow_checks(self) -> None:
        for server in self.servers:
            if server.checking is not None and server.ordered != "maint":
                server.is_up = True
                server.seen = server.seen or (server.checking == server.address and self.says_something(server))
            server.checking = None

    def obey(self, orders: tuple[Order, ...], upto: int | None = None) -> None:
        """All commands, or the first `upto` of them."""
        told = [(order.slot, command) for order in orders for command in order.commands]
        for slot, command in told[:upto]:
            self.tell(slot, command)
