"""The executor's hands in a simulated cloud: polls that show a past, calls that arrive late, answers that are lost.

The core is real; this is the edge and the network.  A call that was made arrives whatever becomes of its caller; but those that
X1 does not fence (X7: what makes a known VM run, or run elsewhere) arrive before the next executor takes over, or never: that
is what X8 is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from services.executor.core.calls import (
    Call,
    Deploy,
    HostsSeen,
    Migrate,
    Outcome,
    PoolSeen,
    Result,
    Save,
    Sight,
    Terminate,
    VmsSeen,
)
from tests.simulation.chaos_node import Node

if TYPE_CHECKING:
    from tests.simulation.chaos import Chaos

CALLS_MAX: Final = 4
LOST: Final = 0.1  # of all answers
TWICE: Final = 0.1  # of all polls are heard a second time, later
Poll = Callable[[], None]


def is_unfenced(call: Call) -> bool:
    return isinstance(call, Save | Migrate) or (isinstance(call, Deploy) and call.resumes)


class Hands:
    waits = True  # X8; False: nobody waits for the calls of the executor before

    def __init__(self, world: Chaos) -> None:
        self.world = world
        self.calls: list[tuple[Node | None, Call]] = []  # None: the caller has got its answer ("unsure") already
        self.leader: Node | None = None  # who took over last
        self.answers: list[tuple[Node, Result]] = []
        self.polls: list[Poll] = []

    def actions(self) -> list[tuple[Callable[[], None], int]]:
        return [(self.call, 25), (self.arrive, 25), (self.answer, 25), (self.look, 12), (self.seen, 14)]

    def _executor(self) -> Node | None:
        """An executor that leads, as far as it knows."""
        node = self.world.anybody("executor")
        if node is None or not node.leads:
            return None
        if not node.took_over:
            node.took_over = True
            self._wait_out(node)
            node.executor.take_over(node.now(self.world.clock))
        return node

    def _wait_out(self, node: Node) -> None:
        """X8."""
        if self.waits:
            unfenced = [call for _, call in self.calls if is_unfenced(call)]
            self.calls = [(caller, call) for caller, call in self.calls if not is_unfenced(call)]
            for call in unfenced:
                if self.world.chance.random() < 0.5:
                    self.world.site.perform(call, self.world.clock)
        self.leader = node

    def _now(self, node: Node) -> float:
        return node.now(self.world.clock)

    # ---------------------------------------------------------------------------------------------------------- calls

    def call(self) -> None:
        node = self._executor()
        if node is not None:
            self._take_calls(node)

    def _take_calls(self, node: Node) -> bool:
        made = node.executor.calls(self._now(node), CALLS_MAX)
        self._refuse_wrong_sweeps(made)
        for call in made:
            if is_unfenced(call) and self.waits and node is not self.leader:  # its lease is over, and it knows
                self.answers.append((node, Result(call, Outcome.UNSURE, why="no leader any more")))
            else:
                self.calls.append((node, call))
        return bool(made)

    def _refuse_wrong_sweeps(self, made: list[Call]) -> None:
        """X6: what is ended as unknown is not in the journal, though a stale leader may do it."""
        known = self.world.truth.custody.index.vm_ids
        for call in made:
            if isinstance(call, Terminate) and call.key.startswith("#") and call.vm in known:
                raise self.world.wrong(f"VM {call.vm} is swept as unknown and is {known[call.vm]}")

    def arrive(self) -> None:
        """A call reaches OpenNebula, or its answer is given up before."""
        if not self.calls:
            return
        chance = self.world.chance
        index = chance.randrange(len(self.calls))
        node, call = self.calls[index]
        if node is not None and chance.random() < LOST:
            self.world.faults["call unanswered"] += 1
            self.answers.append((node, Result(call, Outcome.UNSURE, why="no answer in time")))
            if chance.random() < 0.5:
                self.calls[index] = (None, call)  # and it may still arrive
            else:
                del self.calls[index]
            return
        del self.calls[index]
        result = self.world.site.perform(call, self.world.clock)
        if node is not None:
            lost = chance.random() < LOST
            self.world.faults[f"answer lost: {type(call).__name__.lower()}"] += lost
            self.answers.append((node, Result(call, Outcome.UNSURE, why="the answer was lost") if lost else result))

    def answer(self) -> None:
        if self.answers:
            node, result = self.answers.pop(self.world.chance.randrange(len(self.answers)))
            self._observe(node, result)

    def _observe(self, node: Node, seen: Result | HostsSeen | VmsSeen | PoolSeen) -> None:
        if any(node is alive for alive in self.world.everybody()):
            self.world.moved[id(node)] = node
            node.executor.observe(seen, self._now(node))

    # ----------------------------------------------------------------------------------------------------------- polls

    def look(self) -> None:
        """A poll is begun: its answer is what is true now, and will be heard later."""
        node = self._executor()
        if node is not None:
            self.polls.append(self.world.chance.choice((self._hosts, self._targeted, self._audit))(node))

    def seen(self) -> None:
        if self.polls:
            poll = self.polls.pop(self.world.chance.randrange(len(self.polls)))
            poll()
            if self.world.chance.random() < TWICE:
                self.world.faults["poll heard twice"] += 1
                self.polls.append(poll)

    def _hosts(self, node: Node) -> Poll:
        poll = HostsSeen(node.executor.ticket(), self.world.site.host_pool())
        return lambda: self._observe(node, poll)

    def _targeted(self, node: Node) -> Poll:
        node.executor.calls(self._now(node), 0)  # brings the list up to date
        asked = node.executor.watch_list()
        ticket = node.executor.ticket()
        there = [sight for sight in self.world.site.vm_pool() if sight.vm in asked]
        return lambda: self._observe(node, VmsSeen(ticket, asked, there))

    def _audit(self, node: Node) -> Poll:
        ticket, pool = node.executor.ticket(), self.world.site.vm_pool()

        def heard() -> None:
            if not any(node is alive for alive in self.world.everybody()):
                return
            unknown = node.executor.strangers(pool)
            strange: list[Sight] = [s for s in self.world.site.vm_pool(tags=True) if s.vm in unknown]
            if unknown:
                self.world.follow(node, len(self.world.log))  # X6: to the end as read after the poll
            self._observe(node, PoolSeen(ticket, pool, strange))

        return heard

    # ---------------------------------------------------------------------------------------------------------- healed

    def everything(self) -> bool:
        """All that is on its way arrives, all polls are made, all calls answered; True if a call was made."""
        while self.calls or self.answers:
            while self.calls:
                node, call = self.calls.pop(0)
                result = self.world.site.perform(call, self.world.clock)
                if node is not None:
                    self.answers.append((node, result))
            while self.answers:
                self.world.act(lambda: self._observe(*self.answers.pop(0)))
        self.polls.clear()
        node = self._executor()
        if node is None:
            return False
        for poll in (self._hosts, self._audit, self._targeted):
            self.world.act(poll(node))
        return self._take_calls(node)
