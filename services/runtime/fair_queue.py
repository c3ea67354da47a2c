"""Whose request is served next: turns between departments, and within each between its callers.  Pure: times come in.

Theory of operation
  Deficit round robin (M. Shreedhar, G. Varghese, "Efficient Fair Queuing using Deficit Round Robin", SIGCOMM 1995, section 3)
  on two levels: departments take turns, and within a department its callers do.  What a turn is
  worth is counted in cost, about a millisecond of the server's time, and not in requests.  A server serves several at once, so
  fairness of order alone is not enough: a caller that has filled it makes others wait (W. Jin, J. Chase, J. Kaur, "Interposed
  Proportional Sharing for a Storage Service Utility", SIGMETRICS 2004, on depth).  So a caller has a depth and a pace too, but
  for as long as others ask as well: alone it may have all.

Rules
  1. What waits is bounded, for each caller and for each department, in requests and in bytes: a caller that exceeds it is
     refused, and no other caller is.
  2. A caller has at most `depth_alone` cost under way, or `depth_beside` while another department asks or has asked `QUIET_S`
     ago, and all callers of a department have `department_depth`; but a caller, and a department, always one request.
  3. Beside others a caller's cost is paced: `rate_beside` a second, after `burst` at once.  What it has had alone uses up its
     burst, and no more: a caller that arrives beside a flood finds it at its pace.  What turns out dearer than its cost said is
     charged afterwards, and delays what that caller asks next.
  4. No caller starves: one that waits within depth and pace has a turn after one of each other at most, as large as a quantum
     and the largest cost together.
  5. What has waited for `wait_max_s` is not served any longer (`late`): its caller has stopped waiting.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

Item = TypeVar("Item")
Bound = Literal["", "caller", "department"]  # which bound a request is over; empty: none

QUIET_S: Final = 5.0  # a department that asked so long ago counts as one that asks: programs poll every few seconds
# of a department's or caller's turn: a few usual requests, so that the rings turn without looking twice
QUANTUM: Final = 4.0
SERVED_PER_S: Final = 1_000.0  # cost that a server serves, which is what a cost means
ROUNDING: Final = 1e-6  # of sums of costs
CALLERS_MAX: Final = 10_000  # callers known at once; those that nothing is known of but their pace are forgotten first


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a server.  Bytes are those of requests as they came."""

    waiting_max: int = 2_000  # a thousand submissions at once, twice
    waiting_bytes_max: int = 8 << 20
    department_waiting_max: int = 8_000
    department_bytes_max: int = 32 << 20  # so with eight departments 256 MiB, if all of them flood
    depth_alone: float = 512.0  # the next caller waits for no more than these
    depth_beside: float = 64.0
    department_depth: float = 512.0  # with many callers too, no caller waits for more
    rate_beside: float = 250.0  # of the thousand that a process has
    burst: float = 2_000.0  # an experiment's submissions pass at once, regardless of other callers
    wait_max_s: float = 20.0  # longer than any client of ours waits
    is_beside: bool = False  # always as beside others: they ask elsewhere


class Taken(NamedTuple, Generic[Item]):
    """`is_late`: rule 5."""

    caller: Caller[Item]
    item: Item
    cost: float
    is_late: bool


class _Waiting(NamedTuple, Generic[Item]):
    item: Item
    cost: float
    size: int
    since: float


class Caller(Generic[Item]):
    """One flow.  `paid_until`: by then its pace has paid for what it had (rule 3)."""

    __slots__ = ("bytes", "cost", "deficit", "department", "name", "paid_until", "under_way", "waiting")

    def __init__(self, name: str, department: Department[Item]) -> None:
        self.name, self.department = name, department
        self.waiting: deque[_Waiting[Item]] = deque()
        self.bytes = 0
        self.cost = self.deficit = self.under_way = 0.0  # `cost`: of what waits
        self.paid_until = float("-inf")


class Department(Generic[Item]):
    """`ring`: its callers for whom something waits, the next one first."""

    __slots__ = ("asked_at", "bytes", "cost", "deficit", "name", "ring", "under_way", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ring: OrderedDict[str, Caller[Item]] = OrderedDict()
        self.bytes = self.waiting = 0
        self.cost = self.deficit = self.under_way = 0.0
        self.asked_at = float("-inf")


class FairQueue(Generic[Item]):
    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._departments: dict[str, Department[Item]] = {}
        self._callers: OrderedDict[tuple[str, str], Caller[Item]] = OrderedDict()
        self._ring: OrderedDict[str, Department[Item]] = OrderedDict()  # for which something waits, the next one first
        self.waiting = 0
        self.wake_at = float("inf")  # of `take`: when a pace allows a waiting caller again

    # ------------------------------------------------------------------------------------------------------------ putting

    def put(self, department: str, caller: str, item: Item, cost: float, size: int, now: float) -> Bound:
        """Let it wait for its turn; or the bound that it is over (rule 1)."""
        flow = self._caller(department, caller)
        of = flow.department
        of.asked_at, bounds = now, self.bounds
        if flow.waiting and (len(flow.waiting) >= bounds.waiting_max or flow.bytes + size > bounds.waiting_bytes_max):
            return "caller"
        if of.waiting and (
            of.waiting >= bounds.department_waiting_max or of.bytes + size > bounds.department_bytes_max
        ):
            return "department"
        flow.waiting.append(_Waiting(item, cost, size, now))
        flow.bytes += size
        flow.cost += cost
        of.bytes += size
        of.cost += cost
        of.waiting += 1
        self.waiting += 1
        of.ring.setdefault(caller, flow)
        self._ring.setdefault(department, of)
        return ""

    def drains_in_s(self, department: str, caller: str, bound: Bound, now: float) -> float:
        """Seconds until half of what waits of the caller, or of its department, is served at its pace: then there is room for
        more, and there is still something to serve until it comes."""
        flow, beside = self._caller(department, caller), self.is_beside(now)
        pace = self.bounds.rate_beside if beside else SERVED_PER_S
        if bound == "department":
            of = flow.department
            return of.cost / 2 / min(SERVED_PER_S, pace * max(1, len(of.ring)))
        late_s = flow.paid_until - self.bounds.burst / self.bounds.rate_beside - now if beside else 0.0
        return max(0.0, late_s) + flow.cost / 2 / pace

    def _caller(self, department: str, name: str) -> Caller[Item]:
        key = (department, name)
        found = self._callers.get(key)
        if found is None:
            of = self._departments.get(department)
            if of is None:
                of = self._departments[department] = Department(department)
            found = self._callers[key] = Caller(name, of)
            self._forget()
        else:
            self._callers.move_to_end(key)
        return found

    def _forget(self) -> None:
        """Who has nothing here, the one that asked longest ago first."""
        over = len(self._callers) - CALLERS_MAX
        if over > 0:
            idle = [key for key, flow in self._callers.items() if not flow.waiting and flow.under_way <= 0]
            for key in idle[: over + CALLERS_MAX // 10]:
                del self._callers[key]

    # ------------------------------------------------------------------------------------------------------------- taking

    def is_beside(self, now: float) -> bool:
        """Whether more than one department asks (rule 2)."""
        return (
            self.bounds.is_beside
            or sum(1 for one in self._departments.values() if one.waiting or now - one.asked_at < QUIET_S) > 1
        )

    def take(self, now: float) -> Taken[Item] | None:
        """The next turn; None if no caller may be served now: then `wake_at` is when one may, but for `done`."""
        self.wake_at = float("inf")
        if not self.waiting:
            return None
        beside = self.is_beside(now)
        unable = 0  # departments in a row none of whose callers may be served
        while unable < len(self._ring):
            department = next(iter(self._ring.values()))
            flow = self._next_of(department, now, beside)
            if flow is None:
                unable += 1
                self._ring.move_to_end(department.name)
                continue
            unable = 0
            cost = flow.waiting[0].cost
            if department.deficit < cost:
                department.deficit += QUANTUM
                self._ring.move_to_end(department.name)
                continue
            department.deficit -= cost
            return self._taken(flow, now, beside)
        return None

    def _next_of(self, department: Department[Item], now: float, beside: bool) -> Caller[Item] | None:
        """The caller whose turn it is among the department's, by the same algorithm; None if none may be served now."""
        unable = 0
        while unable < len(department.ring):
            flow = next(iter(department.ring.values()))
            if not self._may(flow, now, beside):
                unable += 1
                department.ring.move_to_end(flow.name)
                continue
            if flow.deficit >= flow.waiting[0].cost:
                return flow
            unable = 0
            flow.deficit += QUANTUM
            department.ring.move_to_end(flow.name)
        return None

    def _may(self, flow: Caller[Item], now: float, beside: bool) -> bool:
        """Rules 2, 3 and 5."""
        first = flow.waiting[0]
        if now - first.since > self.bounds.wait_max_s:
            return True
        depth = self.bounds.depth_beside if beside else self.bounds.depth_alone
        if flow.under_way > 0 and flow.under_way + first.cost > depth:
            return False
        of = flow.department
        if of.under_way > 0 and of.under_way + first.cost > self.bounds.department_depth:
            return False
        ready_at = flow.paid_until - self.bounds.burst / self.bounds.rate_beside
        if beside and ready_at > now:
            self.wake_at = min(self.wake_at, ready_at)
            return False
        return True

    def _taken(self, flow: Caller[Item], now: float, beside: bool) -> Taken[Item]:
        first, department = flow.waiting.popleft(), flow.department
        is_late = now - first.since > self.bounds.wait_max_s
        flow.bytes -= first.size
        flow.cost -= first.cost
        flow.deficit -= first.cost
        department.bytes -= first.size
        department.cost -= first.cost
        department.waiting -= 1
        self.waiting -= 1
        if not flow.waiting:
            flow.cost = 0.0
            flow.deficit = 0.0  # who has nothing to ask saves no turns
            del department.ring[flow.name]
        if not department.ring:
            department.cost = department.deficit = 0.0
            del self._ring[department.name]
        if not is_late:
            flow.under_way += first.cost
            department.under_way += first.cost
            self.charge(flow, first.cost, now, beside)
        return Taken(flow, first.item, first.cost, is_late)

    def charge(self, flow: Caller[Item], cost: float, now: float, beside: bool = True) -> None:
        """Rule 3."""
        paid_until = max(flow.paid_until, now) + cost / self.bounds.rate_beside
        whole = now + self.bounds.burst / self.bounds.rate_beside
        flow.paid_until = paid_until if beside else min(paid_until, max(flow.paid_until, whole))

    def done(self, flow: Caller[Item], cost: float) -> None:
        """What was taken at `cost` has been served."""
        for one in (flow, flow.department):
            left = one.under_way - cost
            one.under_way = left if left > ROUNDING else 0.0

    # ------------------------------------------------------------------------------------------------------------- checks

    def check(self) -> list[str]:
        """What is wrong with it: nothing."""
        wrong = []
        for key, flow in self._callers.items():
            if flow.bytes != sum(one.size for one in flow.waiting):
                wrong.append(f"{key}: bytes")
            if abs(flow.cost - sum(one.cost for one in flow.waiting)) > ROUNDING:
                wrong.append(f"{key}: cost")
            if bool(flow.waiting) != (flow.name in flow.department.ring):
                wrong.append(f"{key}: waits, and is in no ring, or the other way round")
        for name, of in self._departments.items():
            if of.waiting != sum(len(flow.waiting) for flow in of.ring.values()):
                wrong.append(f"{name}: waiting")
            if bool(of.ring) != (name in self._ring):
                wrong.append(f"{name}: ring")
            under_way = sum(flow.under_way for flow in self._callers.values() if flow.department is of)
            if abs(of.under_way - under_way) > ROUNDING:
                wrong.append(f"{name}: under way")
        if self.waiting != sum(of.waiting for of in self._departments.values()):
            wrong.append("waiting")
        return wrong
