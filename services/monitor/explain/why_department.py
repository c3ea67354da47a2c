"""Why a batch department has the hosts that it has: its demand, quota and hosts, the holders of the rest by which rule, and
what would change that.  Read from the fold, changing nothing; a web department's scheduler answers for itself (`web.why`).

Rules
  1. First its own numbers, and the decisions that made them; then the holders of the others; then what is out of use; then what
     is under way; a remedy wherever a person could do something.
  2. The answer is what the provisioner reckons with (`sharing.lending`, `host_ownership`): demand, quota, guarantee, maximum.
"""

from __future__ import annotations

from typing import Any

from schemas import facts as f
from schemas.config import CloudConfig, Department, WebPolicy
from schemas.units import count, iso, span
from schemas.words import by_contract
from services.domain import grace
from services.domain.others import used_by_others
from services.domain.sharing.host_ownership import PRESENT, counts, usable
from services.domain.sharing.lending import bounds, next_change, reach
from services.domain.sharing.withheld import withheld
from services.domain.text import sentence
from services.domain.windows import NEVER
from services.monitor.core.host_history import Step
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain.why_host import Word, shown


def explain(core: MonitorCore, name: str, now: float) -> dict[str, Any] | None:
    """None if the configuration does not name it."""
    config = core.custody.state.config
    department = config.department(name) if config is not None else None
    if config is None or department is None:
        return None
    state, known = core.custody.state, core.state.moves
    held, quota, demand = core.custody.held(name), core.custody.quota(name), state.demands.get(name, 0)
    words = [
        _numbers(core, department, now),
        *_decided(known.demands.get(name), known.quotas.get(name)),
        *_others(core, config, department, now),
        *_unusable(core, now),
        *_under_way(core, name, now),
        *_agreed(core, config, department, now),
    ]
    return {
        "what": "department",
        "name": name,
        "kind": department.kind,
        "hosts_held": held,
        "hosts_quota": quota.hosts,
        "hosts_demanded": demand,
        "told": [word._asdict() for word in words],
        "moves": [shown(step) for step in (known.demands.get(name), known.quotas.get(name)) if step is not None],
    }


def _numbers(core: MonitorCore, department: Department, now: float) -> Word:
    name = department.name
    held, quota = core.custody.held(name), core.custody.quota(name).hosts
    demand, guarantee = core.custody.state.demands.get(name, 0), bounds(department, now)[0]
    missing = "all that it wants" if held >= demand else f"{demand - held} fewer than it wants"
    sure = (
        "none is guaranteed"
        if not guarantee
        else f"{count(guarantee, 'host')} {'is' if guarantee == 1 else 'are'} guaranteed"
    )
    return Word(f"it wants {count(demand, 'host')}, may keep {quota} and holds {held}, {missing}; {sure} to it")


def _decided(demand: Step | None, quota: Step | None) -> list[Word]:
    """By which decisions."""
    found = []
    for step, what in ((demand, "wants"), (quota, "may keep")):
        fact = None if step is None else step.fact
        if step is not None and isinstance(fact, f.DemandChanged | f.QuotaChanged) and fact.reason is not None:
            found.append(Word(f"it {what} {fact.hosts} since {iso(step.at)}: {sentence(fact.reason)}"))
    return found


def _others(core: MonitorCore, config: CloudConfig, mine: Department, now: float) -> list[Word]:
    """Who has the rest, and by which rule."""
    found = []
    for other in config.departments:
        held = core.custody.held(other.name)
        if other.name == mine.name or not held:
            continue
        guarantee = bounds(other, now)[0]
        if other.kind == "web":
            wants = core.custody.state.demands.get(other.name, 0)
            rule = f"web goes before what is not guaranteed to batch, and it wants {wants}"
            policy = other.web or WebPolicy()
            least = max(guarantee, -(-policy.instances_min // policy.instances_per_host))
            own = f"{other.name} keeps {least} whatever its load: a lower minimum or guarantee of it"
            back = f"hosts come back when the load of {other.name} falls" if held > least else own
            if held > least and by_hand(core, other.name, now):
                back = f"a person set how many instances {other.name} has: `phoenix scale {other.name} --auto`"
            remedy = f"{back}; to keep more: a higher guarantee of {mine.name}"
        elif held <= guarantee:
            rule, remedy = f"its guarantee is {guarantee}", ""
        else:
            rule = f"its guarantee is {guarantee}, and the rest is divided by weight ({other.weight:g}; {mine.weight:g} here)"
            remedy = f"another weight of {mine.name} or {other.name}"
        found.append(Word(f"held by {other.name}: {count(held, 'host')}; {rule}", remedy))
    return found


def by_hand(core: MonitorCore, name: str, now: float) -> bool:
    """A person, and not the load, keeps a web department's hosts: by an exact number, or by a minimum that needs them all."""
    config, said = core.custody.department(name), core.state.scales.get(name)
    if config is None or said is None or (said.until is not None and now >= said.until):
        return False
    per_host = (config.web or WebPolicy()).instances_per_host
    least = -(-(said.minimum or 0) // per_host)
    return said.exact is not None or 0 < core.custody.held(name) <= least


def _unusable(core: MonitorCore, now: float) -> list[Word]:
    hosts = core.custody.state.hosts.values()
    lost = sum(1 for host in hosts if host.state == "lost")
    cordoned = sorted(host.name for host in hosts if host.cordoned is not None)
    resting = sum(
        1 for host in hosts if host.state in PRESENT and host.cordoned is None and host.quarantine_until > now
    )
    found = []
    if cordoned:
        names = ", ".join(cordoned[:8]) + (" …" if len(cordoned) > 8 else "")
        found.append(Word(f"cordoned, so nothing more is placed there: {names}", "phoenix hosts uncordon HOST"))
    if resting:
        found.append(Word(f"{count(resting, 'host')} in quarantine (phoenix hosts shows why)"))
    if lost:
        found.append(Word(f"{count(lost, 'host')} lost (phoenix hosts shows why)", "bring them back in OpenNebula"))
    found += [Word(one.sentence(), one.remedy()) for one in used_by_others(hosts)]
    free = [host for host in hosts if host.state == "free" and counts(host, now)]
    if free:
        found.append(
            Word(f"{count(len(free), 'host')} free: granted with the next decision if a department demands one")
        )
    return found


def _under_way(core: MonitorCore, name: str, now: float) -> list[Word]:
    """Notices, and hosts that are on their way."""
    custody, found = core.custody, []
    held, quota = custody.held(name), custody.quota(name)
    if held > quota.hosts:
        due = f", by {iso(quota.next_due())}" if quota.lowerings else ""
        found.append(Word(f"it has notice: {count(held - quota.hosts, 'host')} to give back{due}"))
    draining = [host for host in custody.state.hosts.values() if host.state == "draining"]
    if draining:
        found.append(Word(f"{count(len(draining), 'host')} on the way from one department to the next"))
        found += [Word(sentence(one)) for one in grace.told(grace.leavers(custody), now)]
    return found


def _agreed(core: MonitorCore, config: CloudConfig, department: Department, now: float) -> list[Word]:
    """Which contracts keep hosts from it, and what maximum, hours and contracts allow, if that is less than it wants."""
    found = [
        Word(
            by_contract(one.lender, one.hosts, one.most, one.closed),
            f"another contract of {one.lender}: phoenix lending",
        )
        for one in withheld(core.custody, department.name, now)
    ]
    there = usable(core.custody, now)
    most, demand = reach(config, department.name, now, there), core.custody.state.demands.get(department.name, 0)
    if demand <= most or most >= there:
        return found
    changes = next_change(config, now)
    until = "" if changes == NEVER else f", for another {span(changes - now)}"
    text = f"it may have at most {count(most, 'host')}, by its maximum, hours and contracts{until}"
    return [*found, Word(text, "phoenix lending shows the contracts")]
