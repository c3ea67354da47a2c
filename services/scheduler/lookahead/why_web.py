"""Why a web department has the instances and hosts that it has: read from the core's state, changing nothing.

Rules
  1. First why the number of instances is what it is; then how far their release is, if it is on its way or was given up, and
     whether it is stuck for want of a host; then what is short: hosts, and instances that are on their way.
     If guarantees of batch departments keep the hosts, or other web departments have them (`shortage`), which; if contracts
     do not lend more (`sharing.withheld`), whose; else how many hosts there are.  If jobs on hosts that are on their way have
     asked for a grace (`domain.grace`), which, and when the hosts that it lacks are clear at the latest; and what VMs of other
     users of OpenNebula take (`domain.others`).
     Before all that: which instances are not ready, since when, what they answer and what follows; UNITS_MAX are named.
  2. Then which drain, and until when at the latest; and, while some are short, how the last one that failed did.
  3. If load is missing, since when, and which source reported it last, as far as the edge has heard it since it started.  Last
     of all whose signals are dropped: the edge has that, the core does not.
  4. Requests that wait at the load balancer while there are as many instances as are wanted, and more could be: the rule does
     not see what they wait for.  The edge knows of the queue, as of dropped signals.
  5. What an operator should look at (`troubles`) is shown without being asked for: `phoenix status`, the page, metrics.
  6. Releases of which many answers were errors lately, watched or not (`meter_answers`), as the edge has counted them.
  7. Requests that the load balancer turns away, as it says itself, whatever the rule sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from schemas import reasons as because
from schemas.reasons import Reason
from services.domain import grace, readiness
from services.domain.others import used_by_others
from services.domain.sharing.host_ownership import usable
from services.domain.sharing.shortage import kept_from, shares_of_others
from services.domain.sharing.withheld import withheld
from services.scheduler.core.policies.scale import level
from services.scheduler.core.web import replacement
from services.scheduler.core.web import rolls as web_rolls
from services.scheduler.core.web.core import WebCore
from services.scheduler.core.web.scene import Scene
from services.scheduler.meter.answers import Failing
from services.scheduler.meter.meter import Last
from services.scheduler.meter.queue import Refused, Waiting
from services.scheduler.meter.signal_filter import Trouble

UNITS_MAX: Final = 10  # a longer list is not read; their number is given as well
ANSWERS_MAX: Final = 3  # different ones


class Told(NamedTuple):
    """What the edge has and the core does not."""

    last: Mapping[str, Last] = {}
    troubles: Sequence[Trouble] = ()
    waiting: Waiting | None = None
    utilisation: float | None = None
    failing: Sequence[Failing] = ()
    refused: Refused | None = None


NOTHING_TOLD: Final = Told()


def why(core: WebCore, now: float, told: Told = NOTHING_TOLD) -> list[Reason]:
    target, reason = core.desired(now)[:2]
    held, wanted = core.custody.held(core.dept), core.custody.state.demands.get(core.dept, 0)
    active, found = len(core.inventory.active), [*not_ready(core, now), reason]
    if core.missing(now):
        found = [*(one for one in found if type(one) is not because.SignalMissing), _silence(core, now, told.last)]
    found += [*unseen(core, now, told), *refused(core, told), *failing(core, told)]
    found += web_rolls.why(core.scene(now), target, core.department.maximum if core.department is not None else None)
    if wanted > held:
        by = _kept(core, now)
        found.append(because.WaitsForHosts(demand=wanted, held=held, short=wanted - held, **by))
        found += grace.told(grace.waited_for(core.custody, wanted - held), now)
        found += used_by_others(core.custody.state.hosts.values())
    if active > core.state.serving:
        found.append(because.Starting(instances=active - core.state.serving, **_of_start(core)))
    if active < target and now < core.state.retry_at:
        wait_s = round(core.state.retry_at - now, 3)
        found.append(because.Replacement(failures=core.state.failures, wait_s=wait_s))
    found += [*_ending(core, now), *_failed(core, target), because.Running(instances=core.ready, target=target)]
    return found + [because.SignalsDropped(**trouble.params()) for trouble in told.troubles]


def troubles(core: WebCore, now: float, told: Told = NOTHING_TOLD) -> list[Reason]:
    """Rule 5."""
    silent = core.state.heard_at and core.missing(now)  # without a first signal there is no balancer that has failed
    scene = core.scene(now)
    given_up, course = scene.roll.given_up, web_rolls.course(scene)
    return [
        *not_ready(core, now),
        *([_silence(core, now, told.last)] if silent else []),
        *unseen(core, now, told),
        *refused(core, told),
        *failing(core, told),
        *([] if given_up is None else [given_up]),
        *([course] if course is not None and _is_kept(core, scene, now) else []),
        *(because.SignalsDropped(**one.params()) for one in told.troubles),
    ]


def _is_kept(core: WebCore, at: Scene, now: float) -> bool:
    """Instances of the wanted release have failed, and it matters: it is on its way, has stopped, or is short of instances."""
    return bool(at.roll.failures) and (at.roll.stage != "complete" or core.ready < core.desired(now)[0])


def failing(core: WebCore, told: Told) -> list[Reason]:
    """Rule 6; a release that was given up for it is reported already."""
    given_up = core.state.roll.given_up
    known = given_up.release if isinstance(given_up, because.ReleaseErrors) else None
    return [because.RequestsFail(**one._asdict()) for one in told.failing if one.release != known]


def refused(core: WebCore, told: Told) -> list[Reason]:
    """Rule 7."""
    if told.refused is None:
        return []
    serving, most = core.state.serving, core.policy.instances_max
    return [because.RequestsRefused(**told.refused._asdict(), instances=serving, most=most)]


def unseen(core: WebCore, now: float, told: Told) -> list[Reason]:
    """Rule 4."""
    target, serving, policy = core.desired(now).instances, core.state.serving, core.policy
    if told.waiting is None or serving < target or target >= policy.instances_max:
        return []
    if told.utilisation is not None and told.utilisation > level(policy):  # the rule sees it, and is about to act
        return []
    seen: dict[str, float] = {} if told.utilisation is None else {"utilisation": round(told.utilisation, 3)}
    if policy.requests_per_instance:
        seen["requests_per_instance"] = policy.requests_per_instance
    waiting = told.waiting
    return [because.RequestsQueued(requests=waiting.requests, waited_s=waiting.for_s, instances=serving, **seen)]


def _kept(core: WebCore, now: float) -> dict[str, Any]:
    """Rule 1: by whose guarantees hosts are kept, what others have, and what contracts do not lend."""
    kept, shares = kept_from(core.custody, core.dept, now), shares_of_others(core.custody, core.dept, now)
    by: dict[str, Any] = {}
    if kept is not None:
        by |= {"kept": kept.hosts, "usable": kept.usable, "kept_by": list(kept.departments)}
    if shares and (config := core.custody.state.config) is not None and (mine := config.department(core.dept)):
        by |= {"shares": [share.text for share in shares], "weight": mine.weight}
    if by_contract := withheld(core.custody, core.dept, now):
        by["contracts"] = [one.text for one in by_contract]
    return by or {"usable": usable(core.custody, now)}


def _ending(core: WebCore, now: float) -> list[Reason]:
    """Rule 2."""
    found, units = list[Reason](), core.custody.state.units
    drains = [units[name].drains_until or now for name in core.inventory.draining]
    if drains:
        left_s = max(0.0, round(max(drains) - now, 3))
        found.append(because.Draining(instances=len(drains), left_s=left_s))
    return found


def not_ready(core: WebCore, now: float) -> list[Reason]:
    """Rule 1."""
    scene = core.scene(now)
    names = replacement.not_ready(scene)
    if not names:
        return []
    words = [core.state.unready[name] for name in names]
    answers = sorted({readiness.answer(one) for one in words})
    told: dict[str, Any] = {
        "instances": core.ready,
        "target": core.desired(now)[0],
        "not_ready": len(names),
        "units": names[:UNITS_MAX],
        "answers": answers[:ANSWERS_MAX],
        "for_s": round(max(0.0, now - readiness.since(words[0])), 1),
        "unreachable_s": core.policy.unreachable_s,
    }
    if replacement.is_balancers_word(scene):
        told["by"] = sorted({who for one in words for who in one})[:ANSWERS_MAX]
    return [because.NotReady(**told)]


def _of_start(core: WebCore) -> dict[str, Any]:
    """What the guest of the first one that starts says of its health check."""
    words = ((name, core.state.unready.get(name)) for name in core.inventory.starting)
    return next(({"unit": name, "answer": readiness.answer(one)} for name, one in words if one), {})


def _failed(core: WebCore, target: int) -> list[Reason]:
    """Rule 2."""
    state = core.state
    if state.failed_why is None or core.ready >= target:
        return []
    return [because.LastFailed(**because.failure(state.failed, state.failed_why))]


def _silence(core: WebCore, now: float, last: Mapping[str, Last]) -> Reason:
    """Rule 3."""
    told: dict[str, Any] = {"timeout_s": core.policy.signal_timeout_s, "instances": core.state.serving}
    if core.state.heard_at:
        told["silent_s"] = round(now - (core.state.load_at or core.state.heard_at), 1)
    names = ("cpu", "requests") if core.state.load_at else ("claim",)
    heard = [(last[name].at, name, last[name].source) for name in names if name in last]
    if heard:
        _, told["signal"], told["source"] = max(heard)
    return because.SignalMissing(**told)
