"""Which release a web department's instances run, and how one takes the place of another.  Pure functions of levels.

Theory of operation
  A person deploys a release (`release.requested`); the core states how far it is (`release.changed`) and reads that back, so it
  survives restarts and replays.  Between the two stands a `Roll`: which release is wanted, how far it is, how often it failed.
  `change` returns the next such fact; `plan` what a rolling update does with the instances at hand.  Which instances drain and
  where new ones are placed is chosen elsewhere (`web.hosts`); this module only decides how many, and of which release.

  The releases that were complete are remembered, the newest last: that is the way back.  Release 0 is the configuration's; it
  is never deployed, so it is complete as soon as one instance of it is in service.

      requested ──▶ rolling ──▶ complete           what failed is replaced with growing pauses, as ever
                       │  ▲ ╲      │ (not yet stood, or by rule 10)
                       │  │  ╲     ▼
             none to   │  │   ╰──▶ rolled back: the last complete one is wanted, and rolls
             go back to▼  │ deployed, scaled by a person, configured otherwise
                      stopped

Rules
  1. New instances run the wanted release.  Instances of others leave: one that is not in service at once, one in service when
     at least `target - max_unavailable` others are *ready* then: they serve, and have for `min_ready_s`.  Those that are not
     ready leave first.  What drains counts neither as serving nor as one too many; an instance that its guest or a balancer
     reports as not ready does not serve, and its time restarts when it is ready again.
  2. As long as others stay, at most `target + max_surge` are there, those on their way included; that many are claimed.  If no
     host comes for the surge, rule 1 continues without it where `max_unavailable` is 1 or more.
  3. A release has *stood* when one instance of it has served for STABLE_S, or for `min_ready_s` if that is longer.  It is not
     given up for failures.  (Of release 0 only instances count that were placed after its configuration last changed.)
  4. An instance that ends, or does not come up, before its release has stood is a failure of it: its guest reported that its
     program ended, its VM ended before it had begun, it did not call in time, it was not ready for `unreachable_s`.  A lost
     host, a reclaim, a scale-down is none, nor what did not start while starts are paused in the whole cloud, nor a VM that
     ended after it had begun without its guest's report on the program: a guest reports before its VM ends, so the program was
     taken with the VM, by a hypervisor that started again, say, which takes all of a host at once; those of one host that had
     not begun count once (`web.failures`, rule 2).  So what serves, and fails before it is ready, has taken the places of
     `max_unavailable` others at most.
  5. After a failure no instance leaves because of rule 1 until the release has stood: those that serve are kept, as many as are
     wanted.  If the load falls meanwhile, those beyond go, and leave their places to the next try.
  6. `start_failures_max` failures of a release that has not stood: no more are started.  If none of it is in service (now or
     when the last one has failed), it is given up; if one stands meanwhile, the roll-out continues.  0: never given up.
  7. Given up, the last complete release is wanted again, under rules 1 to 6; the terms are its own.  Without one the department
     stops: what is there stays, nothing is started until a release is deployed, a person scales, or the configuration of
     release 0 changes.
  8. A roll is complete when no instance of another release is live, and `target - max_unavailable` (one at least, none if none
     is wanted) of it are ready.
  9. A newer request takes over at any moment.  What was complete stays what is rolled back to.
  10. Given up is also a release that answers its users worse than the last complete one (`web.answers`), whether it has stood
      or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import Cause
from schemas.reasons import Reason

STABLE_S: Final = 30.0  # an instance that has served this long has not failed at the start
GOOD_MAX: Final = 10  # complete releases that are remembered; half of what custody keeps (RELEASES_KEPT)
FAILURES: Final = (
    Cause.VM_ENDED,
    Cause.PROGRAM_ENDED,
    Cause.BOOT_TIMEOUT,
    Cause.START_TIMEOUT,
    Cause.NOT_READY,
)  # rule 4

_NONE: Final[dict[str, Any]] = {"failed": "", "failed_why": None}  # no failure
Stage = Literal["rolling", "complete", "stopped"]


class Roll(msgspec.Struct, frozen=True, kw_only=True):
    wanted: int = 0
    stage: Stage = "complete"
    asked: int = 0  # the newest request that was taken up
    first: int = 0  # instances up to this number that are said to run release 0 may run something else
    failures: int = 0  # of the wanted one; none count once it has stood
    failed: str = ""  # the last of them …
    failed_why: Reason | None = None  # … and why
    good: tuple[int, ...] = ()  # releases that were complete with one in service, the last one last
    stood: tuple[int, ...] = ()
    again: str = ""  # stopped, and to be tried again since: at whose request
    given_up: Reason | None = None  # the release before the wanted one was: why, until another one is asked for


class Seen(NamedTuple):
    """A live instance.  `leaves`: it drains already; `stays`: it may stay where it is (no drained host); `unready_at`: since
    when it is reported as not ready; `ready_at`: it was not, and is since then."""

    unit: str
    number: int
    release: int
    began_at: float | None
    leaves: bool = False
    stays: bool = True
    unready_at: float | None = None
    ready_at: float = 0.0

    @property
    def serves(self) -> bool:
        return self.began_at is not None and self.unready_at is None and not self.leaves

    def has_served(self, for_s: float, now: float) -> bool:
        """Compared as times, as wake-ups are computed: a difference of such floats may fall short by their rounding."""
        until = now if self.unready_at is None else self.unready_at
        return self.began_at is not None and until >= max(self.began_at, self.ready_at) + for_s


class Terms(NamedTuple):
    max_unavailable: int
    max_surge: int
    failures_max: int
    min_ready_s: float = 0.0

    @classmethod
    def of(cls, max_unavailable: int, max_surge: int, failures_max: int, min_ready_s: float = 0.0) -> Terms:
        """With both bounds 0 nothing could ever be replaced: one more is what costs no user a request."""
        return cls(max_unavailable, max_surge or int(not max_unavailable), failures_max, min_ready_s)

    @property
    def stood_s(self) -> float:
        """Rule 3."""
        return max(STABLE_S, self.min_ready_s)

    def ready(self, seen: Seen, now: float) -> bool:
        """Rule 1."""
        return seen.serves and seen.has_served(self.min_ready_s, now)


class Plan(NamedTuple):
    """`leave`: instances of other releases that go now; `most`: that may be there beside what drains; `start`: to be placed;
    `room`: instances that need a host, those to be placed included, and those on hosts that must go left out."""

    leave: tuple[str, ...]
    most: int
    start: int
    room: int


# ---------------------------------------------------------------------------------------------------------------- folding


def changed(roll: Roll, fact: f.ReleaseChanged, live: Iterable[Seen]) -> Roll:
    """After the core's own fact."""
    if fact.state == "rolling":
        return _want(roll, fact.release, max(roll.asked, fact.release))
    if fact.state == "stopped":
        return msgspec.structs.replace(roll, stage="stopped", again="")
    if fact.state == "rolled_back":
        rest = tuple(number for number in roll.good if number != fact.release)
        back = _want(msgspec.structs.replace(roll, good=rest), fact.back_to, roll.asked)
        return msgspec.structs.replace(back, given_up=fact.reason)
    complete = msgspec.structs.replace(roll, stage="complete")
    return _keep(complete) if any(one.release == fact.release and one.serves for one in live) else complete


def began(roll: Roll, seen: Seen) -> Roll:
    """An instance is in service, if it is."""
    return _keep(roll) if roll.stage == "complete" and _own(roll, seen) and seen.serves else roll


def ended(roll: Roll, seen: Seen, closed: f.AttemptClosed, others: Iterable[Seen], terms: Terms, at: float) -> Roll:
    """An instance was closed at `at`; `others` are live.  Rules 3 and 4."""
    if not _own(roll, seen) or roll.wanted in roll.stood:
        return roll
    if has_stood(roll, chain((seen,), others), terms, at):
        stood = (*roll.stood, roll.wanted)[-GOOD_MAX:]
        return msgspec.structs.replace(roll, stood=stood, failures=0, **_NONE)
    if closed.cause not in FAILURES or (closed.cause is Cause.VM_ENDED and seen.began_at is not None):
        return roll
    return msgspec.structs.replace(roll, failures=roll.failures + 1, failed=seen.unit, failed_why=closed.why)


def before(roll: Roll) -> int | None:
    """The release that is rolled back to, should the wanted one be given up; None if there is none."""
    return next((number for number in reversed(roll.good) if number != roll.wanted), None)


def configured(roll: Roll, last: int) -> Roll:
    """The configuration of release 0 has changed.  `last`: the highest number of an instance."""
    good, stood = (tuple(number for number in some if number) for some in (roll.good, roll.stood))
    roll = msgspec.structs.replace(roll, good=good, stood=stood)
    if roll.wanted:
        return roll
    roll = msgspec.structs.replace(roll, first=last, failures=0, **_NONE)
    return spoken(roll, "configuration")


def spoken(roll: Roll, who: str) -> Roll:
    """Rule 7: a reason to try again."""
    return msgspec.structs.replace(roll, again=who) if roll.stage == "stopped" else roll


def known(roll: Roll, releases: Iterable[int]) -> Roll:
    """Without those whose content is not remembered any more."""
    kept = {0, *releases}
    if all(number in kept for number in roll.good):
        return roll
    return msgspec.structs.replace(roll, good=tuple(number for number in roll.good if number in kept))


def _want(roll: Roll, release: int, asked: int) -> Roll:
    fresh = {"failures": 0, "again": "", **_NONE}
    return msgspec.structs.replace(roll, wanted=release, stage="rolling", asked=asked, given_up=None, **fresh)


def _keep(roll: Roll) -> Roll:
    if roll.good[-1:] == (roll.wanted,):
        return roll
    good = (*(number for number in roll.good if number != roll.wanted), roll.wanted)
    return msgspec.structs.replace(roll, good=good[-GOOD_MAX:])


# ---------------------------------------------------------------------------------------------------------------- looking


def has_stood(roll: Roll, seen: Iterable[Seen], terms: Terms, now: float) -> bool:
    """Rule 3."""
    return roll.wanted in roll.stood or any(_own(roll, one) and one.has_served(terms.stood_s, now) for one in seen)


def next_at(roll: Roll, seen: Iterable[Seen], terms: Terms, now: float) -> float | None:
    """When next an instance will be ready, or the release will have stood, if nothing happens; None if nothing depends on
    it."""
    stands = roll.failures > 0 and roll.wanted not in roll.stood
    times = []
    for one in seen:
        if one.began_at is None or one.unready_at is not None:
            continue
        since = max(one.began_at, one.ready_at)
        if roll.stage == "rolling" and not one.leaves:
            times.append(since + terms.min_ready_s)
        if stands and _own(roll, one):
            times.append(since + terms.stood_s)
    return min((at for at in times if at > now), default=None)


def held_back(roll: Roll, seen: Iterable[Seen], terms: Terms, now: float) -> bool:
    """Nothing is started (rules 6 and 7)."""
    return roll.stage == "stopped" or (_spent(roll, terms) and not has_stood(roll, seen, terms, now))


def _spent(roll: Roll, terms: Terms) -> bool:
    return 0 < terms.failures_max <= roll.failures


def _own(roll: Roll, seen: Seen) -> bool:
    """Its fate counts for the wanted release."""
    return seen.release == roll.wanted and seen.number > roll.first


# ---------------------------------------------------------------------------------------------------------------- deciding


def change(
    roll: Roll,
    asked: f.ReleaseRequested | None,
    seen: Sequence[Seen],
    terms: Terms,
    target: int,
    now: float,
    dept: str,
    worse: Reason | None = None,
) -> f.ReleaseChanged | None:
    """The core's next fact, if there is one.  `asked`: the department's newest request; `worse`: rule 10."""
    if asked is not None and asked.release > roll.asked:
        told = because.ReleaseDeployed(release=asked.release, user=asked.user)
        return f.ReleaseChanged(dept=dept, release=asked.release, state="rolling", reason=told)
    if roll.stage == "stopped":
        if not roll.again:
            return None
        told = because.ReleaseDeployed(release=roll.wanted, user=roll.again)
        return f.ReleaseChanged(dept=dept, release=roll.wanted, state="rolling", reason=told)
    if worse is not None and (back := before(roll)) is not None:
        return f.ReleaseChanged(dept=dept, release=roll.wanted, state="rolled_back", back_to=back, reason=worse)
    if _spent(roll, terms) and not has_stood(roll, seen, terms, now):
        return None if any(_own(roll, one) and one.serves for one in seen) else _given_up(roll, dept)
    if roll.stage == "rolling" and _is_complete(roll, seen, terms, target, now):
        all_run = because.ReleaseComplete(release=roll.wanted, instances=len(seen))
        return f.ReleaseChanged(dept=dept, release=roll.wanted, state="complete", reason=all_run)
    return None


def _given_up(roll: Roll, dept: str) -> f.ReleaseChanged:
    """Rule 7."""
    back = before(roll)
    reason = because.ReleaseFailed(**_failures(roll), back_to=back)
    if back is None:
        return f.ReleaseChanged(dept=dept, release=roll.wanted, state="stopped", reason=reason)
    return f.ReleaseChanged(dept=dept, release=roll.wanted, state="rolled_back", back_to=back, reason=reason)


def _failures(roll: Roll) -> dict[str, Any]:
    return {**because.failure(roll.failed, roll.failed_why), "release": roll.wanted, "failures": roll.failures}


def _is_complete(roll: Roll, seen: Sequence[Seen], terms: Terms, target: int, now: float) -> bool:
    """Rule 8."""
    if any(one.release != roll.wanted for one in seen):
        return False
    ready = sum(1 for one in seen if terms.ready(one, now))
    return not target or ready >= max(1, target - terms.max_unavailable)


def plan(roll: Roll, seen: Sequence[Seen], terms: Terms, target: int, now: float) -> Plan:
    """What a roll does now with `seen`, live instances in the order in which they should go."""
    here = [one for one in seen if not one.leaves]
    others = [one for one in here if one.release != roll.wanted or not one.stays]
    own = len(here) - len(others)
    fixed = sum(1 for one in here if one.stays)
    if held_back(roll, seen, terms, now):
        most = target + terms.max_surge if others else target
        return Plan((), most, 0, min(most, fixed))
    leave = [one for one in others if one.began_at is None]
    if not roll.failures or has_stood(roll, seen, terms, now):  # rule 5
        leave += _leaving(others, here, terms, target, now)
    else:
        serving = [one for one in others if one.began_at is not None]
        leave += serving[: max(0, len(serving) - target)]
    left = len(others) - len(leave)
    most = target + terms.max_surge if left else target
    start = max(0, min(target - own, most - own - left))
    fixed -= sum(1 for one in leave if one.stays)
    return Plan(tuple(one.unit for one in leave), most, start, min(most, fixed) + start)


def _leaving(others: list[Seen], here: list[Seen], terms: Terms, target: int, now: float) -> list[Seen]:
    """Rule 1, of those in service."""
    spare = sum(1 for one in here if terms.ready(one, now)) - (target - terms.max_unavailable)
    if spare < 0:
        return []
    serving = [one for one in others if one.began_at is not None]
    ready = {one.unit: one for one in serving if terms.ready(one, now)}
    return [*(one for one in serving if one.unit not in ready), *list(ready.values())[:spare]]


def why(roll: Roll, seen: Sequence[Seen], terms: Terms, now: float) -> Reason | None:
    """The reason to show while it is not simply complete."""
    if roll.stage == "complete" and not roll.failures:
        return None
    here = sum(1 for one in seen if one.release == roll.wanted and not one.leaves)
    if roll.stage == "stopped":
        return because.ReleaseFailed(**_failures(roll))
    others = sum(1 for one in seen if one.release != roll.wanted)
    fresh = sum(1 for one in seen if one.serves and not terms.ready(one, now)) if roll.stage == "rolling" else 0
    waits = {"fresh": fresh, "min_ready_s": terms.min_ready_s} if fresh else {}
    last = because.failure(roll.failed, roll.failed_why) if roll.failures else {}
    told = {**last, "release": roll.wanted, "instances": here, "others": others, "failures": roll.failures, **waits}
    return because.Rolling(**told)


def helps(roll: Roll, seen: Sequence[Seen], terms: Terms, target: int, now: float) -> int | None:
    """Of a roll that only a host helps on, as no instance may leave or drains, and none is on its way or will be ready: the
    `max_unavailable` with which it would continue without; 0 if no instance is left to make room.  None of one that
    continues."""
    found = plan(roll, seen, terms, target, now)
    if roll.stage != "rolling" or found.leave or not found.start:
        return None
    if any(one.leaves or (one.unready_at is None and not terms.ready(one, now)) for one in seen):
        return None
    if all(one.release == roll.wanted for one in seen):
        return 0
    return max(1, target - sum(1 for one in seen if terms.ready(one, now)) + 1)
