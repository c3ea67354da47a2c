"""The policies of a simulated cloud, drawn by its seed: every order, every order of victims, whatever may be set beside them.

Rules
  1. Seeds that `DRAWN` divides have the plain configurations of `chaos.CONFIGS`; the others draw theirs.  Draws have a chance
     of their own, so what else happens to a cloud does not depend on them.
  2. The four configurations of a seed differ in all of it: a change of configuration changes orders, limits and contracts under
     jobs that were submitted before.
  3. Nothing is drawn that would keep a job from ever starting, as the door would not have let it in: limits hold the largest
     job, in `svmsched` every job may borrow, maxima are those of the largest job or more; one department is guaranteed a host,
     not both (web may have two of four); what is lent at some hours only is lent at others, too, on other terms.
  4. A job may be killed only where something drawn says so (`kills`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from schemas.config import (
    BatchLimits,
    BatchPolicy,
    Capability,
    CloudConfig,
    Department,
    Lending,
    MultiFactor,
    Quality,
    UserLimits,
    Warm,
    WebPolicy,
)
from schemas.facts import Lease
from services.domain.capabilities import ALL
from services.scheduler.core.policies import order_multi_factor
from services.scheduler.core.policies.registry import ORDERS, VICTIMS

COLD: Final[tuple[Capability, ...]] = ("suspend", "resume_elsewhere", "cold_migration")
DRAWN: Final = 2
WALLTIME_S: Final = 6.0  # of every job
GRACE_MAX_S: Final = 2.0
COMPLETES: Final = "bio"  # the department whose `on_term` is complete, but in the plainest clouds
LARGEST: Final = 4  # cores of the largest job, and twice as many as its nodes
USERS: Final = ("ann", "bob", "cid")
QUALITIES: Final = ("", "", "gold", "spare")
# Time 0 of a cloud is 13:46:40 UTC: this hour ends in the middle of its story.
HOUR: Final = "daily 13:00-13:47"
_T = TypeVar("_T")


class Draw:
    """`configs`: the first one is adopted at the start; the third one has no department `bio`."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"policies {seed}")
        self.kills = self.chance.random() < 0.2
        self.suspends = self.chance.random() < 0.5
        self.warmth = random.Random(f"warm {seed}")
        self.configs = tuple(self._config(bio=number != 2) for number in range(4))
        self.slots = random.Random(f"leases {seed}")
        self.leases = self.slots.random() < 0.5
        self.graces = random.Random(f"graces {seed}")

    def job(self) -> dict[str, Any]:
        """What else `job.submitted` says."""
        pick = self.chance.choice
        wishes = (None, None, "requeue", "suspend", "migrate", *(("kill",) if self.kills else ()))
        return {
            "user": pick(USERS),
            "priority": pick((0, 0, 5)),
            "service": pick(("", "a", "b")),
            "best_effort": pick((False, False, True)),
            "short": pick((False, True)),
            "exclusive": pick((False, False, False, True)),
            "quality": pick(QUALITIES),
            "on_reclaim": pick(wishes),
            "grace_s": self.graces.choice((None, None, 0.0, 0.5, GRACE_MAX_S)),
        }

    def lease(self, now: float) -> dict[str, Any]:
        """What makes a job a lease; nothing of most jobs.  Slots are drawn as nobody would accept them: they overlap, begin
        while a department has no host, or are over before anybody looks."""
        if not self.leases or self.slots.random() < 0.6:
            return {}
        local = self.slots.random() < 0.7
        start_at = now + self.slots.uniform(0.0, 6.0) if local else 0.0
        lease = Lease(kind="advance" if local else "best-effort", start_at=start_at)
        return {"lease": lease, "best_effort": not local, "quality": "", "array": ()}

    def _some(self, *values: _T) -> _T:
        return self.chance.choice(values)

    def _config(self, *, bio: bool) -> CloudConfig:
        names, favoured = ("bio", "hpc") if bio else ("hpc",), self._some("bio", "hpc")
        batch = [self._batch(name, guaranteed=name == favoured) for name in names]
        if not bio:  # who is alone takes all that web leaves: at rest no host is free
            batch = [msgspec.structs.replace(department, maximum=None, windows=()) for department in batch]
        return CloudConfig(
            name="test",
            departments=(*batch, self._web()),
            lending=self._lending() if bio else (),
            capabilities=self.warmth.choice((ALL, ALL, COLD)) if self.suspends else (),
        )

    def _batch(self, name: str, *, guaranteed: bool) -> Department:
        some, order = self._some, self.chance.choice([*ORDERS, order_multi_factor.NAME])
        reclaims = ("requeue", "suspend", "migrate", *(("kill",) if self.kills else ()))
        policy = BatchPolicy(
            order=order,
            victims=self.chance.choice(list(VICTIMS)),
            on_reclaim=self.chance.choice(reclaims),  # type: ignore[arg-type]
            on_term="complete" if name == COMPLETES else "stop",
            boot_timeout_s=some(4.0, 8.0),
            grace_max_s=GRACE_MAX_S,
            multi_factor=self._multi_factor(),
            services={"a": 2.0, "b": 1.0} if order == "svmsched" else {},
            short_s=WALLTIME_S,
            limits=self._limits(),
            quality=self._quality() if some(True, False) else {},
            min_run_s=some(0.0, 0.0, 0.5, 4.0),
            preemptions_max=some(0, 0, 1, 3),
            preemptions_per_hour_max=some(0, 0, 1, 3),
            warm=self._warm(),
        )
        maximum = some(None, None, LARGEST - 1)
        window = f"{HOUR} guarantee {int(guaranteed)} maximum {LARGEST - 2}"
        return Department(
            name=name,
            kind="batch",
            weight=some(1.0, 2.0),
            guarantee=some(0, 1) if guaranteed else 0,
            maximum=maximum,
            windows=some((), (), (window,)),
            maximum_cores=some(None, None, LARGEST),
            batch=policy,
        )

    def _warm(self) -> Warm:
        pick = self.warmth.choice
        return Warm(idle_s=pick((0.0, 0.5, 3.0)), share=pick(("user", "department")), vms_max=pick((1, 1000)))

    def _multi_factor(self) -> MultiFactor:
        some = self._some
        return MultiFactor(
            backfill=some("none", "first-fit", "easy", "conservative"),
            period_s=some(0.5, 2.0, 300.0),
            half_life_s=some(0.0, 5.0, 7 * 86400.0),
            age_full_s=some(3.0, 7 * 86400.0),
            weight_size=some(1000.0, -1000.0),
            weight_user=some(0.0, 500.0),
            users={"bob": 1.0},
            size_full_cores=LARGEST,
        )

    def _limits(self) -> BatchLimits:
        some = self._some
        if some(True, False):
            return BatchLimits()
        one = UserLimits(jobs_running_max=some(None, 1))
        return BatchLimits(
            jobs_running_max=some(None, 1, 2),
            cores_max=some(None, LARGEST),
            hosts_max=some(None, LARGEST // 2),
            users={"ann": one},
        )

    def _quality(self) -> dict[str, Quality]:
        together = UserLimits(jobs_running_max=self._some(None, 1), cores_max=self._some(None, LARGEST))
        return {"gold": Quality(priority=10, together=together), "spare": Quality(best_effort=True)}

    def _web(self) -> Department:
        some = self._some
        web = WebPolicy(
            rule=some("threshold", "target-tracking"),
            window_s=1.0,
            down_window_s=some(0.5, 2.0),
            up_limits=some((), ("1 in 5s",)),
            down_limits=some((), ("50% in 5s",)),
            schedule=some((), (f"{HOUR} at least 1",)),
            turns_per_hour_max=some(0, 0, 2),
            instances_min=some(1, 1, 2),
            instances_max=2,
            boot_timeout_s=8.0,
            drain_s=some(0.0, 0.5, 2.0),
            unreachable_s=some(0.0, 1.0),
        )
        return Department(name="web", kind="web", web=web)

    def _lending(self) -> tuple[Lending, ...]:
        some, found = self._some, list[Lending]()
        for lender, borrower in (("hpc", "bio"), ("bio", "hpc"), ("hpc", "web")):
            whole = Lending(
                lender=lender,
                borrower=borrower,
                notice_s=some(None, 1.0),
                grace_s=some(None, 0.1),
                deadline_s=some(None, 2.0),
                credit=some(0.0, 0.5),
            )
            hour = msgspec.structs.replace(whole, hosts=some(None, 1), deadline_s=1.0, windows=(HOUR,))
            found += some((), (), (whole,), (hour, whole))
        return tuple(found)


def with_policy(configs: Sequence[CloudConfig], policy: object) -> tuple[CloudConfig, ...]:
    """The same, with the cloud's own periods of grace."""
    return tuple(msgspec.structs.replace(config, policy=policy) for config in configs)
