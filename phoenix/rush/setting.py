"""How large the experiment is, from how large the machine is: so that what is measured is the cloud, and not two busy cores.

Rules
  1. All virtual machines together may use `VMS_PART` of the machine's CPU time, whatever they do: hosts × cores × `core_share`.
     The hypervisor holds them to it.  The rest is for the cloud, the load balancer, the generator and this program.
  2. The load's peak keeps `peak_instances` instances busy to `TARGET`, and no more than the department may have.
  3. Time is compressed, so what the scaling rule waits for must be: windows are given in seconds of the experiment and said.
"""

from __future__ import annotations

import math
import os
from typing import Final, Literal

import msgspec

from phoenix.load.curve import Curve

VMS_PART: Final = 0.5  # of the machine: the other half is idle when no VM works, and is never needed whole
TARGET: Final = 0.8
DOWN_WINDOW_S: Final = 15.0  # of target-tracking: 300 s by default; time is faster here
THRESHOLD_WINDOW_S: Final = 20.0  # the paper's, not compressed

Balancer = Literal["embedded", "haproxy"]
Rule = Literal["target-tracking", "threshold"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One machine room and one load.  `cpu_ms`: CPU time of each request, beside what HTTP costs."""

    cpus: int
    hosts: int = 16
    cores: int = 2  # of a host
    instance_cores: int = 2
    instances_max: int = 12
    peak_instances: int = 10
    cpu_ms: float = 4.0
    post_share: float = 0.2
    fresh_share: float = 0.2  # of the requests have a connection of their own
    timeout_s: float = 4.0  # at the peak so fewer requests can wait than the generator has connections
    job_s: tuple[float, float] = (10.0, 40.0)  # of the batch jobs, one host each
    batch_load: float = 1.1  # of all hosts: some job always waits
    seed: int = 1
    balancer: Balancer = "embedded"

    @property
    def core_share(self) -> float:
        """Real cores behind one core of a host (rule 1)."""
        return VMS_PART * self.cpus / (self.hosts * self.cores)

    @property
    def instance_cpu(self) -> float:
        """Real cores of an instance."""
        return self.core_share * self.instance_cores

    @property
    def nominal_capacity(self) -> float:
        """Requests a second of an instance if HTTP cost nothing; what it is, is measured."""
        return self.instance_cpu / (self.cpu_ms / 1000)

    @property
    def job_every_s(self) -> float:
        """Between two submissions."""
        return sum(self.job_s) / 2 / (self.hosts * self.batch_load)

    def peak_rate(self, capacity: float) -> float:
        """Rule 2; `capacity`: requests a second that an instance serves."""
        return self.peak_instances * TARGET * capacity


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """How the number of instances is decided: by a rule, or not at all (`exact`).  `requests_per_instance`: the rule also goes
    by the requests that the load balancer counts, that many a second of each; 0: by CPU utilisation alone."""

    name: str
    rule: Rule = "target-tracking"
    requests_per_instance: float = 0.0
    exact: int | None = None


def of_this_machine(balancer: Balancer) -> Setting:
    return Setting(cpus=len(os.sched_getaffinity(0)), balancer=balancer)


def busy(curve: Curve, capacity: float) -> list[tuple[float, float]]:
    """(from, instances that the load keeps busy): the demand, before any rule."""
    return [(since, rate / capacity) for since, _, rate in curve.steps()]


def ideal(curve: Curve, capacity: float, setting: Setting) -> list[tuple[float, int]]:
    """(from, instances that would be busy to TARGET at most): what a rule that knew the load would have."""
    wanted = [(at, max(1, math.ceil(level / TARGET - 1e-9))) for at, level in busy(curve, capacity)]
    return [(at, min(setting.instances_max, count)) for at, count in wanted]
