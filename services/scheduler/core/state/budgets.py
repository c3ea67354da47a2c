"""What users, qualities of service and the department have now, and how much more they may start.  A view derived from the open
attempts and the configuration; it exists only while there is a limit.

Theory of operation
  `usage_limits` says which accounts a job is counted in.  Jobs that are counted alike and have the same shape are one lane of
  the queue (`Owner`), so each order asks for a lane's allowance and passes a lane that has none, as it passes an array over its
  throttle.  Lanes may share an account: several starts of one pass can together be over a limit that each alone keeps.  So the
  starts of a pass are cut at the first one that would be (`cut`); the next decision, a millisecond later, continues from there.

Rules
  1. An open attempt counts from its placement until it is closed, broken or not: its machines may still be there.
  2. A unit that waits for a limit is passed by every order, also by one in which no unit overtakes, and no room is kept for it:
     it waits for its own, not for hosts.  At one limit a wide job may wait as long as narrow ones of the same account keep
     coming.
  3. What is cut off is never the first start of a pass (its lane had an allowance), so each pass makes progress.
  4. Best-effort counts as all jobs do, and is preempted for production that waits for a limit as for hosts (`best_effort`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from schemas import reasons as because
from schemas.config import Department
from schemas.reasons import Reason
from services.domain.usage_limits import COUNTED, WHOLE, Account, Bound, Much, any_limit, bounds_on
from services.scheduler.core.state.shape import Shape, Start

NONE: Final = Much()


class Owner(NamedTuple):
    """The owner of jobs that are counted alike; empty where no limit distinguishes them."""

    user: str = ""
    quality: str = ""


NOBODY: Final = Owner()


class Budgets:
    def __init__(self, department: Department) -> None:
        self.department = department
        self.used: dict[Account, Much] = {}
        self._bounds: dict[Owner, tuple[Bound, ...]] = {}
        self._owners: dict[Owner, Owner] = {}

    @classmethod
    def of(cls, department: Department | None) -> Budgets | None:
        """None if nothing is limited."""
        return cls(department) if department is not None and any_limit(department) else None

    def owner(self, user: str, quality: str) -> Owner:
        """The owner of a job of this user and quality."""
        asked = Owner(user, quality)
        found = self._owners.get(asked)
        if found is None:
            bounds = tuple(bounds_on(self.department, user, quality))
            accounts = [bound.account for bound in bounds]
            found = self._owners[asked] = Owner(
                user if any(account.user for account in accounts) else "",
                quality if any(account.quality for account in accounts) else "",
            )
            self._bounds[found] = bounds
        return found

    def opened(self, owner: Owner, shape: Shape, by: int) -> None:
        """`by` (1 or -1) more open attempts."""
        more = needs(shape)
        for bound in self._bounds[owner]:
            new = self.used.get(bound.account, NONE).plus(more, by)
            self.used[bound.account] = new
            if new == NONE:
                del self.used[bound.account]

    def allowance(self, owner: Owner, shape: Shape, most: int) -> int:
        """Units of this shape that the owner may start now, at most `most`."""
        more = needs(shape)
        for bound in self._bounds[owner]:
            times = bound.allows(self.used.get(bound.account, NONE), more)
            if times is not None:
                most = min(most, times)
        return most

    def full(self, owner: Owner, shape: Shape) -> Reason | None:
        """Why the owner may not start one more of this shape; None if it may."""
        more = needs(shape)
        for bound in self._bounds[owner]:
            used = self.used.get(bound.account, NONE)
            exceeded = bound.exceeded(used.plus(more))
            if exceeded is not None:
                name, most, would = exceeded
                had = used.counted[COUNTED.index(name)]
                return _reason(bound.account, name, most, had, would - had)
        return None

    def without(self, gone: Iterable[tuple[Owner, Shape]]) -> Budgets:
        """As it would be if these attempts were closed."""
        twin = copy.copy(self)
        twin.used = dict(self.used)
        for owner, shape in gone:
            twin.opened(owner, shape, -1)
        return twin

    def cut(self, starts: list[Start], owner: Callable[[str], Owner], shape: Callable[[str], Shape]) -> list[Start]:
        """The first of a pass's starts that keep all limits together, their victims gone.  `owner`, `shape`: of a unit."""
        then = self.without(())
        for number, start in enumerate(starts):
            for unit in start.victims:
                then.opened(owner(unit), shape(unit), -1)
            its = owner(start.unit)
            then.opened(its, start.shape, 1)
            if any(bound.exceeded(then.used.get(bound.account, NONE)) is not None for bound in self._bounds[its]):
                return starts[:number]
        return starts

    def over(self) -> list[str]:
        """Accounts that have more than they may, for checks.  A limit that was lowered is no fault."""
        found = {bound.account: bound for bounds in self._bounds.values() for bound in bounds}
        return [
            f"{account} has {self.used[account]}, and may have {found[account].limits}"
            for account in sorted(self.used)
            if found[account].exceeded(self.used[account]) is not None
        ]


def needs(shape: Shape) -> Much:
    """What one unit counts for (`domain.usage_limits`, rule 3)."""
    return Much(1, shape.all, shape.nodes)


def _reason(account: Account, name: str, most: int, used: int, needed: int) -> Reason:
    if account == WHOLE:
        return because.DepartmentLimit(limit=name, most=most, used=used, needs=needed)
    quality = account.quality
    if account.user:
        return because.UserLimit(limit=name, most=most, used=used, needs=needed, user=account.user, quality=quality)
    return because.QualityLimit(limit=name, most=most, used=used, needs=needed, quality=quality)
