"""Why a job waits, when it starts, and how one is that runs."""

from __future__ import annotations

from typing import TypeAlias

from schemas.reasons.base import AnyReason


class Needs(AnyReason, frozen=True, kw_only=True):
    """What a job needs: hosts, and on each of them."""

    nodes: int | None = None
    cores: int | None = None
    memory_mb: int | None = None
    gpus: int = 0
    exclusive: bool = False
    constraint: str = ""


class Elsewhere(Needs, frozen=True, kw_only=True):
    """What the department holds, and where the other hosts are.  `web` hold `held_by_web` beyond their minimum (of those
    `by_hand` a person has set the number); `contracts`: what they do not lend (`sharing.withheld`); `can_have`, while `kept_by`
    keep theirs; `at_most`: what windows and contracts let it have."""

    ahead: int | None = None
    held: int | None = None
    held_by_others: int | None = None
    free_hosts: int | None = None
    draining: int | None = None
    lost: int | None = None
    cordoned: int | None = None
    quarantined: int | None = None
    on_notice: int | None = None
    web: list[str] = []
    held_by_web: int | None = None
    by_hand: list[str] = []
    contracts: list[str] = []
    can_have: int | None = None
    kept_by: list[str] = []
    at_most: int | None = None
    changes_in_s: float | None = None


class WaitsForHosts(Elsewhere, frozen=True, kw_only=True, tag="waits_for_hosts"):
    """Free capacity is short of what it needs.  Of a web department: it wants `demand` hosts, of `usable` ones in all `kept`
    are kept from it, and others have their `shares` (`sharing.shortage`)."""

    COLUMN = "waits for hosts"
    SENTENCE = "too little is free on the department's hosts for what it needs"

    free: int | None = None
    short: int | None = None
    way: int | None = None
    meeting: int | None = None
    reserved_in_s: float | None = None
    backfill: bool = False
    reservations_max: int | None = None
    demand: int | None = None
    kept: int | None = None
    usable: int | None = None
    shares: list[str] = []
    weight: float | None = None


class NoHostsHeld(Elsewhere, frozen=True, kw_only=True, tag="no_hosts_held"):
    """The department holds no host at all."""

    COLUMN = "no hosts"
    SENTENCE = "the department holds no host at all"
    REMEDY = "it starts when a host comes back; `phoenix departments` shows who holds them"


class TooLargeNow(Needs, frozen=True, kw_only=True, tag="too_large_now"):
    """No host known now could hold it; `able`: hosts that could hold a part of it."""

    COLUMN = "too large now"
    SENTENCE = "no host that is known now could hold it"
    REMEDY = "bring larger hosts, or submit it again with fewer cores or less memory a node"

    able: int | None = None


class WaitsBehind(AnyReason, frozen=True, kw_only=True, tag="waits_behind"):
    """There is room, and an earlier job goes first."""

    COLUMN = "waits behind"
    SENTENCE = "there is room for it, but others go first"
    REMEDY = 'it starts after that job; order = "first-fit" would pass it'

    job: str = ""
    ahead: int | None = None
    gap_s: float | None = None
    reserved_in_s: float | None = None
    backfill: bool = False
    reservations_max: int | None = None
    way: bool = False


class LeaseStartsAt(AnyReason, frozen=True, kw_only=True, tag="lease_starts_at"):
    """Its time slot is to come."""

    COLUMN = "at its time"
    SENTENCE = "its time slot is to come"

    starts_at: float | None = None
    ends_at: float | None = None
    in_s: float | None = None
    order: str = ""
    hosts: int | None = None
    nodes: int | None = None
    victims: list[str] = []


class LeaseLate(AnyReason, frozen=True, kw_only=True, tag="lease_late"):
    """Its time slot has begun, and there is no room for it."""

    COLUMN = "late"
    SENTENCE = "its time slot has begun, and there is no room for it"

    late_s: float | None = None
    ends_at: float | None = None


class LeaseOver(AnyReason, frozen=True, kw_only=True, tag="lease_over"):
    """Its time slot has passed without it."""

    COLUMN = "missed"
    SENTENCE = "its time slot has passed without it"
    REMEDY = "cancel it, and ask for another time"

    starts_at: float | None = None
    ends_at: float | None = None


class LeaseKeepsRoom(AnyReason, frozen=True, kw_only=True, tag="lease_keeps_room"):
    """There is room, and a lease will need it before the job would be away."""

    COLUMN = "lease to come"
    SENTENCE = "there is room for it, and a lease will need that before it would be away"
    REMEDY = "a shorter time limit would let it start"

    job: str = ""
    gap_s: float | None = None
    starts_at: float | None = None


class ShareFull(AnyReason, frozen=True, kw_only=True, tag="share_full"):
    """With it its service would have more than its share."""

    COLUMN = "share full"
    SENTENCE = "with it its service would have more than its share of the department's hosts"
    REMEDY = "it starts when jobs of its service end; a short one (--short, or a --time within short_s) may borrow"

    service: str = ""
    share_pct: float | None = None
    used_pct: float | None = None
    with_it_pct: float | None = None


class Priority(AnyReason, frozen=True, kw_only=True, tag="priority"):
    """What its priority is made of."""

    COLUMN = "priority"
    SENTENCE = "its priority is a sum of points"

    priority: int | None = None
    user: str = ""
    age: float | None = None
    fair_share: float | None = None
    size: float | None = None
    quality: float | None = None
    user_points: float | None = None
    department: float | None = None
    used: float | None = None
    share: float | None = None


class StartFailed(AnyReason, frozen=True, kw_only=True, tag="start_failed"):
    """Attempts of it ended before they began: it is tried again later."""

    COLUMN = "start failed"
    SENTENCE = "its last starts failed, and it is tried again later"
    REMEDY = "it starts as soon as a host lets it; phoenix hosts shows what is wrong with hosts"

    unit: str = ""
    failed: int | None = None
    in_s: float | None = None
    hosts: list[str] = []
    vm: str = ""
    refused: str = ""
    refused_why: str = ""


class Held(AnyReason, frozen=True, kw_only=True, tag="held"):
    """By a person; or since `failed` starts in a row ended before they began."""

    COLUMN = "held"
    SENTENCE = "it is held"
    REMEDY = "phoenix release JOB"

    unit: str = ""
    failed: int | None = None
    hosts: list[str] = []
    vm: str = ""
    refused: str = ""
    refused_why: str = ""


class Dependency(AnyReason, frozen=True, kw_only=True, tag="dependency"):
    COLUMN = "dependency"
    SENTENCE = "it waits for another job"
    REMEDY = "it starts when that job has ended as asked"

    condition: str = ""
    job: str = ""
    jobs: list[str] = []
    held: bool = False


class DependencyFailed(AnyReason, frozen=True, kw_only=True, tag="dependency_failed"):
    COLUMN = "dependency failed"
    SENTENCE = "a job that it depends on did not end as asked: it can never start"
    REMEDY = "cancel it, and submit it again without that dependency"

    condition: str = ""
    job: str = ""


class ArrayThrottle(AnyReason, frozen=True, kw_only=True, tag="array_throttle"):
    COLUMN = "array throttle"
    SENTENCE = "its array runs as many elements at once as it may"
    REMEDY = "it starts when one of them ends"

    limit: int | None = None
    running: int | None = None


class Limited(AnyReason, frozen=True, kw_only=True):
    """A limit (`domain.usage_limits`) of which `used` of `most` are used, and the job needs `needs` more."""

    limit: str = ""
    most: int | None = None
    used: int | None = None
    needs: int | None = None


class UserLimit(Limited, frozen=True, kw_only=True, tag="user_limit"):
    """With it its user would be over a limit; `quality`: within that quality of service."""

    COLUMN = "user limit"
    SENTENCE = "with it its user would be over a limit"
    REMEDY = "it starts when jobs of its user end, and keeps nobody else waiting"

    user: str = ""
    quality: str = ""


class QualityLimit(Limited, frozen=True, kw_only=True, tag="quality_limit"):
    """With it all jobs of its quality of service together would be over a limit."""

    COLUMN = "quality limit"
    SENTENCE = "with it all jobs of its quality of service together would be over a limit"
    REMEDY = "it starts when some of them end; another --qos may start it sooner"

    quality: str = ""


class DepartmentLimit(Limited, frozen=True, kw_only=True, tag="department_limit"):
    """With it the department would have more cores than its maximum."""

    COLUMN = "department limit"
    SENTENCE = "with it the department would have more cores than its maximum_cores"
    REMEDY = "it starts when jobs of the department end"


class Protected(AnyReason, frozen=True, kw_only=True, tag="protected"):
    """Best-effort is in its way that may not be ended yet: `guarded` attempts, the next one in `until_s`; or as many as may be
    were ended in this hour."""

    COLUMN = "protected"
    SENTENCE = "best-effort is in its way that may not be ended yet"
    REMEDY = "it starts when they may be ended, or end"

    guarded: int | None = None
    hour_spent: bool = False
    until_s: float | None = None


class Saves(AnyReason, frozen=True, kw_only=True, tag="saves"):
    """It was told to end, and has time to save."""

    COLUMN = "saves"
    SENTENCE = "it was told to end, and has time to save"

    on: list[str] = []
    in_s: float | None = None
    grace_s: float | None = None


class Reserved(AnyReason, frozen=True, kw_only=True, tag="reserved"):
    """Room is kept for it; web may claim `claimable` of the department's hosts before."""

    COLUMN = "reserved"
    SENTENCE = "room is kept for it"

    claimable: int | None = None


class ByWalltimes(AnyReason, frozen=True, kw_only=True, tag="by_walltimes"):
    """If what runs and waits runs to its limits (`ends` attempts before it), jobs `after` end as they should, and nothing comes
    or goes."""

    COLUMN = "by time limits"
    SENTENCE = "it starts then if all that runs and goes first runs to its time limit"

    ends: int | None = None
    after: list[str] = []
    claimable: int | None = None


class TooFar(AnyReason, frozen=True, kw_only=True, tag="too_far"):
    """Further ahead than is looked."""

    COLUMN = "too far ahead"
    SENTENCE = "more has to end before it than is looked at"

    ends: int | None = None
    ahead_s: float | None = None


class Running(AnyReason, frozen=True, kw_only=True, tag="running"):
    """A job runs; or, of a web department, `instances` of `target` serve."""

    COLUMN = "running"
    SENTENCE = "it runs"

    unit: str = ""
    attempt: int | None = None
    hosts: list[str] = []
    seconds: float | None = None
    walltime_s: float | None = None
    checkpoint_ago_s: float | None = None
    checkpoint_attempt: int | None = None
    safe_s: float | None = None
    percent: float | None = None
    claim_waits_s: float | None = None
    instances: int | None = None
    target: int | None = None


class Starting(AnyReason, frozen=True, kw_only=True, tag="starting"):
    """A job's machines are being started; or, of a web department, `instances` are, and `answer` is what the first of them says
    of its health check.  `paused_since`: starts are paused in the whole cloud."""

    COLUMN = "starting"
    SENTENCE = "its machines are being started"
    REMEDY = "it begins when they have booted"

    unit: str = ""
    attempt: int | None = None
    hosts: list[str] = []
    vms_started: int | None = None
    vms: int | None = None
    refused: str = ""
    refused_why: str = ""
    paused_since: float | None = None
    paused_why: str = ""
    instances: int | None = None
    answer: str = ""


WaitReason: TypeAlias = (
    WaitsForHosts
    | NoHostsHeld
    | TooLargeNow
    | WaitsBehind
    | LeaseStartsAt
    | LeaseLate
    | LeaseOver
    | LeaseKeepsRoom
    | ShareFull
    | Priority
    | StartFailed
    | Held
    | Dependency
    | DependencyFailed
    | ArrayThrottle
    | UserLimit
    | QualityLimit
    | DepartmentLimit
    | Protected
    | Saves
    | Reserved
    | ByWalltimes
    | TooFar
    | Running
    | Starting
)
