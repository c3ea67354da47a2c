"""Multi-factor priority: a job's place in the queue is a weighted sum of age, fair share, size, quality of service, user and
department.

Sources: Slurm's priority/multifactor plugin and its classic fair share (slurm.schedmd.com/priority_multifactor.html,
classic_fair_share.html).

Theory of operation
  Each factor is a number from 0 to 1 (quality and user from -1), each weight says how many points a 1 is worth, and the sum,
  rounded down, is the priority.  Which of the units start is the order below (`backfill`): it works the same queue, sorted by
  points.
  Age and usage change as time passes.  So they are taken as of stated *moments*, the multiples of `period_s` since the epoch:
  between two of them no priority changes, and the core wakes at the next one (`jobs`, `ranked`).

Rules
  1. Age: seconds since the job was submitted, or since its last dependency was met, or since it was released by a person, in
     parts of `age_full_s`, at most 1.  A job that was preempted or failed does not lose it: it has waited all the same.
  2. Fair share: 2 ** -(U / S / damping).  U: the user's part of all usage of the department (`usage`: core-seconds; a core,
     a GiB and a GPU count `usage_per_core`, `usage_per_gb` and `usage_per_gpu`); S: the user's shares by the shares of all its
     members: those who have used something, have shares of their own, or are configured in it.  1 while there is no usage, 1/2
     for a user that has used exactly its share, 0 for one without shares.
  3. Size: all cores that the unit asks for, in parts of `size_full_cores`, at most 1.  A negative weight favours small jobs.
     Slurm takes parts of the cluster; here hosts come and go by the second, and priorities would with them.  Memory and GPUs
     are no part of it, there and here.
  4. Quality of service: the job's `priority` and that of its quality together, in parts of `priority_full`, from -1 to 1.
  5. User: the number that `users` has for the job's user, the same for all time.
  6. Department: its weight in parts of the largest one of the batch departments.  A department has a queue of its own, so this
     is the same for all of its jobs and changes no order; it is there to be compared across departments.
  7. Equal points: order of entry (`shape.Place`).

Slurm's fair tree is not here: departments are one level, and with one level both rank users alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from schemas.config import BatchPolicy, CloudConfig, MultiFactor

NAME: Final = "multi-factor"
DIGITS: Final = 9  # of parts of all usage: all decays alike, so while nothing runs parts must stay what they are
BELOW: Final = {"none": "fcfs", "first-fit": "first-fit", "easy": "easy", "conservative": "conservative"}


class Points(NamedTuple):
    """What each factor adds to a priority."""

    age: float
    fair_share: float
    size: float
    quality: float
    user: float = 0.0
    department: float = 0.0

    @property
    def priority(self) -> int:
        return priority(*self)


def priority(age: float, fair_share: float, size: float, quality: float, user: float, department: float) -> int:
    """The sum in this order and no other: a priority must not depend on where it is computed."""
    return math.floor(age + fair_share + size + quality + user + department)


class Fair(NamedTuple):
    """A user's standing: parts of all usage and of all shares, and the factor that follows."""

    used: float
    share: float
    factor: float


def order_below(policy: BatchPolicy) -> str:
    """The order that decides which units start: `policy.order` itself, or the one below it."""
    return BELOW[policy.multi_factor.backfill] if policy.order == NAME else policy.order


def moment(at: float, policy: BatchPolicy) -> float:
    """The last moment not after `at`."""
    period_s = policy.multi_factor.period_s
    return math.floor(at / period_s) * period_s


def fair(settings: MultiFactor, usage: Mapping[str, float], members: Iterable[str]) -> dict[str, Fair]:
    """Rule 2, of all members.  `usage`: core-seconds by user, decayed to one time; `members`: who is configured."""
    names = sorted({**dict.fromkeys(usage), **settings.shares, **dict.fromkeys(members)})
    shares = {name: settings.shares.get(name, settings.share_default) for name in names}
    all_usage, all_shares = math.fsum(usage.values()), math.fsum(shares.values())
    found = {}
    for name in names:
        used = round(usage.get(name, 0.0) / all_usage, DIGITS) if all_usage > 0.0 else 0.0
        share = shares[name] / all_shares if all_shares > 0.0 else 0.0
        found[name] = Fair(used, share, 2.0 ** -(used / share / settings.damping) if share > 0.0 else 0.0)
    return found


def department_factor(config: CloudConfig, name: str) -> float:
    """Rule 6."""
    weights = {each.name: each.weight for each in config.departments if each.kind == "batch"}
    return weights[name] / max(weights.values()) if name in weights else 0.0


def points(
    settings: MultiFactor,
    age_s: float,
    fair_share: float,
    cores: int,
    priority: int,
    user: str = "",
    department: float = 0.0,
) -> Points:
    """`fair_share`: the user's factor; `cores`: on all hosts together; `priority`: the job's and its quality's;
    `department`: its factor."""
    return Points(
        settings.weight_age * min(1.0, max(0.0, age_s) / settings.age_full_s),
        settings.weight_fair_share * fair_share,
        settings.weight_size * min(1.0, cores / settings.size_full_cores),
        settings.weight_quality * max(-1.0, min(1.0, priority / settings.priority_full)),
        settings.weight_user * settings.users.get(user, 0.0),
        settings.weight_department * department,
    )
