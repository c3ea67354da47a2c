"""Hosts on which starts fail: how long each rests, when it is quarantined, and how it gets out again.

Theory of operation
  A failed start is a deploy that OpenNebula refused for what the host is, or a VM that failed before it ran.  That a host is in
  quarantine, why and until when is in the journal (`host.quarantined`); what is counted here is this leader's alone, so a new
  leader begins to count at 0, and reads from the journal which hosts are on probation.

Rules
  1. After a failed start a host rests, longer with each in a row, so that a broken one does not eat attempts by the hundred.
  2. With `quarantine_after` in a row it is quarantined for `quarantine_s`: not granted while free, nothing placed on it.  VMs
     that were to start there end, so that their jobs go elsewhere at once.
  3. Then it is on probation: one start is tried, the others wait.  If it fails, quarantine again, twice as long, up to
     `quarantine_max_s`; if it succeeds, the host is free of it, and all is forgotten.
  4. Where starts fail on most hosts at once the site is to blame (`site_fault`): what the same storm did to a host is
     taken back.
  5. Where a start was never to fit (OpenNebula counts capacity of others that we had not seen yet) the host is not to blame.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.config import Hosts
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.executor.core.timers import backoff_s

REST_S: Final = 0.5  # after a failed start; doubles
REST_MAX_S: Final = 10.0
STARTS_FAILED: Final = "starts failed"
STARTED: Final = "a start succeeded"
FORGIVEN: Final = "it was the site's fault"
# in OpenNebula's words: `virtual machine [13] does not fit in host [0]. Not enough CPU: …`
NO_ROOM: Final = "does not fit"


class Probation:
    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.rests: dict[str, tuple[int, float]] = {}  # host -> failed starts in a row, until when it rests
        self.times: dict[str, int] = {}  # host -> quarantines in a row
        self.due: dict[str, float] = {}  # host -> until when; to be written
        self.over: dict[str, str] = {}  # hosts that are free of it -> why; to be written
        self.blamed_at: dict[str, float] = {}  # host -> when the quarantines began that it has had in a row
        self.trying: dict[str, str] = {}  # host on probation -> the VM that is tried there

    def resting_until(self, name: str) -> float:
        return self.rests.get(name, (0, 0.0))[1]

    def on_probation(self, name: str) -> bool:
        host = self.custody.state.hosts.get(name)
        return host is not None and host.quarantine == STARTS_FAILED and host.quarantine_until > 0.0

    def may_start(self, name: str, key: str) -> bool:
        """Rule 3; not if another one is being tried."""
        other = self.trying.get(name, key)
        return other == key or other not in self.custody.state.vms or not self.on_probation(name)

    def starts(self, name: str, key: str) -> None:
        if self.on_probation(name):
            self.trying[name] = key

    def failed(self, name: str, now: float, rules: Hosts, why: str = "") -> None:
        """A start failed."""
        failures = self.rests.get(name, (0, 0.0))[0] + 1
        self.rests[name] = failures, now + backoff_s(failures, REST_S, REST_MAX_S)
        self.trying.pop(name, None)
        again = self.on_probation(name)
        if NO_ROOM in why or not (again or failures >= rules.quarantine_after):
            return
        if not again:
            self.blamed_at[name] = now
        times = self.times[name] = max(self.times.get(name, 0), int(again)) + 1
        self.due[name] = now + backoff_s(times, rules.quarantine_s, rules.quarantine_max_s)

    def succeeded(self, name: str) -> bool:
        """A VM runs there; True if that ends its probation."""
        self.rests.pop(name, None)
        self.times.pop(name, None)
        self.blamed_at.pop(name, None)
        self.trying.pop(name, None)
        if not self.on_probation(name):
            return False
        self.over[name] = STARTED
        return True

    def forgive(self, name: str, since: float) -> None:
        """Starts that failed there since then were not its fault (rule 4)."""
        self.rests.pop(name, None)
        self.trying.pop(name, None)
        if self.blamed_at.get(name, 0.0) >= since:
            self.times.pop(name, None)
            self.due.pop(name, None)
            self.over[name] = FORGIVEN

    def fact(self, host: Host) -> f.HostQuarantined | None:
        """What is to be written about the host, as long as the journal does not say it."""
        until = self.due.get(host.name, 0.0)
        if until > host.quarantine_until:
            return f.HostQuarantined(host=host.name, reason=STARTS_FAILED, until=until)
        self.due.pop(host.name, None)
        if host.name in self.over and self.on_probation(host.name):
            return f.HostQuarantined(host=host.name, reason=self.over[host.name], until=0.0)
        self.over.pop(host.name, None)
        return None
