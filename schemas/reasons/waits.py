"""Why a job waits, when it starts, and how one is that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from schemas.dimensions import DIMENSIONS
from schemas.reasons.base import AnyReason
from schemas.times import TimeText
from schemas.units import count
from schemas.words import (
    are,
    behind_reservations,
    claim_waits,
    contracts,
    counted,
    did_not_start,
    exact,
    fits_in,
    general,
    goes_first,
    iso,
    known,
    lenders,
    names,
    refused_a_vm,
    saved_work,
    shares,
    span,
    web_may_claim,
)

_AMOUNTS: Final[dict[str, Callable[[int], str]]] = {  # of limits
    "jobs_running_max": lambda number: count(number, "running job"),
    **{dimension.limit: dimension.amount for dimension in DIMENSIONS if dimension.limit},
    "hosts_max": lambda number: count(number, "host"),
}
_OF_DEPARTMENT: Final = {dimension.limit: dimension.department_limit for dimension in DIMENSIONS if dimension.limit}


class Needs(AnyReason, frozen=True, kw_only=True):
    """What a job needs.  `cores`: cores on each host; `memory_mb`: memory on each host, in MiB; null: it did not ask for any;
    `gpus`: GPUs on each host."""

    nodes: int | None = None
    cores: int | None = None
    memory_mb: int | None = None
    gpus: int = 0
    exclusive: bool = False
    constraint: str = ""

    def need(self) -> str:
        """`2 hosts with 4 cores and 512 MiB each`, `1 whole, empty host with 1 core`."""
        nodes = self.nodes or 1
        return f"{self.nodes_of(nodes)} with {self.part(nodes)}"

    def nodes_of(self, nodes: int) -> str:
        return count(nodes, "whole, empty host" if self.exclusive else "host")

    def part(self, nodes: int) -> str:
        """What a host has to have; memory that the job did not ask for is not mentioned."""
        numbers = ((dimension, getattr(self, dimension.field)) for dimension in DIMENSIONS)
        parts = [dimension.amount(number) for dimension, number in numbers if dimension.is_shown(number)]
        parts = parts if self.cores is not None else [DIMENSIONS[0].amount(0), *parts]
        size = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
        labels = f", {self.constraint}," if self.constraint else ""
        return f"{size}{labels}{' each' if nodes > 1 else ''}".rstrip(",")


class Elsewhere(Needs, frozen=True, kw_only=True):
    """The hosts of its department, and where the others are.

    `ahead`: jobs that go first; `held`: hosts that its department holds; `held_by_others`: hosts that other departments hold;
    `free_hosts`: hosts that are free; `draining`: hosts that drain; `lost`: hosts that are lost; `cordoned`: hosts that are
    cordoned; `quarantined`: hosts in quarantine; `on_notice`: hosts that have to be returned; `web`: web departments that
    hold more than their minimum; `held_by_web`: hosts that web departments hold beyond their minimum; `by_hand`: web
    departments whose number of instances a person has set.

    `contracts`: lending contracts that keep hosts from it, each as `lender:hosts:most:closed`; `can_have`: hosts that the
    department can have at most while others keep their own; `kept_by`: departments that keep theirs; `at_most`: hosts that
    the department may have now by its maximum, hours and contracts; `changes_in_s`: seconds until maximum, hours or contracts
    change."""

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

    def elsewhere(self) -> str:
        """Where the hosts are that it cannot have now."""
        places = (
            (self.held_by_others, "held by other departments"),
            (self.draining, "draining"),
            (self.lost, "lost"),
            (self.cordoned, "cordoned"),
            (self.quarantined, "in quarantine"),
            (self.on_notice, "on notice"),
            (self.free_hosts, "free"),
        )
        words = [f"{number} {what}" for number, what in places if number]
        return f" (elsewhere: {', '.join(words)})" if words else ""

    def agreed(self) -> str:
        """What windows and contracts allow, if it is that."""
        withheld = "".join(f"; {text}" for text in contracts(self.contracts))
        if self.can_have is not None:
            keeps = f"while {names(self.kept_by)} keeps what is its own by guarantee or minimum"
            return f"; it can have {count(self.can_have, 'host')} at most {keeps}{withheld}"
        if self.at_most is None:
            return withheld
        change = "" if self.changes_in_s is None else f", which change in {span(self.changes_in_s)}"
        most = f"; the department may have at most {count(self.at_most, 'host')} now"
        return f"{most}, by its maximum, hours and contracts{change}{withheld}"

    def room_wanted(self, free: int, short: int) -> str:
        """What would give it free capacity, and when that comes."""
        if self.can_have is not None:
            nodes = f"at most {count(self.can_have, 'node')}"
            return f"{nodes}; or a lower guarantee or minimum of {names(self.kept_by)}"
        more = "" if short == (self.nodes or 0) else " more"
        whole = "whole, empty " if self.exclusive else ""
        has = f" ({free} {'has' if free == 1 else 'have'} it now)" if free else ""
        ways = ["a running job of the department ends"] if self.held else []
        if self.held_by_web:
            ways.append(self._web_falls(self.held_by_web))
        if self.contracts:
            ways.append(f"a contract lends more of {', '.join(lenders(self.contracts))} (phoenix lending)")
        when = f"; it comes when {', or when '.join(ways)}" if ways else ""
        return f"free capacity on {short}{more} {whole}{'host' if short == 1 else 'hosts'} with {self.part(short)}{has}{when}"

    def _web_falls(self, hosts: int) -> str:
        by_load = [name for name in self.web if name not in self.by_hand]
        autos = " or ".join(f"`phoenix scale {name} --auto`" for name in self.by_hand)
        ways = [f"the load of {', '.join(by_load)} falls"] if by_load else []
        if self.by_hand:
            again = f"counts again ({autos}: a person set the number), and falls"
            ways.append(f"the load of {names(self.by_hand)} {again}")
        return f"{', or '.join(ways)}: it gives its {count(hosts, 'host')} back then"


class WaitsForHosts(Elsewhere, frozen=True, kw_only=True, tag="waits_for_hosts"):
    """Too little is free for what it needs.  Of a web department: it wants more hosts than it holds.

    `free`: held hosts that have room for it; `short`: hosts with room that are missing; `way`: held hosts on which
    best-effort jobs would make way; `meeting`: held hosts that satisfy its constraint; `reserved_in_s`: seconds until its
    reservation; `backfill`: the order reserves for all jobs; `reservations_max`: reservations that are kept at a time, and it
    is behind the last.

    Of a web department: `demand`: hosts that it wants; `kept`: hosts that are kept from it by guarantees; `usable`: hosts
    that can be used in all; `shares`: the hosts that others may have, each as `department:hosts:rule:weight`; `weight`: its
    own weight."""

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

    def sentence(self) -> str:
        if self.demand is not None:  # of a web department
            return f"the department wants {count(self.demand, 'host')} and holds {known(self.held)}{self._shares()}"
        if self.nodes is None:
            return super().sentence()
        if self.short == 0:
            back = (
                f", but the department has to give {counted(self.on_notice, 'host')} back: it starts when that is done"
            )
            return f"there is room for it ({self.need()}){back if self.on_notice else ': it starts with the next decision'}"
        return f"it needs {self.need()}; {self._room()}{self._kept()}{self.agreed()}{goes_first(self.ahead)}{self.elsewhere()}"

    def _room(self) -> str:
        held = f"the {counted(self.held, 'host')} that the department holds"
        none = f"none of {held} satisfies {self.constraint}"
        free = f"{self.free or 0} of {held} {'has' if self.free == 1 else 'have'} free capacity for it"
        room = none if self.constraint and not self.meeting else free
        way = f", and {self.way or 0} would have it if best-effort jobs were preempted"
        return f"{room}{way}" if self.way else room

    def _kept(self) -> str:
        sure = "as things are" if self.backfill else "at the latest"
        kept = f"; room is kept for it, so it starts in {span(self.reserved_in_s)} {sure}"
        return f"{'' if self.reserved_in_s is None else kept}{behind_reservations(self.reservations_max)}"

    def _shares(self) -> str:
        """`: …`, or nothing if it is something else that is short."""
        kept = None if self.kept is None else (self.kept, known(self.usable), names(self.kept_by))
        texts = [text.split(":") for text in self.shares]
        others = [(t[0], t[1], t[2], t[3]) for t in texts if len(t) == 4]
        if kept is None and not others and self.usable is not None:
            held = self.held or 0
            if held >= self.usable:
                return f": it has all {self.usable} that can be used"
            return f": {self.usable - held} of the {self.usable} hosts that can be used are not its own yet"
        weight = 1.0 if self.weight is None else self.weight
        told = shares(kept, others, f"{weight:g}", contracts(self.contracts))
        return f": {told}" if told else ""

    def remedy(self) -> str:
        if self.demand is not None:
            if self.usable is not None and self.kept is None and (self.held or 0) >= self.usable:
                apart = "hosts that are set apart or lost in use again (phoenix hosts)"
                return f"more hosts, {apart}, or a lower maximum of instances"
            if self.contracts:
                lent = f"another contract with {', '.join(lenders(self.contracts))} (phoenix lending)"
                return f"{lent}, or what others give back"
        if self.nodes is None or self.short == 0:
            return self.REMEDY
        return self.room_wanted(self.free or 0, self.short or self.nodes)


class NoHostsHeld(Elsewhere, frozen=True, kw_only=True, tag="no_hosts_held"):
    """Its department holds no host at all."""

    COLUMN = "no hosts"
    SENTENCE = "the department holds no host at all"
    REMEDY = "it starts when a host comes back; `phoenix departments` shows who holds them"

    def sentence(self) -> str:
        return super().sentence() if self.nodes is None else f"{self.SENTENCE}{self.agreed()}{self.elsewhere()}"

    def remedy(self) -> str:
        return self.REMEDY if self.nodes is None else self.room_wanted(0, self.nodes)


class TooLargeNow(Needs, frozen=True, kw_only=True, tag="too_large_now"):
    """No host known now could hold it; `able`: hosts that could hold a part of it."""

    COLUMN = "too large now"
    SENTENCE = "no host that is known now could hold it"
    REMEDY = "bring larger hosts, or submit it again with fewer cores or less memory a node"

    able: int | None = None

    def sentence(self) -> str:
        if self.able is None:
            return super().sentence()
        return f"it needs {self.need()}, and of all hosts known now {self.able} could hold its part"

    def remedy(self) -> str:
        hosts = f"bring hosts that satisfy {self.constraint}, or label some (`onehost update`)"
        return f"{hosts}, or submit it again without it" if self.constraint else self.REMEDY


class WaitsBehind(AnyReason, frozen=True, kw_only=True, tag="waits_behind"):
    """There is room for it, but earlier jobs go first.  `job`: the first job that goes before it; `ahead`: how many go first;
    `gap_s`: seconds until room is kept for that job; `reserved_in_s`: seconds until its own reservation; `backfill`: the
    order reserves for all jobs; `reservations_max`: reservations that are kept at a time, and it is behind the last; `way`:
    best-effort jobs would make way for it."""

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

    def column(self) -> str:
        return f"{self.COLUMN} {self.job}" if self.job else self.COLUMN

    def sentence(self) -> str:
        if not self.job:
            return super().sentence()
        room = "best-effort would make way for it" if self.way else "there is room for it"
        if self.gap_s is not None:
            return f"{room}, but it would still be there in {span(self.gap_s)}, when room is kept for job {self.job}"
        if self.reserved_in_s is not None:
            when = f"room is kept for it, so it starts in {span(self.reserved_in_s)} as things are"
            return f"{room}, but it would delay others, job {self.job} first of all; {when}"
        if self.backfill:
            planned = f"it must not delay jobs for which room is reserved, job {self.job} first of all"
            return f"{room}, but {planned}{behind_reservations(self.reservations_max)}{goes_first(self.ahead)}"
        return f"job {self.job} goes first: the queue is served strictly in order"

    def remedy(self) -> str:
        if self.reserved_in_s is not None or self.backfill:
            return "a shorter time limit may let it start sooner"
        return fits_in(self.gap_s) or self.REMEDY


class LeaseStartsAt(AnyReason, frozen=True, kw_only=True, tag="lease_starts_at"):
    """Its time slot has not yet come.  `order`: the queue order, if that keeps no time slots; `hosts`: hosts that are sure
    for it; `victims`: jobs that will make way for it."""

    COLUMN = "at its time"
    SENTENCE = "its time slot is to come"

    starts_at: TimeText | None = None
    ends_at: TimeText | None = None
    in_s: float | None = None
    order: str = ""
    hosts: int | None = None
    nodes: int | None = None
    victims: list[str] = []

    def sentence(self) -> str:
        if self.starts_at is None:
            return super().sentence()
        slot = f"its time is from {iso(self.starts_at)} to {iso(self.ends_at)}"
        if self.in_s is None:
            return slot
        if self.order:
            keeps = f"the order is now {self.order}, which keeps no time for it"
            return f"{slot}, but {keeps}: it starts then if there is room"
        way = f"; {names(self.victims)} will make way for it" if self.victims else ""
        missing = 0 if self.hosts is None else (self.nodes or 0) - self.hosts
        lack = f"; as things are, {count(missing, 'host')} will be missing" if missing > 0 else ""
        return f"{slot}: it starts in {span(self.in_s)}{way}{lack}"


class LeaseLate(AnyReason, frozen=True, kw_only=True, tag="lease_late"):
    """Its time slot has begun, and there is no room for it."""

    COLUMN = "late"
    SENTENCE = "its time slot has begun, and there is no room for it"

    late_s: float | None = None
    ends_at: TimeText | None = None

    def sentence(self) -> str:
        if self.late_s is None:
            return super().sentence()
        return f"it is {span(self.late_s)} late for want of room; its end stays {iso(self.ends_at)}"


class LeaseOver(AnyReason, frozen=True, kw_only=True, tag="lease_over"):
    """Its time slot has passed without it."""

    COLUMN = "missed"
    SENTENCE = "its time slot has passed without it"
    REMEDY = "cancel it, and ask for another time"

    starts_at: TimeText | None = None
    ends_at: TimeText | None = None

    def sentence(self) -> str:
        if self.ends_at is None:
            return super().sentence()
        return f"its time, from {iso(self.starts_at)} to {iso(self.ends_at)}, has passed without it"


class LeaseKeepsRoom(AnyReason, frozen=True, kw_only=True, tag="lease_keeps_room"):
    """There is room for it, but a lease will need it before the job would have ended.  `job`: the lease's job; `gap_s`:
    seconds until the lease needs the room; `starts_at`: when the lease starts."""

    COLUMN = "lease to come"
    SENTENCE = "there is room for it, and a lease will need that before it would be away"
    REMEDY = "a shorter time limit would let it start"

    job: str = ""
    gap_s: float | None = None
    starts_at: TimeText | None = None

    def sentence(self) -> str:
        if self.gap_s is None:
            return super().sentence()
        needs = f"then lease {known(self.job)} needs it, at {iso(self.starts_at)}"
        return f"there is room for it for {span(self.gap_s)}; {needs}"

    def remedy(self) -> str:
        return fits_in(self.gap_s) or self.REMEDY


class ShareFull(AnyReason, frozen=True, kw_only=True, tag="share_full"):
    """With it its service would have more than its share.  `with_it_pct`: what the service would use with it, in percent."""

    COLUMN = "share full"
    SENTENCE = "with it its service would have more than its share of the department's hosts"
    REMEDY = "it starts when jobs of its service end; a short one (--short, or a --time within short_s) may borrow"

    service: str = ""
    share_pct: float | None = None
    used_pct: float | None = None
    with_it_pct: float | None = None

    def sentence(self) -> str:
        if self.share_pct is None:
            return super().sentence()
        service = f"service {self.service}" if self.service else "no service"
        used = f"{general(self.used_pct)} % is used, and with it that would be {general(self.with_it_pct)} %"
        return f"it is of {service}, whose share is {self.share_pct:g} % of what the department holds: {used}"


class Priority(AnyReason, frozen=True, kw_only=True, tag="priority"):
    """The points that its priority is the sum of.  `priority`: the sum of the points; `age`: points for the time waited;
    `fair_share`: points for having used less than is due; `size`: points for its size; `quality`: points for its own priority
    and its quality of service; `user_points`: points for its user; `department`: points for its department; `used`: what its
    user has used, as a part of all, from 0 to 1; `share`: what its user is due, as a part of all, from 0 to 1."""

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

    def sentence(self) -> str:
        if self.fair_share is None:
            return super().sentence()
        due = ""
        if self.share is not None:
            due = f" ({known(self.user)} has used {self.used or 0:.1%} and is due {self.share:.1%})"
        parts = f"{known(self.age)} for its age, {self.fair_share} for fair share{due}, {known(self.size)} for its size"
        more = f", {self.user_points} for its user" if self.user_points else ""
        more += f", {self.department} for its department, as of all in it" if self.department else ""
        quality = f"{known(self.quality)} for quality of service"
        return f"its priority is {known(self.priority)} points: {parts}, {quality}{more}"


class StartFailed(AnyReason, frozen=True, kw_only=True, tag="start_failed"):
    """Its attempts ended before they began: it is tried again later.  `failed`: starts in a row that failed; `hosts`: names
    of the hosts where starts failed; `in_s`: seconds until the next attempt."""

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

    def sentence(self) -> str:
        """Of a unit that waits until it is started again."""
        if self.in_s is None:
            return super().sentence()
        starts = "its last start" if self.failed == 1 else f"its last {self.failed or 0} starts"
        why = did_not_start(self.vm, self.refused, self.refused_why)
        return f"{starts} failed, on {names(self.hosts)}: {why}; it is tried again in {span(self.in_s)}"


class Held(AnyReason, frozen=True, kw_only=True, tag="held"):
    """A person holds it; or starts have failed too often.  `failed`: starts in a row that failed; null: a person holds it;
    `hosts`: names of the hosts where starts failed."""

    COLUMN = "held"
    SENTENCE = "it is held"
    REMEDY = "phoenix release JOB"

    unit: str = ""
    failed: int | None = None
    hosts: list[str] = []
    vm: str = ""
    refused: str = ""
    refused_why: str = ""

    def column(self) -> str:
        return self.COLUMN if self.failed is None else "starts failed, held"

    def sentence(self) -> str:
        if self.failed is None:
            return self.SENTENCE
        why = did_not_start(self.vm, self.refused, self.refused_why)
        times = f"{count(self.failed, 'start')} in a row failed on hosts where other jobs start"
        return f"it is held: {times}, the last because {why}"


class Dependency(AnyReason, frozen=True, kw_only=True, tag="dependency"):
    """It waits for another job.  `condition`: the condition on that job; `job`: that job; `jobs`: those jobs, if there are
    several; `held`: that job is held."""

    COLUMN = "dependency"
    SENTENCE = "it waits for another job"
    REMEDY = "it starts when that job has ended as asked"

    condition: str = ""
    job: str = ""
    jobs: list[str] = []
    held: bool = False

    def column(self) -> str:
        return f"{self.COLUMN} {self.job or names(self.jobs)}".rstrip()

    def sentence(self) -> str:
        jobs = names(self.jobs) or self.job
        held = ", which is held" if self.held else ""
        return f"it waits for {self.condition or 'the end'} of job {jobs}{held}" if jobs else super().sentence()

    def remedy(self) -> str:
        if self.held:
            return f"phoenix release {known(self.job)}"
        return "it starts when that job has begun" if self.condition == "after" else self.REMEDY


class DependencyFailed(AnyReason, frozen=True, kw_only=True, tag="dependency_failed"):
    """A job that it depends on did not end as required: it can never start.  `condition`: the condition on that job; `job`:
    that job."""

    COLUMN = "dependency failed"
    SENTENCE = "a job that it depends on did not end as asked: it can never start"
    REMEDY = "cancel it, and submit it again without that dependency"

    condition: str = ""
    job: str = ""

    def sentence(self) -> str:
        if not self.job:
            return super().sentence()
        return f"job {self.job} did not end as {known(self.condition)} asks: it can never start"


class ArrayThrottle(AnyReason, frozen=True, kw_only=True, tag="array_throttle"):
    """Its array runs as many elements at once as it may.  `limit`: elements that may run at once; `running`: elements that
    run."""

    COLUMN = "array throttle"
    SENTENCE = "its array runs as many elements at once as it may"
    REMEDY = "it starts when one of them ends"

    limit: int | None = None
    running: int | None = None

    def sentence(self) -> str:
        if self.running is None:
            return super().sentence()
        return f"its array runs {count(self.running, 'element')} at once, as many as it may"


class Limited(AnyReason, frozen=True, kw_only=True):
    """It would exceed a limit.  `limit`: name of the limit in the configuration; `most`: the limit; `used`: how much of it is
    used; `needs`: how much the job needs."""

    limit: str = ""
    most: int | None = None
    used: int | None = None
    needs: int | None = None

    def exceeds(self, who: str, *, of_department: bool = False) -> str:
        """What `who` may have at once, and has; empty if the limit is none of those known here."""
        amount = _AMOUNTS.get(self.limit)
        if self.used is None or amount is None:
            return ""
        name = _OF_DEPARTMENT.get(self.limit, self.limit) if of_department else self.limit
        has = f"{who} may have {amount(self.most or 0)} at once ({name}) and has {self.used}"
        return f"{has}; it needs {self.needs or 0} more"


class UserLimit(Limited, frozen=True, kw_only=True, tag="user_limit"):
    """With it its user would exceed a limit.  `quality`: the quality of service within which the limit holds; empty: the
    department."""

    COLUMN = "user limit"
    SENTENCE = "with it its user would be over a limit"
    REMEDY = "it starts when jobs of its user end; it delays no other user's jobs"

    user: str = ""
    quality: str = ""

    def column(self) -> str:
        return f"{self.COLUMN} in {self.quality}" if self.quality else self.COLUMN

    def sentence(self) -> str:
        who = f"user {self.user} in quality {self.quality}" if self.quality else f"user {known(self.user)}"
        return self.exceeds(who) or super().sentence()


class QualityLimit(Limited, frozen=True, kw_only=True, tag="quality_limit"):
    """With it all jobs of its quality of service together would exceed a limit."""

    COLUMN = "quality limit"
    SENTENCE = "with it all jobs of its quality of service together would be over a limit"
    REMEDY = "it starts when some of them end; another --qos may start it sooner"

    quality: str = ""

    def sentence(self) -> str:
        return self.exceeds(f"quality {known(self.quality)}, all users together,") or super().sentence()


class DepartmentLimit(Limited, frozen=True, kw_only=True, tag="department_limit"):
    """With it the department would exceed its maximum of cores or GPUs."""

    COLUMN = "department limit"
    SENTENCE = "with it the department would have more cores than its maximum_cores"
    REMEDY = "it starts when jobs of the department end"

    def sentence(self) -> str:
        return self.exceeds("the department", of_department=True) or super().sentence()


class Protected(AnyReason, frozen=True, kw_only=True, tag="protected"):
    """Best-effort jobs are in its way that may not be ended yet.  `guarded`: attempts that may not be ended yet;
    `hour_spent`: as many attempts as may be were ended in this hour; `until_s`: seconds until the next one may be ended."""

    COLUMN = "protected"
    SENTENCE = "best-effort is in its way that may not be ended yet"
    REMEDY = "it starts when they may be ended, or end"

    guarded: int | None = None
    hour_spent: bool = False
    until_s: float | None = None

    def sentence(self) -> str:
        if self.guarded is None:
            return super().sentence()
        who = f"{count(self.guarded, 'attempt')} may not be ended for it yet" if self.guarded else ""
        hour = "as many as may be were ended for jobs in this hour" if self.hour_spent else ""
        when = "" if self.until_s is None else f"the next may in {span(self.until_s)}"
        return "; ".join(["it would fit if best-effort made way", *filter(None, (who, hour, when))])


class Saves(AnyReason, frozen=True, kw_only=True, tag="saves"):
    """It received SIGTERM, and has time to save.  `on`: names of the hosts where it does; `in_s`: seconds until it is ended
    at the latest."""

    COLUMN = "saves"
    SENTENCE = "it received SIGTERM, and has time to save"

    on: list[str] = []
    in_s: float | None = None
    grace_s: float | None = None

    def sentence(self) -> str:
        if self.in_s is None:
            return super().sentence()
        left = f"another {span(self.in_s)} at most to save (--grace {exact(self.grace_s)})"
        return f"it received SIGTERM on {names(self.on)}, and has {left}"


class Reserved(AnyReason, frozen=True, kw_only=True, tag="reserved"):
    """Room is kept for it."""

    COLUMN = "reserved"
    SENTENCE = "room is kept for it"

    claimable: int | None = None

    def sentence(self) -> str:
        return f"{self.SENTENCE}{web_may_claim(self.claimable)}"


class ByWalltimes(AnyReason, frozen=True, kw_only=True, tag="by_walltimes"):
    """Its start is computed from time limits: jobs may end earlier, and others may come first.  `ends`: attempts that end
    before it starts; `after`: jobs that it depends on."""

    COLUMN = "by time limits"
    SENTENCE = "it starts then if all that runs and goes first runs to its time limit"

    ends: int | None = None
    after: list[str] = []
    claimable: int | None = None

    def sentence(self) -> str:
        found = []
        if self.ends == 1:
            found.append("the attempt ahead of it runs to its time limit")
        elif self.ends:
            found.append(f"the {self.ends} attempts ahead of it run to their time limits")
        if len(self.after) == 1:
            found.append(f"job {self.after[0]} ends as it should")
        elif self.after:
            found.append(f"jobs {names(self.after)} end as they should")
        found.append("nothing comes that goes first")
        return f"that holds if {', '.join(found)}, and no host is taken away{web_may_claim(self.claimable)}"


class TooFar(AnyReason, frozen=True, kw_only=True, tag="too_far"):
    """Its start is further ahead than is computed.  `ends`: attempts that were considered; `ahead_s`: how far ahead was
    computed, in seconds."""

    COLUMN = "too far ahead"
    SENTENCE = "more attempts have to end before it than the forecast covers"

    ends: int | None = None
    ahead_s: float | None = None

    def sentence(self) -> str:
        if self.ahead_s is None:
            return super().sentence()
        end = f"{counted(self.ends, 'attempt')} end before it, in {span(self.ahead_s)} by their time limits"
        return f"it is beyond the forecast: {end}"


class Running(AnyReason, frozen=True, kw_only=True, tag="running"):
    """A job runs; or, of a web department, instances serve.  `seconds`: how long the job has run; `claim_waits_s`: of a job
    with a grace time of its own, how long a department that claims one of its hosts may have to wait, in seconds."""

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

    def sentence(self) -> str:
        if self.hosts and self.walltime_s is not None:
            left = f"{span(self.seconds or 0)} of at most {span(self.walltime_s)}"
            waits = claim_waits(self.claim_waits_s)
            safe = saved_work(self.safe_s, self.percent, self.checkpoint_ago_s)
            return f"it runs on {names(self.hosts)} for {left}{safe}{waits and '; '}{waits}"
        if self.target is None:
            return super().sentence()
        serve = "serves" if self.instances == 1 else "serve"
        return f"{self.instances or 0} of {count(self.target, 'instance')} {serve}"


class Starting(AnyReason, frozen=True, kw_only=True, tag="starting"):
    """A job's VMs are being started; or, of a web department, instances are.  `vms_started`: VMs that run; `vms`: VMs in all;
    `paused_since`: since when starts are paused in the whole cloud; null: they are not; `paused_why`: why they
    are paused, in OpenNebula's words; `instances`: instances that are being started; `answer`: the last answer of the first
    one's health check."""

    COLUMN = "starting"
    SENTENCE = "its VMs are being started"
    REMEDY = "it begins when they have booted"

    unit: str = ""
    attempt: int | None = None
    hosts: list[str] = []
    vms_started: int | None = None
    vms: int | None = None
    refused: str = ""
    refused_why: str = ""
    paused_since: TimeText | None = None
    paused_why: str = ""
    instances: int | None = None
    answer: str = ""

    def column(self) -> str:
        return self.COLUMN if self.paused_since is None else "starts paused"

    def sentence(self) -> str:
        if self.instances is not None:  # of a web department
            answer = f"; by now {self.answer}" if self.answer else ""
            return f"{count(self.instances, 'instance')} {are(self.instances)} being started{answer}"
        if not self.hosts:
            return f"{self.SENTENCE}{self._paused()}" if self.paused_since is not None else super().sentence()
        up = f"({self.vms_started or 0} of {self.vms or 0} are up)"
        again = f"; {refused_a_vm(self.refused, self.refused_why)}, and is asked again" if self.refused_why else ""
        return f"{self.SENTENCE} on {names(self.hosts)} {up}{again}{self._paused()}"

    def _paused(self) -> str:
        if self.paused_since is None:
            return ""
        since = f"{iso(self.paused_since)}, because they fail on most hosts ({known(self.paused_why)})"
        tried = "one is tried every few seconds, and the first that succeeds lets all go"
        return f"; starts are paused in the whole cloud since {since}: {tried}"

    def remedy(self) -> str:
        """Of instances whose health path answers, and not as it should."""
        if not self.answer:
            return self.REMEDY
        unit = self.unit or "INSTANCE"
        back = f"phoenix deploy {self.unit.rpartition('.')[0] or 'DEPARTMENT'} --undo"
        return f"`phoenix logs {unit}` shows what it writes; {back} goes back to what ran before"


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
