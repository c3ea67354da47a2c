"""Why: every decision carries one `Reason`, an enum with parameters.  Sentences are rendered at the edge, never stored.

There is no "unknown" here: a decision whose reason cannot be named is a bug.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class Code(StrEnum):
    # why a host moved
    WEB_DEMAND = "web_demand"  # a web department wants more hosts than it holds
    WEB_SHARE = "web_share"  # a web department has its part of what is short; this one keeps its own
    IDLE_TO_BATCH = "idle_to_batch"  # nobody with precedence wants it: batch gets what is idle
    GUARANTEE = "guarantee"  # the department's guaranteed minimum
    NOTICE_EXPIRED = "notice_expired"  # the department was given notice and still held more than its quota
    NOTICE = "notice"  # the department gives a host back because its quota is below what it holds
    NOT_NEEDED = "not_needed"  # the department gives back a host that it has no use for
    BATCH_SHARE = "batch_share"  # an idle host moves to another batch department with unmet demand
    DEPARTMENT_REMOVED = "department_removed"
    CORDONED = "cordoned"
    WINDOW = "window"  # a department's guarantee or maximum is another one at these hours
    LENDING = "lending"  # a lender has its own hosts back, as its contract says
    # why a unit was placed
    FIRST_FIT = "first_fit"
    HEAD_OF_QUEUE = "head_of_queue"
    BACKFILL = "backfill"  # it delays nobody for whom room is kept
    SHORTEST_FIRST = "shortest_first"
    ELECTED = "elected"  # its service's turn, within its share
    BORROWS = "borrows"  # short, above its service's share: nobody within one could start
    BEST_EFFORT = "best_effort"  # on what production leaves
    BY_POLICY = (
        "by_policy"  # a plug-in's own reason, for whatever it decides: `policy` is its name, the rest is what it says
    )
    RESUMES = "resumes"  # best-effort that had made way goes on
    MIGRATES = "migrates"  # its host had to be returned, and there was room on another one
    BALANCED = "balanced"  # its host was crowded, or was to be emptied; it goes on elsewhere (also why it was closed)
    LEASE_STARTS = "lease_starts"  # its time slot has begun
    SCALE_UP = "scale_up"
    ROLLING = "rolling"  # a rolling update (also why an instance drains)
    REPLACEMENT = "replacement"
    LAST_FAILED = "last_failed"  # how the last instance failed that did
    # why an attempt was closed
    RECLAIMED = "reclaimed"  # victim: its host had to be returned
    MADE_WAY = "made_way"  # best-effort: production, or a lease's time slot, needed its room
    HOST_TAKEN = "host_taken"  # its host was seized
    HOST_DRAINED = "host_drained"  # a person drained its host, and the deadline has passed
    HOST_LOST = "host_lost"
    VM_ENDED = "vm_ended"  # its VM ended without a report
    NOT_SAVED = "not_saved"  # what it had saved, or a part of it, was lost before it could go on
    WALLTIME = "walltime"
    LEASE_ENDED = "lease_ended"  # its time is over, as agreed
    CANCELLED = "cancelled"
    SCALE_DOWN = "scale_down"
    DRAINED = "drained"  # its last session has ended
    DRAIN_TIMEOUT = "drain_timeout"  # sessions were still open after `drain_s`
    NOT_READY = "not_ready"  # its health check has failed for too long
    UNREACHABLE = "unreachable"  # the same in old journals
    PROGRAM_ENDED = "program_ended"  # an instance's program ended by itself, as its guest has said
    BOOT_TIMEOUT = "boot_timeout"
    # why demand is what it is
    UTILISATION_HIGH = "utilisation_high"
    UTILISATION_LOW = "utilisation_low"
    UTILISATION_STEADY = "utilisation_steady"
    CLAIMED = "claimed"  # a load balancer asks for so many, by its own word
    RELEASE_DEPLOYED = "release_deployed"  # a person asked for it
    RELEASE_COMPLETE = "release_complete"
    ROLL_STUCK = "roll_stuck"  # a rolling update waits for a host, and nothing else would help it on
    RELEASE_FAILED = "release_failed"  # none of its instances came into service
    RELEASE_ERRORS = "release_errors"  # its instances answer more requests with 5xx than those of the one before
    REQUESTS_REFUSED = "requests_refused"  # the load balancer turns them away, since no instance has room
    REQUESTS_FAIL = "requests_fail"  # many are answered with 5xx
    SIGNAL_MISSING = "signal_missing"
    SIGNALS_DROPPED = "signals_dropped"  # whose signals do not count, and why: a wrong clock, say
    REQUESTS_QUEUED = "requests_queued"  # they wait at the load balancer, for what the rule does not see
    SCALED_BY_PERSON = "scaled_by_person"
    AT_MINIMUM = "at_minimum"
    AT_MAXIMUM = "at_maximum"
    SCHEDULE = "schedule"  # a floor by the clock
    FORECAST = "forecast"  # a floor from the last days
    STEP_LIMIT = "step_limit"  # the load asks for more, or fewer, than a step may be
    FLAP_BUDGET = "flap_budget"  # the load asks for fewer, and the number has turned too often: the higher one is held
    ROOM_BESIDE = "room_beside"  # instances as many as before: what needs hosts beside them, or needs none any more
    QUEUE = "queue"
    # why a job waits
    WAITS_FOR_HOSTS = "waits_for_hosts"  # free capacity is short of what it needs
    HOSTS_LEFT = "hosts_left"  # hosts are on their way, and jobs there have time to save that they asked for
    SAVES = "saves"  # it was told to end, and has that time
    WAITS_BEHIND = "waits_behind"  # strict order: an earlier job goes first
    LEASE_STARTS_AT = "lease_starts_at"  # its time slot is to come
    LEASE_LATE = "lease_late"  # its time slot has begun, and there is no room for it
    LEASE_OVER = "lease_over"  # its time slot has passed without it
    LEASE_KEEPS_ROOM = "lease_keeps_room"  # there is room, and a lease will need it before the job would be away
    SHARE_FULL = "share_full"  # with it its service would have more than its share
    PRIORITY = "priority"  # what its priority is made of
    START_FAILED = "start_failed"  # attempts of it ended before they began: it is tried again later
    HELD = "held"
    DEPENDENCY = "dependency"
    DEPENDENCY_FAILED = "dependency_failed"
    ARRAY_THROTTLE = "array_throttle"
    USER_LIMIT = "user_limit"  # with it its user would be over a limit
    QUALITY_LIMIT = "quality_limit"  # … all jobs of its quality of service together would
    DEPARTMENT_LIMIT = "department_limit"  # … the department would have more cores than its maximum
    SPARED = "spared"  # best-effort is in its way that may not be ended yet
    NO_HOSTS_HELD = "no_hosts_held"  # the department holds no host at all
    TOO_LARGE_NOW = "too_large_now"  # no host known now could hold it
    # when a job starts
    RESERVED = "reserved"  # room is kept for it
    BY_WALLTIMES = "by_walltimes"  # if what runs and waits runs to its limits, and nothing comes or goes
    TOO_FAR = "too_far"  # further ahead than is looked
    # how a unit is
    RUNNING = "running"
    STARTING = "starting"
    DRAINING = "draining"
    FINISHED = "finished"


# What somebody should look at of a web department (`services.scheduler.lookahead.why_web`, rule 5).
TROUBLES: Final = (
    Code.NOT_READY,
    Code.SIGNAL_MISSING,
    Code.REQUESTS_QUEUED,
    Code.REQUESTS_REFUSED,
    Code.REQUESTS_FAIL,
    Code.ROLLING,
    Code.RELEASE_FAILED,
    Code.RELEASE_ERRORS,
    Code.SIGNALS_DROPPED,
)


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason: `code` and what is needed to tell it in a sentence (numbers and ids, no prose)."""

    code: Code
    params: dict[str, str | int | float | list[str]] = {}


def because(code: Code, **params: str | int | float | list[str]) -> Reason:
    return Reason(code=code, params=params)
