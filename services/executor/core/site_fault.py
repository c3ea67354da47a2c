"""Starts that fail on most hosts at once: the site's fault, and neither the hosts' nor the jobs'.

Theory of operation
  A driver that lost its storage, or an oned that refuses every deploy, fails the starts of all hosts.  Were each host blamed
  for itself, a fault of seconds would quarantine the cloud for minutes and end an attempt of each job again and again.  So
  starts are *paused*: `starts.paused` records it in the journal, VMs wait on HOLD, and one start at a time is tried.  The first
  that succeeds ends the pause (`starts.resumed`), and all that wait are deployed at once.  That starts are paused is in the
  journal; the counts here are this leader's alone, so a new leader tries at once.

Rules
  1. It begins when starts failed on at least `HOSTS_MIN` hosts (two, if the cloud has no more), of at least `JOBS_MIN` jobs,
     within `window_s`, which is WINDOW_S, and longer where VMs may take longer than a minute to boot; and on at least `MOST` of
     the hosts on which one has ended since, or is under way; the last start of each host counts.  An array is one job: what
     cannot start is then not the site.
  2. While it lasts no host is blamed for a failed start, and a VM on HOLD whose deploy was refused keeps waiting.  Hosts that
     failed in it are forgiven as it begins (`Probation.forgive`): nothing is started there before it is over but what is tried.
  3. One start is tried at a time, each later than the one before; VMs take turns.  One that has not come up after `TRY_S` keeps
     no attempt from the next try, and ends the pause all the same if it comes up later.  What was deployed before the pause
     proves nothing.
  4. If no start is wanted for `FADES_S` it ends, too: no start has to wait for a proof that cannot come.
  5. A VM that found no free capacity (`probation.NO_ROOM`) proves nothing about the site.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas import facts as f
from schemas.ids import instance_parts, is_instance, job_of
from services.executor.core.ledger import Ledger
from services.executor.core.ledger_state import PAUSED
from services.executor.core.timers import Timers, backoff_s

HOSTS_MIN: Final = 3  # two hosts of many may well break in the same half minute, as they share a rack
HOSTS_FEW: Final = 2  # … of a cloud that has no more; with one host the two cannot be told apart
JOBS_MIN: Final = 2  # one job that cannot start anywhere is that job's trouble
MOST: Final = 0.75  # a rack of half the hosts is quarantined host by host: the others continue
WINDOW_S: Final = 30.0  # a host's third failed start in a row comes within two seconds, a slow one's within this
TRY_FIRST_S: Final = 0.5
TRY_MAX_S: Final = 5.0  # so long after the site is well again all start; one in trouble is asked no more often
WINDOW_MAX_S: Final = 300.0  # … where starts take minutes
TRY_S: Final = 60.0  # the boot budget of a batch department of the embedded cloud
FADES_S: Final = 120.0
SUCCEEDED: Final = "a start succeeded"
UNWANTED: Final = "no start was wanted any more"


class Ended(NamedTuple):
    """The last start that ended on a host.  `at`: UTC seconds."""

    at: float
    job: str
    failed: bool


class SiteFault:
    def __init__(self, ledger: Ledger, timers: Timers) -> None:
        self.ledger, self.timers = ledger, timers
        self.ended: dict[str, Ended] = {}  # by host; of the last `WINDOW_S`
        self.begun: dict[str, tuple[str, float]] = {}  # VMs that are on their way -> where, and since when
        self.found: f.StartsPaused | None = None  # to be written
        self.over = ""  # why the pause ends; to be written
        self.failures = 0  # tries in a row that failed
        self.next_at = 0.0  # when the next may be made
        self.trying = ""  # the VM that is tried now …
        self.until = 0.0  # … and until when no other is
        self.tried: dict[str, None] = {}  # all that were, in this pause
        self.wanted_at: float | None = None  # when a start was wanted last

    @property
    def window_s(self) -> float:
        """Rule 1: half of the longest boot budget of a department, within bounds."""
        config = self.ledger.custody.state.config
        policies = [d.batch or d.web for d in config.departments] if config is not None else []
        longest_s = max((policy.boot_timeout_s for policy in policies if policy is not None), default=0.0)
        return min(WINDOW_MAX_S, max(WINDOW_S, longest_s / 2))

    @property
    def on(self) -> bool:
        """Starts are paused, or are about to be."""
        return self.found is not None or self.ledger.state.paused is not None

    # ------------------------------------------------------------------------------------------------------ what is seen

    def failed(self, host: str, key: str, why: str, now: float) -> bool:
        """A start failed.  True if that is the site's fault."""
        self.begun.pop(key, None)
        self.ended[host] = Ended(now, _job(key), failed=True)
        if self.on:
            self._tried(key, now)
        elif self._is_site(now):
            times = [one.at for one in self.ended.values() if one.failed]
            self.found = f.StartsPaused(since=min(times), failed=len(times), tried=len(self.ended), why=why)
            self._begin(now)
        return self.on

    def _is_site(self, now: float) -> bool:
        """Rule 1."""
        since = now - self.window_s
        self.ended = {host: one for host, one in self.ended.items() if one.at > since}
        self.begun = {key: (host, at) for key, (host, at) in self.begun.items() if at > since}
        under_way = len({host for host, _ in self.begun.values() if host not in self.ended})
        failed = [one for one in self.ended.values() if one.failed]
        least = max(HOSTS_FEW, min(HOSTS_MIN, len(self.ledger.custody.state.hosts)))
        jobs = dict.fromkeys(one.job for one in failed)
        return len(failed) >= max(least, MOST * (len(self.ended) + under_way)) and len(jobs) >= JOBS_MIN

    def _begin(self, now: float) -> None:
        self.failures, self.next_at, self.trying, self.over = 0, now + TRY_FIRST_S, "", ""
        self.tried.clear()
        self.wanted_at = now
        self.timers.set(self.next_at, PAUSED)
        self.timers.set(now + FADES_S, PAUSED)

    def hosts(self) -> list[str]:
        """Where starts failed of late."""
        return [host for host, one in self.ended.items() if one.failed]

    def succeeded(self, host: str, key: str, now: float) -> None:
        """A VM runs."""
        self.begun.pop(key, None)
        self.ended[host] = Ended(now, _job(key), failed=False)
        if self.ledger.state.paused is not None and key in self.tried:
            self.over = SUCCEEDED

    def _tried(self, key: str, now: float) -> None:
        """Nothing came of trying it."""
        if key == self.trying:
            self.failures += 1
            self.trying, self.next_at = "", now + backoff_s(self.failures + 1, TRY_FIRST_S, TRY_MAX_S)
            self.timers.set(self.next_at, PAUSED)

    # ------------------------------------------------------------------------------------------------------- what follows

    def may_start(self, now: float) -> bool:
        """Rule 3."""
        if not self.on:
            return True
        return self.ledger.state.paused is not None and now >= (self.until if self.trying else self.next_at)

    def starts(self, host: str, key: str, now: float) -> None:
        """It is deployed."""
        self.begun[key] = (host, now)
        if self.on:
            self.trying, self.until = key, now + TRY_S
            self.tried[key] = None
            self.timers.set(self.until, PAUSED)

    def came_to_nothing(self, key: str, now: float) -> None:
        """It was deployed, and that proves nothing."""
        self.begun.pop(key, None)
        self._tried(key, now)

    def settle(self, now: float, *, woken: bool, waiting: bool) -> None:
        """Time passes.  `woken`: one of the times set here has come; `waiting`: some VM waits to be started."""
        if not self.on:
            if self.wanted_at is not None:  # it is over: what failed in it counts no more
                self.wanted_at, self.over = None, ""
                self.tried.clear()
                self.ended.clear()
            return
        if self.ledger.state.paused is not None:
            self.found = None
        if self.trying and self.trying not in self.ledger.custody.state.vms:
            self.trying = ""
            self.timers.set(max(now, self.next_at), PAUSED)
        if self.wanted_at is None or waiting or self.trying:
            woken, self.wanted_at = woken or self.wanted_at is None, now
        elif now >= self.wanted_at + FADES_S:
            self.over = self.over or UNWANTED
        if woken:
            self.timers.set(self.wanted_at + FADES_S, PAUSED)

    def facts(self) -> list[f.Fact]:
        """As long as the journal does not say it."""
        if self.found is not None and self.ledger.state.paused is None:
            return [self.found]
        if self.over and self.ledger.state.paused is not None:
            return [f.StartsResumed(why=self.over)]
        return []


def _job(key: str) -> str:
    """Whose VM it is: a job, an array as a whole, or a web department, whose instances are all alike."""
    unit = key.split("/", 1)[0]
    return instance_parts(unit)[0] if is_instance(unit) else job_of(unit)
