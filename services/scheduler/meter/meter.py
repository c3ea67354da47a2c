"""The meter of the web scheduler's edge: signals in, one observation out.  No I/O; the clock is given.

Theory of operation
  An observation covers the time since the last one without a seam, or, after a silence, since when all that were heard have
  measured.  Each source's word of it is the mean of its signals, weighted by how long each measured.  A source from which none
  came in that time is held to its last word for a while (rule 2), so that two sources which speak once a second, at different
  moments, do not take turns.  What the words of several sources make together depends on what they say:

    cpu        a user's sources that name their instances share the department: their mean, weighted by that number; one that
               names none says nothing.  One that does not name them speaks of the whole department.  The highest of these
               words: an idle balancer must not outvote a person, nor any user another's balancers
    requests   the sum; each source's target, or the department's, for its own rate: a small one multiplies no other's
    claim      the highest
    sessions   the sum for each instance
    answers    the sum for each release: `meter_answers`

Rules
  1. Which signals are taken: `meter_gate`.
  2. A word of load holds until the source's next one: HELD_S, or twice as long as it measured, `timeout_s` at most.  So the
     part of a balancer that has died counts for that long: too much rather than too little.
  3. A claim and sessions hold for `timeout_s` after their `at`, or until the source says something else.
  4. Claims and sessions alone make an observation of a moment (start = end); time is covered by load only.
  5. A meter that has just begun to listen has not heard all sources: load is observed after HELD_S, and what was claimed before
     still counts (`inherit`), for `timeout_s`.  A scheduler that starts again must not take half a rate, or CPU without it, for
     a fall.
  6. A source that is silent for SILENT_S (or `timeout_s`, if that is longer) makes room for another.
  7. No observation spans a silence, or more than `longest_s`: it would decide at once what a rule looks at for a window.  What
     was heard before a silence, or so long ago, and is not observed yet, is given up; its source's last word holds (rule 2).
     Half a second of CPU beside a rate that was counted through the silence is an observation of half a second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from schemas import signals as s
from schemas.config import WebPolicy
from schemas.facts import AUTHORS_MAX, QUIET_MAX, LoadObserved
from schemas.ids import sort_key
from schemas.signal_drops import Drop
from schemas.times import received
from services.scheduler.meter.answers import Answered
from services.scheduler.meter.plausibility import Known, implausible
from services.scheduler.meter.queue import Queue, Whose
from services.scheduler.meter.signal_filter import SESSIONS_MAX, SILENT_S, SOURCES_MAX, Gate, Trouble, refusal

HELD_S: Final = 2.5  # sources of one signal a second, one of them late: still without a hole …
SEAM_S: Final = HELD_S  # … and observations without a seam
LONGEST_S: Final = 20.0  # of a rule without a window: that of the paper (III-C)
_ROUNDING_S: Final = 1e-6  # a float of UTC seconds has a resolution of 2e-7
_LOAD: Final = ("cpu", "requests")


def longest_s(policy: WebPolicy) -> float:
    """Rule 7.  Once a second with one of them late must do, however short the window is."""
    return max(HELD_S, policy.window_s if policy.rule == "threshold" else LONGEST_S)


class Last(NamedTuple):
    """The last signal that was taken."""

    at: float
    source: str


class _Source(msgspec.Struct):
    at: float = 0.0  # of its last signal
    interval_s: float = 0.0
    said: float = 0.0  # utilisation, requests/s, or instances claimed
    of: float | None = None  # instances that a utilisation is of; requests/s that an instance is to serve
    sessions: dict[str, int] = {}
    sum: float = 0.0  # said · seconds, since the last observation
    seconds: float = 0.0
    samples: int = 0
    first: float = math.inf  # begin of the first of these measurements

    def word(self) -> float:
        return self.sum / self.seconds if self.seconds else self.said

    def holds(self, now: float, timeout_s: float) -> bool:
        """Rule 2."""
        return bool(self.samples) or now <= self.at + min(timeout_s, max(HELD_S, 2 * self.interval_s))


class Meter:
    """Of one department.  `since`: when it began to listen (rule 5); `timeout_s`: the policy's `signal_timeout_s`; `longest_s`:
    rule 7; `known`: what there is of the department, None if that is unknown."""

    def __init__(self, department: str, since: float = -math.inf, timeout_s: float = 10.0) -> None:
        self.department, self.since, self.timeout_s = department, since, timeout_s
        self.longest_s = LONGEST_S
        self.known: Known | None = None
        self.gate = Gate()
        self.queue = Queue()
        self.answers = Answered()
        self.last: dict[str, Last] = {}  # by signal
        self._sources: dict[str, dict[Whose, _Source]] = {name: {} for name in s.SIGNALS}
        self._levels = 0  # claims and sessions since the last observation
        self._ended = 0.0  # of the last observation of load
        self._last = 0.0  # end of the last one
        self._inherited = (0, "", -math.inf)  # instances claimed, by whom, and until when that counts

    # ------------------------------------------------------------------------------------------------------------ signals

    def take(self, signal: s.AnySignal, now: float, user: str = "") -> Trouble | None:
        """Count it in, or drop it (rule 1); `user`: who published it.  Returns a trouble that is to be reported for the first
        time."""
        name, at, whose = s.NAME[type(signal)], now if signal.at is None else received(signal.at), (user, signal.source)
        known = self._sources[name].get(whose)
        why, note = refusal(signal, at, now, None if known is None else known.at), ""
        if why is None and isinstance(signal, s.CpuSignal | s.RequestsSignal) and signal.interval_s > self.longest_s:
            why, note = Drop.TOO_LONG, f"interval_s is {signal.interval_s:g}, at most {self.longest_s:g} counts"
        if why is None and self.known is not None and (note := implausible(signal, self.department, self.known)):
            why = Drop.IMPLAUSIBLE
        if why is None and not self._room(name, whose, signal, now):
            why = Drop.TOO_MANY_SOURCES
        if why is not None:
            return self.gate.drop(name, why, now, user=user, source=signal.source, off_s=at - now, note=note)
        self.gate.took(name, user, signal.source)
        self.last[name] = Last(at, signal.source)
        source = self._sources[name].setdefault(whose, _Source())
        source.at = at
        if isinstance(signal, s.CpuSignal):
            if signal.instances == 0:  # the mean of nothing: it ends what the source has said
                source.of = 0
            else:
                self._measured(source, signal.utilisation, signal.interval_s, signal.instances)
        elif isinstance(signal, s.RequestsSignal):
            self._measured(source, signal.rate, signal.interval_s, signal.target)
            self.queue.take(signal, now, whose)
        elif isinstance(signal, s.AnswersSignal):
            self.answers.take(signal, now)
        else:
            self._levels += 1
            if isinstance(signal, s.ClaimSignal):
                source.said = signal.instances
            else:
                source.sessions = signal.sessions
        return None

    def _room(self, name: str, whose: Whose, signal: s.AnySignal, now: float) -> bool:
        """Among the sources of its user, which have room of their own, whatever other users have."""
        table = self._sources[name]
        if whose not in table:
            silent_s = max(SILENT_S, self.timeout_s)
            table = self._sources[name] = {key: one for key, one in table.items() if one.at > now - silent_s}
            if sum(user == whose[0] for user, _ in table) >= SOURCES_MAX:
                return False
        if not isinstance(signal, s.SessionsSignal):
            return True
        others = sum(len(one.sessions) for key, one in table.items() if key[0] == whose[0] and key != whose)
        return others + len(signal.sessions) <= SESSIONS_MAX

    def _measured(self, source: _Source, said: float, interval_s: float, of: float | None) -> None:
        begin = source.at - interval_s
        if begin - self._last >= SEAM_S or source.at - self._first() > self.longest_s:  # rule 7
            self._begin_anew()
        source.said, source.interval_s, source.of = said, interval_s, of
        source.sum += said * interval_s
        source.seconds += interval_s
        source.samples += 1
        source.first = min(source.first, begin)
        self._last = max(self._last, source.at)

    def inherit(self, claim: int | None, by: str, until: float) -> None:
        """Rule 5; and what was heard while another replica wrote counts as its source's last word."""
        self._inherited = (claim or 0, by, until if claim is not None else -math.inf)
        self._begin_anew()

    # -------------------------------------------------------------------------------------------------------- observations

    @property
    def pending(self) -> bool:
        """True if there is something to observe."""
        return bool(self._levels) or any(self._load())

    def counted_s(self) -> float:
        """For how long each source of requests that was heard since the last observation has counted, at least."""
        return min((one.seconds for one in self._sources["requests"].values() if one.samples), default=0.0)

    def _load(self) -> Iterator[_Source]:
        """Sources of load that were heard since the last observation."""
        return (one for name in _LOAD for one in self._sources[name].values() if one.samples)

    def _first(self) -> float:
        """Since when all of them have measured."""
        return max((one.first for one in self._load()), default=math.inf)

    def observation(self, now: float) -> LoadObserved | None:
        """What has been heard since the last observation, without taking it out; None if there is nothing."""
        samples, (claim, by) = sum(one.samples for one in self._load()), self._claim(now)
        end = min(self._last, now)
        first = self._first()
        start = self._ended if first - self._ended < SEAM_S and end - self._ended <= self.longest_s else first
        if not (
            samples and self._ended <= start < end <= start + self.longest_s + _ROUNDING_S and self._knows_all(now)
        ):
            if not self._levels:
                return None
            return LoadObserved(  # rule 4
                dept=self.department, start=now, end=now, samples=self._levels, claim=claim, claim_by=by
            )
        rate, target = self._requests(now)
        return LoadObserved(
            dept=self.department,
            start=start,
            end=end,
            utilisation=self.utilisation(now),
            samples=samples + self._levels,
            requests_per_s=rate,
            requests_per_instance=target,
            load_by=self._load_by(now),
            claim=claim,
            claim_by=by,
        )

    def _knows_all(self, now: float) -> bool:
        """Rule 5."""
        return now >= self.since + min(self.timeout_s, HELD_S)

    def observed(self, fact: LoadObserved) -> None:
        """`fact` is in the journal: the next observation begins where it ended."""
        self._levels = 0
        if fact.end > fact.start:
            self._ended = fact.end
            self._begin_anew()

    def _begin_anew(self) -> None:
        for one in tuple(self._load()):
            one.sum, one.seconds, one.samples, one.first = 0.0, 0.0, 0, math.inf

    def _words(self, name: str, now: float) -> list[tuple[str, _Source]]:
        """With their users."""
        return [(user, one) for (user, _), one in sorted(self._sources[name].items()) if one.holds(now, self.timeout_s)]

    def utilisation(self, now: float) -> float | None:
        """As sources of `cpu` say it now."""
        return max(self._cpu(now).values(), default=None)

    def _cpu(self, now: float) -> dict[str, float]:
        """Each user's word."""
        words: dict[str, float] = {}
        shares: dict[str, list[tuple[float, float]]] = {}
        for user, one in self._words("cpu", now):
            if one.of is None:
                words[user] = max(words.get(user, 0.0), one.word())
            elif one.of:
                shares.setdefault(user, []).append((one.of, one.word()))
        for user, some in shares.items():
            words[user] = max(words.get(user, 0.0), sum(n * word for n, word in some) / sum(n for n, _ in some))
        return words

    def _load_by(self, now: float) -> tuple[str, ...]:
        """Whose word the load is: the highest of `cpu`, and each part of the sum of requests that asks for instances; where
        there is neither, who tells requests."""
        cpu, requests = self._cpu(now), self._words("requests", now)
        highest, target = max(cpu.values(), default=None), self.known.target if self.known is not None else 0.0
        found = {user for user, word in cpu.items() if word == highest}
        found |= {user for user, one in requests if one.word() and (one.of or target)}
        return tuple(sorted(user for user in found or {user for user, _ in requests} if user))[:AUTHORS_MAX]

    def _requests(self, now: float) -> tuple[float | None, float | None]:
        """Requests/s of all, and what an instance is to serve of them: the mean by which their rates want as many instances as
        by each one's own."""
        heard = [one for _, one in self._words("requests", now)]
        if not heard:
            return None, None
        rate, own = math.fsum(one.word() for one in heard), self.known.target if self.known is not None else 0.0
        said = [one.of for one in heard if one.of]
        if not said:
            return rate, None
        pairs = [(one.word(), one.of or own) for one in heard if one.of or own]
        wanted = math.fsum(word / target for word, target in pairs)
        if not wanted or len({target for _, target in pairs}) == 1:
            return rate, min(said)
        return rate, math.fsum(word for word, _ in pairs) / wanted

    def _claim(self, now: float) -> tuple[int | None, str]:
        """The highest, and whose it is."""
        claim, by, until = self._inherited
        table = self._sources["claim"].items()
        claims = [(int(one.said), user) for (user, _), one in table if now < one.at + self.timeout_s]
        return max([*claims, *([(claim, by)] if now < until else [])], default=(None, ""))

    def quiet(self, in_service: Collection[str], now: float) -> tuple[str, ...]:
        """Of `in_service` those that a source names, with the fewest open sessions."""
        counts: dict[str, int] = {}
        for one in self._sources["sessions"].values():
            if now < one.at + self.timeout_s:
                for unit, sessions in one.sessions.items():
                    counts[unit] = counts.get(unit, 0) + sessions
        order = sorted(
            (unit for unit in in_service if unit in counts),
            key=lambda unit: (
                counts[unit],  # 1. the fewest
                -sort_key(unit)[0],  # 2. the newest (unique)
            ),
        )
        return tuple(order[:QUIET_MAX])
