"""Instances in service that their guest or a balancer reports as not ready for long: they are replaced.

Rules
  1. An instance that is not ready for `unreachable_s` is *overdue*: it is replaced, the longest first, as fast as the terms of
     a rolling update allow and no faster.
  2. Up to `max_surge` successors come first (`spare`); as many overdue ones are closed as instances are there, and ready,
     beyond the wanted number.  Up to `max_unavailable` go before that, less those that are missing or not overdue yet.  If that
     is 0 and no successor can come, one goes: at once where there may be no more instances, else after `boot_timeout_s`.
  3. It must help: while no instance in service is ready and has been for `min_ready_s`, the program, or what it depends on, is
     ill, and those that have served before stay; they may recover by themselves.  Successors that were never ready that long go
     first then, and the next ones wait longer and longer (`web.failures`).
  4. If no instance is ready according to the balancers alone, while the guests report that they are, it may be the balancers'
     network: one successor comes, and if it is not reached either, none is closed.  Where none can come, one is closed after
     `boot_timeout_s`, and the next ones after twice as long, and so on.
  5. None is replaced in a department that has stopped: no successor would come.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from schemas.ids import sort_key
from services.domain import readiness
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web import termination
from services.scheduler.core.web.scene import Scene

# guests and balancers ask and report once a second: those that recover together have been reported by then
WORDS_S: Final = 3.0
DOUBLINGS_MAX: Final = 5  # of a boot_timeout_s of a minute: half an hour


def not_ready(at: Scene) -> list[str]:
    """Active instances in service that are reported as not ready, the longest first."""
    found = (name for name in at.state.unready if name in at.held.active and name not in at.held.starting)
    return sorted(found, key=lambda name: (readiness.since(at.state.unready[name]), sort_key(name)))


def overdue(at: Scene) -> list[str]:
    """Those of them that are to be replaced."""
    patience_s = at.policy.unreachable_s
    if not patience_s:
        return []
    return [name for name in not_ready(at) if readiness.since(at.state.unready[name]) + patience_s <= at.now]


def spare(at: Scene, target: int, most: int) -> int:
    """Instances beyond `target` that are wanted for now; there may be `most`."""
    return max(0, min(len(overdue(at)), at.terms.max_surge, most - target)) if target else 0


def is_balancers_word(at: Scene) -> bool:
    """The balancers alone report that no instance is ready; no guest does."""
    names = not_ready(at)
    alone = not any(readiness.GUEST in at.state.unready[name] for name in names)
    return bool(names) and len(names) == at.held.serving and alone


def closings(at: Scene, target: int, most: int) -> list[f.AttemptClosed]:
    """The closings of this moment."""
    names = overdue(at)
    if not names or not target or at.state.roll.stage == "stopped":
        return []
    fresh = len(not_ready(at)) - len(names)
    serving, is_proven = at.held.serving - fresh, _is_proven(at)
    if not is_proven:
        if len(not_ready(at)) < at.held.serving:
            return []  # one is ready, and has still to prove that it stays so
        if is_balancers_word(at):
            return [_gone(at, name) for name in names[:1] if _is_due(at, names[0], target, most)]
        names = [name for name in reversed(names) if not _has_served(at, name)] or names
    extra = max(0, serving - target) if is_proven or not _has_served(at, names[0]) else 0
    early = max(0, at.terms.max_unavailable - max(0, target - serving)) if at.now >= at.state.retry_at else 0
    early = early or int(not at.terms.max_unavailable and _is_due(at, overdue(at)[0], target, most))
    return [_gone(at, name) for name in names[: extra + early]]


def _gone(at: Scene, name: str) -> f.AttemptClosed:
    told = because.NotReady(unreachable_s=at.policy.unreachable_s, answer=readiness.answer(at.state.unready[name]))
    return termination.close(at.unit(name), Disposal.FAILED, told)


def _served_since(at: Scene, name: str) -> float:
    return max(at.unit(name).began_at or 0.0, at.state.ready_at.get(name, 0.0))


def proven_s(at: Scene) -> float:
    """How long an instance must be ready before it is believed to be well, in seconds."""
    return max(at.terms.min_ready_s, WORDS_S)


def _has_served(at: Scene, name: str) -> bool:
    """It was ready long enough to be believed to be well, or to have been."""
    words = at.state.unready.get(name)
    until = readiness.since(words) if words else at.now
    return until >= _served_since(at, name) + proven_s(at)


def _is_proven(at: Scene) -> bool:
    """An instance is ready, and has been for long enough: not all that are started fall ill."""
    held, unready = at.held, at.state.unready
    return any(name not in held.starting and name not in unready and _has_served(at, name) for name in held.active)


def _is_due(at: Scene, name: str, target: int, most: int) -> bool:
    """Without a successor's being there first."""
    if at.now < at.state.retry_at:
        return False
    if at.held.serving < target and (at.held.starting or web_hosts.places(at.held, 1, at.now)):
        return False  # some are missing, and are on their way or have a place to come to
    if at.held.serving > target:
        return False  # its successor is there, and is not ready either
    return at.now >= _due_at_last(at, name, target, most)


def _due_at_last(at: Scene, name: str, target: int, most: int) -> float:
    """When its place is its successor's, if none can come before."""
    due = readiness.since(at.state.unready[name]) + at.policy.unreachable_s
    if is_balancers_word(at):
        wait_s = at.policy.boot_timeout_s * 2.0 ** min(at.state.failures, DOUBLINGS_MAX)
        return max(due, at.state.replaced_at) + wait_s
    return due if most <= target <= at.held.serving else max(due, at.state.replaced_at) + at.policy.boot_timeout_s


def moments(at: Scene, target: int, most: int) -> list[float]:
    """When an instance is overdue, has proven to be well, or may go without a successor."""
    names = not_ready(at)
    if not names:
        return []
    first = names[0]
    times = [readiness.since(at.state.unready[name]) + at.policy.unreachable_s for name in names]
    ready = (name for name in at.held.active if name not in at.held.starting and name not in at.state.unready)
    times += [_served_since(at, name) + proven_s(at) for name in ready]
    return [*times, at.state.retry_at, _due_at_last(at, first, target, most)]
