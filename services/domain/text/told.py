"""Reasons whose numbers make a better sentence than a list of them would: one function a code.

Each takes the parameters (one that is missing reads as `?`) and returns the sentence, or None if the usual one serves better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.units import count, iso, span
from services.domain.text import (
    told_grace,
    told_health,
    told_held_back,
    told_releases,
    told_shares,
    told_signals,
    told_starts,
)
from services.domain.text.params import Params
from services.domain.text.told_starts import before, safe


def _need(p: Params) -> str:
    """`2 hosts with 4 cores and 512 MiB each`, `1 whole, empty host with 1 core`."""
    nodes = p.number("nodes") or 1
    return f"{_hosts(p, nodes)} with {_part(p, nodes)}"


def _hosts(p: Params, nodes: int) -> str:
    return count(nodes, "whole, empty host" if p.get("exclusive") else "host")


def _part(p: Params, nodes: int) -> str:
    """What a host has to have; memory that nobody asked for is not told."""
    parts = [count(p.number("cores"), "core")]
    parts += [f"{p['memory_mb']} MiB"] if "memory_mb" in p else []
    parts += [count(p.number("gpus"), "GPU")] if p.number("gpus") else []
    size = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    labels = f", {p['constraint']}," if p.get("constraint") else ""
    return f"{size}{labels}{' each' if nodes > 1 else ''}".rstrip(",")


def _others(p: Params) -> str:
    """Where the hosts are that it cannot have now."""
    places = (
        ("held_by_others", "held by other departments"),
        ("draining", "draining"),
        ("lost", "lost"),
        ("cordoned", "cordoned"),
        ("quarantined", "in quarantine"),
        ("on_notice", "on notice"),
        ("free_hosts", "free"),
    )
    words = [f"{p.number(key)} {what}" for key, what in places if p.number(key)]
    return f" (elsewhere: {', '.join(words)})" if words else ""


def _agreed(p: Params) -> str:
    """What windows and contracts allow, if it is that."""
    if "can_have" in p:
        most = count(p.number("can_have"), "host")
        return f"; it can have {most} at most while {p.names('kept_by')} keeps what is its own by guarantee or minimum"
    if "at_most" not in p:
        return ""
    change = f", which change in {span(p['changes_in_s'])}" if "changes_in_s" in p else ""
    most = count(p.number("at_most"), "host")
    return f"; the department may have at most {most} now, by its maximum, hours and contracts{change}"


def waits_for_hosts(p: Params) -> str | None:
    if "demand" in p:  # of a web department
        return (
            f"the department wants {count(p.number('demand'), 'host')} and holds {p['held']}{told_shares.of_reason(p)}"
        )
    if "nodes" not in p:
        return None
    if "short" in p and not p.number("short"):
        back = count(p.number("on_notice"), "host")
        notice = f", but the department has to give {back} back: it starts when that is done"
        return f"there is room for it ({_need(p)}){notice if p.number('on_notice') else ': it starts with the next decision'}"
    room = f"room for it is on {p.number('free')} of the {count(p.number('held'), 'host')} that the department holds"
    if p.get("constraint") and not p.number("meeting"):
        room = f"none of the {count(p.number('held'), 'host')} that the department holds satisfies {p['constraint']}"
    if p.number("way"):
        room += f", and best-effort would make way for it on {p.number('way')}"
    sure = "as things are" if "backfill" in p else "at the latest"
    kept = f"; room is kept for it, so it starts in {span(p['reserved_in_s'])} {sure}" if "reserved_in_s" in p else ""
    agreed = f"{_agreed(p)}{told_shares.withheld(p)}"
    return f"it needs {_need(p)}; {room}{kept}{_behind(p)}{agreed}{_ahead(p)}{_others(p)}"


def _ahead(p: Params) -> str:
    jobs = p.number("ahead")
    return f"; {count(jobs, 'job')} {'goes' if jobs == 1 else 'go'} first" if jobs else ""


def unblock_hosts(p: Params) -> str | None:
    """What would give it room; None if the usual words serve better."""
    if "demand" in p and "usable" in p and "kept" not in p and p.number("held") >= p.number("usable"):
        return (
            "more hosts, hosts that are set apart or lost in use again (phoenix hosts), or a lower maximum of instances"
        )
    if "demand" in p and told_shares.lenders(p):
        return f"another contract with {', '.join(told_shares.lenders(p))} (phoenix lending), or what others give back"
    if "nodes" not in p or ("short" in p and not p.number("short")):
        return None
    if "can_have" in p:
        return f"at most {count(p.number('can_have'), 'node')}; or a lower guarantee or minimum of {p.names('kept_by')}"
    short = p.number("short") or p.number("nodes")
    more = "" if short == p.number("nodes") else " more"
    whole = "whole, empty " if p.get("exclusive") else ""
    has = f" ({p.number('free')} {'has' if p.number('free') == 1 else 'have'} room now)" if p.number("free") else ""
    ways = ["a running job of the department ends"] if p.number("held") else []
    if p.number("held_by_web"):
        ways.append(_web_falls(p))
    if told_shares.lenders(p):
        ways.append(f"a contract lends more of {', '.join(told_shares.lenders(p))} (phoenix lending)")
    room = f"room on {short}{more} {whole}{'host' if short == 1 else 'hosts'} with {_part(p, short)}{has}"
    when = f"; it comes when {', or when '.join(ways)}" if ways else ""
    return f"{room}{when}"


def _web_falls(p: Params) -> str:
    """`by_hand`: those of `web` whose number of instances a person has set."""
    by_hand = p.get("by_hand") or []
    by_load = [name for name in p.get("web") or [] if name not in by_hand]
    autos = " or ".join(f"`phoenix scale {name} --auto`" for name in by_hand)
    ways = [f"the load of {', '.join(by_load)} falls"] if by_load else []
    if by_hand:
        ways.append(f"the load of {', '.join(by_hand)} counts again ({autos}: a person set the number), and falls")
    return f"{', or '.join(ways)}: it gives its {count(p.number('held_by_web'), 'host')} back then"


def too_large_now(p: Params) -> str | None:
    if "able" not in p:
        return None
    return f"it needs {_need(p)}, and of all hosts known now {p.number('able')} could hold its part"


def no_hosts_held(p: Params) -> str | None:
    return (
        f"the department holds no host at all{_agreed(p)}{told_shares.withheld(p)}{_others(p)}"
        if "nodes" in p
        else None
    )


def share_full(p: Params) -> str | None:
    if "share_pct" not in p:
        return None
    service = f"service {p['service']}" if p.get("service") else "no service"
    return (
        f"it is of {service}, whose share is {p['share_pct']:g} % of what the department holds: {p['used_pct']:g} % is used, "
        f"and with it that would be {p['with_it_pct']:g} %"
    )


def lease_starts(p: Params) -> str | None:
    if "ends_at" not in p:
        return None
    late = f", {p['late_s']:g} s late" if p.number("late_s") else ""
    return f"its time had begun{late}; it lasts until {iso(p['ends_at'])}"


def lease_ended(p: Params) -> str | None:
    return f"its time of {span(p['walltime_s'])} was over, as agreed" if "walltime_s" in p else None


def lease_starts_at(p: Params) -> str | None:
    if "in_s" not in p:
        return f"its time is from {iso(p['starts_at'])} to {iso(p['ends_at'])}" if "starts_at" in p else None
    way = f"; {p.names('victims')} will make way for it" if p.names("victims") else ""
    missing = p.number("nodes") - p.number("hosts") if "hosts" in p else 0
    lack = f"; as things are, {_hosts(p, missing)} will be missing" if missing > 0 else ""
    until = f"its time is from {iso(p['starts_at'])} to {iso(p['ends_at'])}"
    if "order" in p:
        return (
            f"{until}, but the order is now {p['order']}, which keeps no time for it: it starts then if there is room"
        )
    return f"{until}: it starts in {span(p['in_s'])}{way}{lack}"


def lease_late(p: Params) -> str | None:
    if "late_s" not in p:
        return None
    return f"it is {span(p['late_s'])} late for want of room; its end stays {iso(p['ends_at'])}"


def lease_over(p: Params) -> str | None:
    if "ends_at" not in p:
        return None
    return f"its time, from {iso(p['starts_at'])} to {iso(p['ends_at'])}, has passed without it"


def lease_keeps_room(p: Params) -> str | None:
    if "gap_s" not in p:
        return None
    return f"there is room for it for {span(p['gap_s'])}; then lease {p['job']} needs it, at {iso(p['starts_at'])}"


def within_share(p: Params) -> str | None:
    if "share_pct" not in p:
        return None
    return f"it was the turn of service {p['service']}, which has {p['used_pct']:g} % with it and may have {p['share_pct']:g} %"


def above_share(p: Params) -> str | None:
    if "share_pct" not in p:
        return None
    return (
        f"it is short, and nobody within a share could start: service {p['service']} has {p['used_pct']:g} % with it, above "
        f"its share of {p['share_pct']:g} %"
    )


def _behind(p: Params) -> str:
    """Of an order that keeps room for many, who is behind the last of them."""
    if "reservations_max" not in p:
        return ""
    return f"; room is kept for {p['reservations_max']} at a time (reservations_max), and it is behind them"


def waits_behind(p: Params) -> str | None:
    job = p.get("job") or p.get("behind")
    if not job:
        return None
    room = "best-effort would make way for it" if p.get("way") else "there is room for it"
    if "gap_s" in p:
        return f"{room}, but it would still be there in {span(p['gap_s'])}, when room is kept for job {job}"
    if "reserved_in_s" in p:
        when = f"room is kept for it, so it starts in {span(p['reserved_in_s'])} as things are"
        return f"{room}, but it would delay others, job {job} first of all; {when}"
    if "backfill" in p:
        return (
            f"{room}, but it may delay nobody for whom room is planned, job {job} first of all{_behind(p)}{_ahead(p)}"
        )
    return f"job {job} goes first: the queue is worked strictly in order"


def unblock_behind(p: Params) -> str | None:
    if "reserved_in_s" in p or "backfill" in p:
        return "a shorter time limit may let it start sooner"
    return f"a time limit of at most {span(p['gap_s'])} would let it start now" if p.number("gap_s") else None


def priority(p: Params) -> str | None:
    if "fair_share" not in p:
        return None
    due = f" ({p['user']} has used {float(p['used']):.1%} and is due {float(p['share']):.1%})" if "share" in p else ""
    parts = f"{p['age']} for its age, {p['fair_share']} for fair share{due}, {p['size']} for its size"
    more = f", {p['user_points']} for its user" if p.number("user_points") else ""
    more += f", {p['department']} for its department, as of all in it" if p.number("department") else ""
    return f"its priority is {p['priority']} points: {parts}, {p['quality']} for quality of service{more}"


def spared(p: Params) -> str | None:
    if "guarded" not in p:
        return None
    count_ = p.number("guarded")
    who = f"{count(count_, 'attempt')} may not be ended for it yet" if count_ else ""
    hour = "as many as may be were ended for jobs in this hour" if p.number("hour_spent") else ""
    when = [f"the next may in {span(p['until_s'])}"] if "until_s" in p else []
    return "; ".join(["it would fit if best-effort made way", *filter(None, (who, hour)), *when])


def running(p: Params) -> str | None:
    if "hosts" in p and "walltime_s" in p:
        left = f"{span(p.number('seconds'))} of at most {span(p.number('walltime_s'))}"
        waits = told_grace.cost(p)
        return f"it runs on {p.names('hosts')} for {left}{safe(p)}{waits and '; '}{waits}"
    serve = "serves" if p.number("instances") == 1 else "serve"
    return f"{p.number('instances')} of {count(p.number('target'), 'instance')} {serve}" if "target" in p else None


def finished(p: Params) -> str | None:
    since = f", at {p['ended_at']}" if "ended_at" in p else ""
    if p.get("counts"):
        return f"it is finished: {p.names('counts')}{since}"
    if p.get("end") == "ended_early":
        return f"it has completed, ended early: its script exited with 0 on SIGTERM{since}"
    code = f" with exit code {p['exit']}" if "exit" in p else ""
    return f"it is finished: {p['end']}{code}{since}" if p.get("end") else None


def scheduled(p: Params) -> str | None:
    left = f" for another {span(p['left_s'])}" if p.number("left_s") else ""
    return f"the schedule asks for at least {count(p.number('minimum'), 'instance')}{left}" if "minimum" in p else None


def foreseen(p: Params) -> str | None:
    if "minimum" not in p:
        return None
    days, margin = count(p.number("days"), "day"), f"{float(p.get('margin', 0)) * 100:.0f} %"
    least = count(p.number("minimum"), "instance")
    return f"at least {least}: the mean load at this time of {days} before, and {margin}"


def step_limit(p: Params) -> str | None:
    if "allowed" not in p:
        return None
    asks = f"a claim of {p['by']} asks for" if p.get("by") else "the load asks for"
    return f"{asks} {p['wanted']} instead of {p['instances']}, a step goes to {p['allowed']}: {p.names('limits')}"


def flap_budget(p: Params) -> str | None:
    if "budget" not in p:
        return None
    turned = f"the number turned {count(p.number('turns'), 'time')} in the last hour"
    left = f"{p['budget']} are allowed, with the way up again"
    return (
        f"the load asks for {p['wanted']}; {turned} ({left}): {p['instances']} are held for another {span(p['wait_s'])}"
    )


def web_demand(p: Params) -> str | None:
    if "departments" in p:
        several = len(p["departments"]) > 1
        return f"{p.names('departments')} {'want more hosts than they hold' if several else 'wants more hosts than it holds'}"
    if "demand" not in p:
        return f"{p['department']} wants more hosts than it holds" if "department" in p else None
    return f"{p['department']} wants {count(p.number('demand'), 'host')} and held {p['held']}"


def guarantee(p: Params) -> str | None:
    if "guarantee" not in p:
        return None
    verb = "is" if p.number("guarantee") == 1 else "are"
    return f"{count(p.number('guarantee'), 'host')} {verb} guaranteed to the department, and it held {p['held']}"


def idle_to_batch(p: Params) -> str | None:
    return f"nobody with precedence wants more, so {p['department']} gets what is idle" if "department" in p else None


def cordoned(p: Params) -> str | None:
    hosts = p.get("hosts") or ()
    if len(hosts) > 8:  # `phoenix hosts` has them all
        return f"{len(hosts)} hosts are cordoned"
    return f"{p.names('hosts')} {'is' if len(hosts) == 1 else 'are'} cordoned" if hosts else None


def host_drained(p: Params) -> str | None:
    """Of a unit that waits again, or of what ends or is given back now."""
    if "host" in p:
        return f"a person drained {p['host']}, and the deadline has passed"
    return before("its host was drained by a person, and the deadline had passed")(p)


def not_needed(p: Params) -> str | None:
    if p.get("quarantine"):
        return f"it was idle and set apart ({p['quarantine']})"
    return f"the department wants only {count(p.number('demand'), 'host')}" if "demand" in p else None


def window(p: Params) -> str | None:
    return f'at these hours {p["department"]} has "{p["window"]}"' if "window" in p else None


def lending(p: Params) -> str | None:
    if "lender" not in p:
        return None
    return f"{p['lender']} wants hosts back that it lent {p['borrower']}, on {float(p['notice_s']):g} s notice"


def notice(p: Params) -> str | None:
    if "quota" not in p:
        return None
    return f"{p['department']} held {p['held']} and may keep {p['quota']}"


def notice_expired(p: Params) -> str | None:
    return f"{p['department']} had notice, held {p['held']} and may keep {p['quota']}" if "quota" in p else None


def queue(p: Params) -> str | None:
    """Why demand is what it is, with numbers; without any, what a job does that nobody has looked at yet."""
    if not p:
        return "it is in the queue"
    if "pending" not in p:
        return None
    some = p.number("pending") or p.number("running")
    return (
        f"{count(p.number('pending'), 'job')} pending and {p.number('running')} running" if some else "no job is there"
    )


def reclaimed(p: Params) -> str | None:
    """Why its attempt ended: how many of the department's hosts go back in all, and who chose it."""
    if "hosts" not in p:
        return before("its host had to be returned")(p)
    gone = f"the department had to return {count(p.number('hosts'), 'host')}"
    chosen = f", and its order of victims ({p['victims']}) chose this job" if "victims" in p else ""
    lost = f", of which {span(p['lost_s'])} are lost" if "lost_s" in p else ""
    asked = f"; asked for was {p['asked']}, done was {p['instead']}" if "asked" in p else ""
    again = (
        f"; it had been requeued {p['requeues']} times, and {p['requeues_max']} are allowed" if "requeues" in p else ""
    )
    ran = f"; it had run for {span(p['running_s'])}{lost}" if "running_s" in p else ""
    return f"{gone}{chosen}{ran}{asked}{again}"


def balanced(p: Params) -> str | None:
    """Why it was moved, or why it is where it is now."""
    if "used_pct" in p:
        return f"{p['host']} really used {p['used_pct']:g} % of its cores, so the job moved to {p['to']} while it ran"
    return f"it moved there from {p.names('from_hosts')} while it ran" if "from_hosts" in p else None


def unblock_size(p: Params) -> str | None:
    if not p.get("constraint"):
        return None
    return (
        f"bring hosts that satisfy {p['constraint']}, or label some (`onehost update`), or submit it again without it"
    )


UNBLOCK: Final[dict[str, Callable[[Params], str | None]]] = {
    "too_large_now": unblock_size,
    "waits_for_hosts": unblock_hosts,
    "no_hosts_held": unblock_hosts,
    "waits_behind": unblock_behind,
    "dependency": told_held_back.unblock_dependency,
    "lease_keeps_room": unblock_behind,
    **told_releases.UNBLOCK,
    "not_ready": told_health.unblock_not_ready,
    "signals_dropped": told_signals.unblock_dropped,
}
TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    **told_releases.TELL,
    "priority": priority,
    "reclaimed": reclaimed,
    "balanced": balanced,
    "preempted": before("its room was needed"),
    "lease_starts": lease_starts,
    "lease_ended": lease_ended,
    "lease_starts_at": lease_starts_at,
    "lease_late": lease_late,
    "lease_over": lease_over,
    "lease_keeps_room": lease_keeps_room,
    "share_full": share_full,
    "share_turn": within_share,
    "borrows": above_share,
    "host_taken": before("its host was seized"),
    "host_drained": host_drained,
    **told_starts.TELL,
    "waits_for_hosts": waits_for_hosts,
    "too_large_now": too_large_now,
    "no_hosts_held": no_hosts_held,
    "waits_behind": waits_behind,
    "dependency": told_held_back.dependency,
    "dependency_failed": told_held_back.dependency_failed,
    "array_throttle": told_held_back.array_throttle,
    "protected": spared,
    "user_limit": told_held_back.limited,
    "quality_limit": told_held_back.limited,
    "department_limit": told_held_back.limited,
    "running": running,
    "finished": finished,
    "utilisation_high": told_signals.utilisation,
    "utilisation_low": told_signals.utilisation_low,
    "utilisation_steady": told_signals.utilisation,
    "claimed": told_signals.claimed,
    "signal_missing": told_signals.signal_missing,
    "signals_dropped": told_signals.signals_dropped,
    "requests_refused": told_signals.requests_refused,
    "requests_queued": told_signals.requests_queued,
    "schedule": scheduled,
    "forecast": foreseen,
    "step_limit": step_limit,
    "flap_budget": flap_budget,
    "web_demand": web_demand,
    "guarantee": guarantee,
    "idle_to_batch": idle_to_batch,
    "cordoned": cordoned,
    "not_needed": not_needed,
    "window": window,
    "lending": lending,
    "notice": notice,
    "notice_expired": notice_expired,
    "queue": queue,
}
