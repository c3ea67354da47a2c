"""Whose hosts they are, and what departments have agreed on lending them: pure arithmetic over the configuration and the time.

For the provisioner that divides the hosts, the executor, and all that show or count what is lent.

Rules
  1. A department's own hosts are its guarantee at the hours of now (if guarantees exceed the hosts: web by priority, then
     batch, equals by weight, as the targets have it), and a batch department's also its part by weight of the rest, up to its
     maximum: largest remainder, ties by name.  What is left, if maxima leave anything, has no owner.
  2. Of the contracts that name a pair, in the order of the file, the first one whose hours it is holds.  A pair that is named
     lends nothing at other hours; one that is not named lends whatever is idle, on `policy.notice_s`: without contracts
     everything is as the paper has it.
  3. `*` stands for every department; none lends to itself.
  4. A loan that ends with its contract's hours goes back on the terms of that pair's first contract.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas.config import CloudConfig, Department, Lending
from services.domain.sharing.max_min import Part, fill
from services.domain.windows import NEVER, calendar

ANY: Final = "*"
UNLIMITED: Final = 1 << 30


class Terms(NamedTuple):
    """What a department is promised at a time, in hosts.  `maximum` None: the whole cluster.  `notice_s`: the shortest that it
    may be given; `grace_s`: SIGTERM to SIGKILL.  `window`: the entry that holds, as written, and `until` when; or ""."""

    guarantee: int
    maximum: int | None
    notice_s: float
    grace_s: float
    window: str = ""
    until: float = NEVER


def terms(config: CloudConfig, department: str, at: float) -> Terms:
    """The terms of `department` in force at `at` (UTC seconds); those of an unknown one promise nothing."""
    known = config.department(department)
    if known is None:
        return Terms(0, 0, config.policy.notice_s, config.policy.grace_s)
    guarantee, maximum = bounds(known, at)
    found = calendar(known.windows, known.windows_zone).open_at(at) if known.windows else None
    named = [c.notice_s for c in config.lending if matches(c, c.lender, department) and c.notice_s is not None]
    return Terms(
        guarantee=guarantee,
        maximum=maximum,
        notice_s=min([config.policy.notice_s, *named]),
        grace_s=grace_s(config, department),
        window=found[0].text if found else "",
        until=found[1] if found else NEVER,
    )


def bounds(department: Department, at: float) -> tuple[int, int | None]:
    """Guarantee and maximum in the window of now."""
    guarantee, maximum = department.guarantee, department.maximum
    if department.windows:
        found = calendar(department.windows, department.windows_zone).open_at(at)
        if found is not None:
            window = found[0]
            guarantee = guarantee if window.guarantee is None else window.guarantee
            maximum = maximum if window.maximum is None else window.maximum
    return guarantee, maximum


def grace_s(config: CloudConfig, department: str) -> float:
    """SIGTERM to SIGKILL of a department's jobs: the longest that a contract grants it as a borrower, else the policy's."""
    granted = [c.grace_s for c in config.lending if c.grace_s is not None and matches(c, c.lender, department)]
    return max(granted, default=config.policy.grace_s)


def next_change(config: CloudConfig, at: float) -> float:
    """When after `at` a window, of a department or a contract, next opens or closes; `NEVER` if there is none."""
    calendars = [
        *(calendar(d.windows, d.windows_zone) for d in config.departments if d.windows),
        *(calendar(c.windows, c.windows_zone) for c in config.lending if c.windows),
    ]
    return min((c.next_edge(at) for c in calendars), default=NEVER)


# ------------------------------------------------------------------------------------------------------------ whose they are


def owned(config: CloudConfig, at: float, usable: int) -> dict[str, int]:
    """Department -> how many of `usable` hosts are its own at `at` (rule 1); together at most `usable`."""
    ranks: dict[tuple[bool, int], list[Part]] = {}
    own, room, rest = {d.name: 0 for d in config.departments}, {}, max(0, usable)
    for department in config.departments:
        guarantee, maximum = bounds(department, at)
        most = UNLIMITED if maximum is None else maximum
        batch = department.kind == "batch"
        part = Part(department.name, department.weight, 0, min(guarantee, most))
        ranks.setdefault((batch, 0 if batch else -department.priority), []).append(part)
        if batch:
            room[department.name] = most
    for rank in sorted(ranks):
        given = fill(ranks[rank], rest)
        own.update(given)
        rest -= sum(given.values())
    room = {name: most - own[name] for name, most in room.items()}
    weights = {d.name: d.weight for d in config.departments}
    for name, hosts in _by_weight(rest, room, weights).items():
        own[name] += hosts
    return own


def _by_weight(rest: int, room: dict[str, int], weights: dict[str, float]) -> dict[str, int]:
    """Divide `rest` by weight, none above its room: largest remainder, ties by name."""
    given, left = dict.fromkeys(room, 0), sorted(name for name in room if room[name] > 0)
    while rest > 0 and left:
        total = sum(weights[name] for name in left)
        full = [name for name in left if rest * weights[name] / total >= room[name]]
        if full:  # what they cannot take is divided among the others
            for name in full:
                given[name] = min(room[name], rest)
                rest -= given[name]
            left = [name for name in left if name not in full]
            continue
        parts = {name: rest * weights[name] / total for name in left}
        for name in left:
            given[name] = int(parts[name])
        over = rest - sum(given[name] for name in left)
        for name in sorted(left, key=lambda n: (int(parts[n]) - parts[n], n))[:over]:  # unique last key: name
            given[name] += 1
        break
    return given


# --------------------------------------------------------------------------------------------------------------- contracts


def matches(contract: Lending, lender: str, borrower: str) -> bool:
    return contract.lender in (ANY, lender) and contract.borrower in (ANY, borrower) and lender != borrower


def holds(contract: Lending, at: float) -> bool:
    """True if its hours are those of now."""
    return not contract.windows or calendar(contract.windows, contract.windows_zone).open_at(at) is not None


def agreed(config: CloudConfig, lender: str, borrower: str, at: float) -> Lending | None:
    """The contract of this pair: the one that holds at `at`, else the first one that names it (rule 4); None if none does."""
    named = [c for c in config.lending if matches(c, lender, borrower)]
    return next((c for c in named if holds(c, at)), named[0] if named else None)


def limit(config: CloudConfig, lender: str, borrower: str, at: float) -> int:
    """How many of its own hosts `lender` lends `borrower` at `at`, at most (rule 2)."""
    contract = agreed(config, lender, borrower, at)
    if contract is None:
        return UNLIMITED
    if not holds(contract, at):
        return 0
    return UNLIMITED if contract.hosts is None else contract.hosts


def notice_s(config: CloudConfig, lender: str, borrower: str, at: float) -> float:
    """How long before one of `lender`'s own hosts is taken from `borrower` it gets notice."""
    contract = agreed(config, lender, borrower, at)
    return config.policy.notice_s if contract is None or contract.notice_s is None else contract.notice_s


def reach(config: CloudConfig, department: str, at: float, usable: int) -> int:
    """The hosts that `department` could have at `at` at most, were all others' idle: its maximum of these hours, its own
    and what contracts lend it."""
    known = config.department(department)
    if known is None:
        return 0
    _, maximum = bounds(known, at)
    most = usable if maximum is None else min(maximum, usable)
    if not config.lending:
        return most
    own = owned(config, at, usable)
    lent = sum(min(limit(config, name, department, at), hosts) for name, hosts in own.items() if name != department)
    return min(most, own[department] + lent + usable - sum(own.values()))
