"""The web core (the paper's WS Server): how many instances, on which hosts, and what the department claims.

Theory of operation
  The load arrives as `load.observed` facts; custody tells which instances are live, drain, and are in service.  The number of
  instances is a level that this core writes as `demand.changed {instances, hosts}` and reads back: so it survives restarts and
  replays.  What is remembered is folded in `web.fold`.  `decide` compares levels and returns, in this order: the claim;
  instances that end; hosts given back; new instances.

  A core that had nothing to say rests: it says so again without looking, until a fact concerns it or its wake-up time comes.

Rules
  1. How many instances there should be is decided in `web.number`; which ones go, and where new ones are placed, in
     `web.hosts`; how they end, in `web.ends`: in service, they drain first.
  2. No signal for `signal_timeout_s` though instances are in service: the number is held, and `demand.changed` says
     `signal_missing`, once; and says something else once signals have come back (`web.signals`).
  3. What counts as one of the wanted is active: it does not drain.  More than wanted there may be while those that are not
     ready are replaced.
  4. Claim: hosts for all instances, those that drain included, since they take room (where some hosts of the cluster are too
     small, no more than are not); at least those in use; plus held ones that can carry no more (cordoned, and in use; too
     small, while others are short): instances that stay there need no other place.  What is not needed goes back at once
     (paper, II-B), but a host whose instance is closed only when its VM has ended, and it is claimed until then.  A lower claim
     would bring notice, and notice kills.  A rolling update claims no more than `max_surge` allows: where none is left, a
     successor waits for the place of one that drains.  With `surge = "idle"` the hosts for it are no part of the claim: they
     are wanted beside it, if they are idle (`if_idle`), and kept as long as the update needs them.
  5. A failed instance is replaced under a new number: the first time at once, then later and later (`web.fold`, rule 2).
  6. Notice (held above quota): hosts go back as `web.ends` says; nothing is placed meanwhile.
  7. A department that is not configured, or closed, wants no instance and no host.
  8. Where the hosts are others and the number of instances is the same, the reason is that of the hosts (`web.beside`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.envelope import FACTS_MAX
from schemas.ids import instance_id
from schemas.reasons import Code, Reason, because
from services.domain.core import last_moment
from services.domain.custody.state import Unit
from services.scheduler.core.policies import known
from services.scheduler.core.web import beside as web_beside
from services.scheduler.core.web import ends as web_ends
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web import number as web_number
from services.scheduler.core.web import rolls as web_rolls
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.beside import Room
from services.scheduler.core.web.ends import Scene
from services.scheduler.core.web.fold import WebFold
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.number import Number, whose
from services.scheduler.core.web.rolls import Step
from services.scheduler.core.web.state import State

PLACED_MAX: Final = 500  # instances of one decision; the rest follow with the next one


class WebCore(WebFold):
    """The core of web department `dept`."""

    # 3: claims, requests, who drains; 4: that starts are paused; 5: what is wanted if idle; 6: who is not ready; 7: what
    # releases answer; 9: whose word the load is; a first start reads them from the journal
    VERSION = 9

    def check(self) -> list[str]:
        found = super().check()
        if self._rests and self._decide(self._decided_at):
            found.append("it rests though it has something to say")
        if self._rests and self._decide(last_moment(self._decided_at, self._wake_at)):
            found.append(f"it rests until {self._wake_at} though it has something to say before")
        if self._rests and self._wake() != self._wake_at:
            found.append(f"it rests until {self._wake_at} and should until {self._wake()}")
        return found

    # ---------------------------------------------------------------------------------------------------- how many

    def desired(self, now: float) -> Number:
        """The number of instances that should be, and why."""
        return self._desired(self.state, now)

    def would_change(self, fact: f.LoadObserved, now: float, *, whole: bool = False) -> bool:
        """True if the number would be another one with this observation: by its load, if the rule is one that hurries; more by
        requests that were counted for a `whole` second; or more by what is claimed.  Changes nothing: the edge asks before it
        waits."""
        state, number = self.state, self.desired(now)[0]
        after = web_signals.observed(state, msgspec.structs.replace(fact, claim=state.claim), now, self.policy)
        wanted, hurried = self._desired(after, now)[0], known.rule(self.policy.rule).hurried
        if wanted != number and (hurried or (whole and wanted > number and after.rate is not None)):
            return True
        claims = web_signals.observed(state, web_signals.claim_of(fact), now, self.policy)
        return (fact.claim or 0) > (state.claim or 0) and self._desired(claims, now)[0] > number

    def _desired(self, state: State, now: float) -> Number:
        if self.department is None:
            return 0, because(Code.DEPARTMENT_REMOVED, department=self.dept)
        return web_number.desired(
            web_number.Situation(state, self.policy, self._bounds, self._most(), now, self._usual)
        )

    def _most(self) -> int:
        """Instances that there may be."""
        return web_number.most(self.department, self.policy, self.per_host()) if self.department is not None else 0

    @property
    def ready(self) -> int:
        """Instances that serve: in service, not draining, and nobody says that they are not ready."""
        held = self.holdings
        return held.serving - sum(1 for name in self.state.unready if name in held.active and name not in held.starting)

    def missing(self, now: float) -> bool:
        """Rule 2: instances are in service, and nobody says how busy they are."""
        return web_signals.missing(self.state, self.policy, now)

    # -------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        if self._rests and self._decided_at <= now < self._wake_at:
            self._decided_at = now
            return []
        self._decided_at = now
        found = self._decide(now)
        self._rests = not found
        if self._rests:
            self._wake_at = self._wake()
        return found

    def _decide(self, now: float) -> list[f.Fact]:
        if self.custody.state.config is None:
            return []
        target, reason = self.desired(now)
        scene, notice = self.scene(now), self.notice()
        closings = web_ends.closings(scene, target, self._most())
        seen = self._picture(scene, closings)
        given_up = web_ends.give_up(scene, seen)
        if given_up:  # the rest follows with the next decision, which sees them gone
            return [*closings, *given_up][:FACTS_MAX]
        step = self._step(seen, target, now)
        if notice:
            told = self._claim(seen, step, (target, reason), Room(target, 0), now)  # what drains goes with its host
            rest = web_ends.give_back(scene, seen, notice)
            return [*step.words, *told, *closings, *rest][:FACTS_MAX]
        spare = 0 if step.plan is not None else web_ends.spare(scene, target, self._most())
        most = target + spare
        ended: list[f.Fact] = []
        if step.plan is not None:
            most, leave = step.plan.most, [scene.unit(name) for name in step.plan.leave]
            ended += web_ends.ends(scene, leave, because(Code.ROLLING, release=step.at.roll.wanted))
            seen = self._without(scene, seen, leave)
        surplus = web_hosts.surplus(seen, most, self.per_host())
        ended += web_ends.ends(scene, surplus, self._cause(target, reason, Code.SCALE_DOWN))
        seen = self._without(scene, seen, surplus)
        room = self._room(step, target, most, seen.draining)
        claim = self.claim(seen, *room)
        found = [*step.words, *self._claim(seen, step, (target, reason), room, now), *closings, *ended]
        # How long to wait with new ones is known once failed ones are closed.
        placed = [] if closings else self._placements(step, seen, target, spare, reason)
        hosts = web_hosts.not_needed(seen, claim, [fact.hosts[0] for fact in placed], now)
        found += [f.HostReleased(host=name, reason=self._why_given(name, claim)) for name in hosts]
        return [*found, *placed][:FACTS_MAX]

    def _why_given(self, host: str, claim: int) -> Reason:
        if host in self.holdings.cordoned:
            return because(Code.CORDONED, hosts=[host])
        return because(Code.NOT_NEEDED, demand=claim)

    def _room(self, step: Step, target: int, most: int, draining: int) -> Room:
        """Rule 4."""
        if step.plan is None:
            return Room(most, draining)
        beside = target + step.at.terms.max_surge - step.plan.room
        return Room(step.plan.room, max(0, min(draining, beside)))

    def _step(self, seen: Picture, target: int, now: float) -> Step:
        """What releases have to say."""
        at = self.releases(now)
        return web_rolls.step(at, seen, target) if self.department is not None else Step(None, at, None)

    def _without(self, scene: Scene, seen: Picture, units: list[Unit]) -> Picture:
        """Those are to end."""
        drained = [unit for unit in units if web_ends.drains(scene, unit)]
        return seen.without([unit for unit in units if not web_ends.drains(scene, unit)], drained)

    def scene(self, now: float) -> Scene:
        drain_s = self.policy.drain_s if self.department is not None else 0.0
        terms = self.releases(now).terms
        return Scene(self.custody, self.dept, self.policy, drain_s, self.state, self.holdings, self.limits, terms, now)

    def _picture(self, scene: Scene, closings: list[f.AttemptClosed]) -> Picture:
        """What is held without those that are being closed."""
        held = self.holdings
        gone = {fact.unit: None for fact in closings if fact.unit in held.active or fact.unit in held.draining}
        first = dict.fromkeys([*web_ends.not_ready(scene), *self.quiet(scene.now)])
        return Picture(held, gone, {}, {name: rank for rank, name in enumerate(first)})

    def _cause(self, target: int, reason: Reason, code: Code) -> Reason:
        """Why an instance comes or goes: a person's word, or `code`."""
        kept = self.state.by_person and target == self.state.target
        by_person = kept or reason.code is Code.SCALED_BY_PERSON
        if by_person:
            return because(Code.SCALED_BY_PERSON, instances=target)
        return because(code, instances=target, **(whose(reason) if code is Code.SCALE_UP else {}))

    def wake_at(self) -> float:
        return self._wake_at if self._rests else self._wake()

    def _wake(self) -> float:
        state = self.state
        times = [] if state.until is None else [state.until]
        if state.serving and not state.missing:
            times.append(web_signals.missing_at(state, self.policy, self._decided_at))
        times += web_signals.lost_at(state)
        hosts = self.custody.state.hosts
        if self.department is not None:
            times.append(self._bounds.wake_at(self._decided_at, self.policy))
            times.append(web_number.freed_at(state, self.policy, self._bounds, self._decided_at))
        times += [state.retry_at, *(hosts[name].quarantine_until for name in self.holdings.quarantined)]
        target, most = (self.desired(self._decided_at)[0], self._most()) if state.unready else (0, 0)
        times.append(web_ends.wake_at(self.scene(self._decided_at), target, most))
        times.append(web_rolls.wake_at(self.releases(self._decided_at)))
        return min([self.limits.next_due(), *(time for time in times if time > self._decided_at)])

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def claim(self, seen: Picture, wanted: int, draining: int) -> int:
        """Rule 4: hosts wanted in all.  `draining`: instances that take room beside the wanted ones."""
        return max(self._needed(seen, wanted, draining), len(self.holdings.hosts) - len(seen.idle()))

    def _needed(self, seen: Picture, wanted: int, draining: int) -> int:
        """Of these, what instances need, wherever they are."""
        held, idle = self.holdings, seen.idle()
        beside = max(0, wanted + draining - seen.apart())
        needed, able = -(-beside // self.per_host()), self.capacities.able(self.shape)
        if able < len(self.capacities.of_host):  # more would only bring hosts that carry nothing
            needed = min(needed, able)
        if not needed:
            return 0
        leaving = sum(1 for name in held.cordoned if name not in idle)
        small = len(held.small) if held.useful < needed else 0
        return needed + leaving + small

    def _if_idle(self, seen: Picture, step: Step, target: int, room: Room, claim: int) -> int:
        """Of `claim`, the hosts that are wanted only if they are idle: those of the surge, until they are empty again."""
        if self.policy.surge == "claim":
            return 0
        if step.plan is None:
            return max(0, min(claim - self._needed(seen, *room), self.state.if_idle))
        wanted = min(room.wanted, target)
        firm = self._needed(seen, wanted, max(0, min(room.draining, target - wanted)))
        return max(0, min(claim - firm, -(-step.at.terms.max_surge // self.per_host())))

    def _claim(self, seen: Picture, step: Step, number: Number, room: Room, now: float) -> list[f.DemandChanged]:
        claim, (target, reason) = self.claim(seen, *room), number
        if_idle = self._if_idle(seen, step, target, room, claim)
        hosts = claim - if_idle
        missing = self.missing(now) and self.department is not None
        told = self.custody.state.demands.get(self.dept, 0), self.state.if_idle, self.state.target or 0
        if told == (hosts, if_idle, target) and missing == self.state.missing:
            return []
        if missing and told == (hosts, if_idle, target):
            reason = because(Code.SIGNAL_MISSING, timeout_s=self.policy.signal_timeout_s, instances=self.state.serving)
        elif self.department is not None and (target, missing) == (self.state.target, self.state.missing):  # rule 8
            reason = web_beside.why(seen, step, target, room, told[0] + told[1] - claim)
        return [f.DemandChanged(dept=self.dept, hosts=hosts, instances=target, if_idle=if_idle, reason=reason)]

    def _placements(self, step: Step, seen: Picture, target: int, spare: int, reason: Reason) -> list[f.UnitPlaced]:
        """New instances, `spare` of them for those that are not ready."""
        short = web_hosts.shortage(seen, target + spare) if step.plan is None else step.plan.start
        count, at = min(short, PLACED_MAX), step.at
        retry_at = 0.0 if step.word is not None and step.at.roll.stage == "rolling" else self.state.retry_at
        if not count or at.now < retry_at:
            return []
        shape, last = self.shape, self.custody.state.instance_last.get(self.dept, 0)
        hosts = web_hosts.places(self.holdings, count, at.now)
        replacing = self.state.to_replace + spare
        cause = self._cause(target, reason, Code.SCALE_UP)
        if at.roll.stage == "rolling":
            cause = because(Code.ROLLING, release=at.roll.wanted)
        again = because(Code.REPLACEMENT, instances=target)
        return [
            f.UnitPlaced(
                unit=instance_id(self.dept, last + 1 + i),
                attempt=1,
                hosts=(host,),
                cores=shape.cores,
                memory_mb=shape.memory_mb,
                reason=again if i < replacing else cause,
                release=at.roll.wanted,
                image=at.image,
            )
            for i, host in enumerate(hosts)
        ]
