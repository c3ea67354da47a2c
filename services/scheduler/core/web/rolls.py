"""Releases in one decision of the web core: the levels that `web.release` speaks of, gathered from what is folded and held.

Rules
  1. The core's word on a release takes effect in the decision that writes it: the facts behind it in its envelope are those of
     the state after it.
  2. Of those that leave, what stands on cordoned hosts goes first, then who is not ready, then the fewest sessions, then
     the newest (`web_hosts.Picture.order`).
  3. While releases have no say, the answers of the wanted one may still have one (`web.answers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from schemas import facts as f
from schemas import reasons as because
from schemas.config import WebPolicy
from schemas.reasons import Reason
from services.domain.core import NEVER
from services.scheduler.core.web import answers as web_answers
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web import release as web_release
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.release import Plan, Seen
from services.scheduler.core.web.scene import Scene

_CONTENT: Final = ("image", "command", "environment", "secrets", "health_path", "port", "template")


class Step(NamedTuple):
    """What releases have to say to one decision.  `word`: the core's; `at`: after it; `plan`: None while they have no say."""

    word: f.ReleaseChanged | None
    at: Scene
    plan: Plan | None

    @property
    def words(self) -> list[f.ReleaseChanged]:
        return [] if self.word is None else [self.word]


def step(at: Scene, seen: Picture, target: int) -> Step:
    """`seen`: without what is being closed."""
    worse = web_answers.worse(at.state.answers, at.roll) if at.state.answers else None  # rule 3
    if at.quiet and worse is None:
        return Step(None, at, None)
    live = list(_in_order(at, seen))
    asked = at.request(at.asked) if at.asked > at.roll.asked else None
    word = web_release.change(at.roll, asked, live, at.terms, target, at.now, at.dept, worse)
    if word is not None:
        at = at._replace(roll=web_release.changed(at.roll, word, live))
    return Step(word, at, None if at.quiet else web_release.plan(at.roll, live, at.terms, target, at.now))


def _in_order(at: Scene, seen: Picture) -> Iterator[Seen]:
    """Rule 2."""
    units, cordoned, drained = at.custody.state.units, at.held.cordoned, at.held.drained
    for name in at.held.draining:
        if name not in seen.gone:
            yield at.look(units[name])
    for unit in sorted(seen.instances(), key=lambda unit: (unit.hosts[0] not in cordoned, seen.order(unit))):
        yield at.look(unit, unit.hosts[0] not in drained)


def wake_at(at: Scene) -> float:
    """When an instance will be ready, or a release will have stood, if something depends on it."""
    found = None if at.quiet else web_release.next_at(at.roll, at.live(), at.terms, at.now)
    return NEVER if found is None else found


def why(at: Scene, target: int, maximum: int | None) -> list[Reason]:
    """Why the release before was given up, if it was; how far the wanted one is, and what it waits for if nothing but a host
    helps.  `maximum`: hosts that there may be."""
    past = [] if at.roll.given_up is None else [at.roll.given_up]
    return past if at.quiet else [*past, *_course(at, target, maximum)]


def course(at: Scene) -> Reason | None:
    """How far the wanted release is, unless it is simply complete."""
    return None if at.quiet else web_release.why(at.roll, list(at.live()), at.terms, at.now)


def _course(at: Scene, target: int, maximum: int | None) -> list[Reason]:
    seen, found = list(at.live()), course(at)
    told = [] if found is None else [found]
    helps = web_release.helps(at.roll, seen, at.terms, target, at.now)
    if helps is None or web_hosts.places(at.held, 1, at.now):
        return told
    hosts = len(at.held.hosts)
    stuck: dict[str, Any] = {"department": at.dept, "release": at.roll.wanted, "hosts": hosts}
    if helps:
        stuck |= {"max_unavailable": at.terms.max_unavailable, "helps": helps}
    if maximum is not None and hosts >= maximum:
        stuck["maximum"] = maximum
    elif helps and at.policy.surge == "idle":
        stuck["surge"] = "idle"
    return [*told, because.RollStuck(**stuck)]


def same_content(old: WebPolicy, new: WebPolicy) -> bool:
    """True if release 0 is the same under both."""
    return all(getattr(old, key) == getattr(new, key) for key in _CONTENT)
