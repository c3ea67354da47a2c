"""Meaning of what departments have agreed on (`sharing.lending`): windows of a department, and contracts.

Rules
  1. Every entry is judged by itself, and every problem is reported with what would be right.
  2. A department is in one window at a time: two that overlap are refused, even with the same content.
  3. The most that a job may ask for before its host is taken (`grace_max_s`) is judged here too: contracts contain what it has
     anyway.
  4. What no hour could ever keep is refused: more guaranteed at one moment than the cloud has, a contract without effect, one
     that another one always hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from schemas.config import HOSTS_MAX, CloudConfig, Department, Lending
from schemas.requests_base import GRACE_MAX_S
from services.domain import scaling, windows
from services.domain.sharing import lending
from services.runtime.config.form import Path_, Problem, ranges, shown, suggestion

CONTRACTS_MAX: Final = 1000  # as many as a person could oversee with search; each pair is looked up in each decision
ENTRIES_MAX: Final = 100  # windows of one list, as of a web department's schedule


def check(cloud: CloudConfig, hosts: int | None) -> Iterator[Problem]:
    """`hosts`: how many the cloud has, if that is known."""
    for index, department in enumerate(cloud.departments):
        yield from _department(department, ("department", index))
        yield from _grace(cloud, department, ("department", index, "batch", "grace_max_s"))
    yield from _together(cloud, HOSTS_MAX if hosts is None else hosts, known=hosts is not None)
    if len(cloud.lending) > CONTRACTS_MAX:
        right = f"should be at most {CONTRACTS_MAX} contracts"
        yield Problem(path=("lending",), found=str(len(cloud.lending)), right=right)
    for index, contract in enumerate(cloud.lending[:CONTRACTS_MAX]):
        yield from _contract(cloud, index, contract)


def label_of(contract: Lending) -> str:
    return f"{contract.lender} to {contract.borrower}"


# ------------------------------------------------------------------------------------------------------------ departments


def _grace(cloud: CloudConfig, department: Department, path: Path_) -> Iterator[Problem]:
    """What a job may ask for (`domain.grace`): no less than what it has without asking."""
    most = department.batch.grace_max_s if department.batch is not None else None
    usual = lending.grace_s(cloud, department.name)
    if most is None or usual <= most <= GRACE_MAX_S:
        return
    whose = "policy.grace_s" if usual == cloud.policy.grace_s else "grace_s of a contract that lends to it"
    least = f"at least {usual:g}, which its jobs have without asking ({whose})"
    right = f"should be {least}, and at most {GRACE_MAX_S:g}: a claim of a host may wait that long"
    yield Problem(path=path, found=shown(most), right=right, label=department.name)


def _department(department: Department, path: Path_) -> Iterator[Problem]:
    label, known = department.name, []
    for text, found in _read(department.windows, (*path, "windows"), label):
        if isinstance(found, Problem):
            yield found
            continue
        known += found
        guarantee, maximum = found[0].guarantee, found[0].maximum
        if guarantee is None and maximum is None:
            right = 'should name what changes: "… guarantee 6", "… maximum 8", or both'
            yield Problem(path=(*path, "windows"), found=shown(text), right=right, label=label)
        least = department.guarantee if guarantee is None else guarantee
        most = department.maximum if maximum is None else maximum
        if most is not None and least > most:
            right = f"should have a guarantee of at most its maximum: {least} hosts are guaranteed then, {most} allowed"
            yield Problem(path=(*path, "windows"), found=shown(text), right=right, label=label)
    yield from _zone(department.windows_zone, (*path, "windows_zone"), label)
    for first, second in _overlaps(known):
        right = f'should not overlap with "{first.text}": one window at a time'
        yield Problem(path=(*path, "windows"), found=shown(second.text), right=right, label=label)


def _read(
    texts: Sequence[str], path: Path_, label: str
) -> Iterator[tuple[str, list[windows.Window]] | tuple[str, Problem]]:
    if len(texts) > ENTRIES_MAX:
        right = f"should be at most {ENTRIES_MAX} windows"
        yield "", Problem(path=path, found=f"{len(texts)} entries", right=right, label=label)
    for text in texts[:ENTRIES_MAX]:
        try:
            yield text, windows.read(text)
        except scaling.Unreadable as error:
            yield text, Problem(path=path, found=shown(text), right=str(error), label=label)


def _zone(zone: str, path: Path_, label: str) -> Iterator[Problem]:
    try:
        scaling.offset_s(zone)
    except scaling.Unreadable as error:
        yield Problem(path=path, found=shown(zone), right=str(error), label=label)


def _overlaps(known: Iterable[windows.Window]) -> list[tuple[windows.Window, windows.Window]]:
    """Neighbours of the week that overlap, each pair of texts once; what continues past Sunday meets Monday's first."""
    line = sorted(known, key=lambda w: (w.begin, w.end, w.text))
    line += [w._replace(begin=w.begin + scaling.WEEK_MIN, end=w.end + scaling.WEEK_MIN) for w in line[:1]]
    found = {(a.text, b.text): (a, b) for a, b in pairwise(line) if b.begin < a.end}
    return list(found.values())


def _together(cloud: CloudConfig, ceiling: int, *, known: bool) -> Iterator[Problem]:
    """Rule 3: guarantees at each moment at which a window begins or ends: where one ends that promised less, another may be
    open.  Those outside windows are looked at elsewhere."""
    told: dict[str, None] = {}
    for at in _edges(cloud):
        promised = {d.name: lending.bounds(d, at)[0] for d in cloud.departments}
        total = sum(promised.values())
        open_ = [(i, w) for i, d in enumerate(cloud.departments) if (w := lending.terms(cloud, d.name, at).window)]
        if total <= ceiling or not open_:
            continue
        index, text = max(open_, key=lambda x: (promised[cloud.departments[x[0]].name], -x[0]))
        if text not in told:
            told[text] = None
            what = "this cloud" if known else "a plausible cluster"
            right = f"guarantees should add up to at most {ceiling} hosts then, what {what} has; they add up to {total}"
            label = cloud.departments[index].name
            yield Problem(path=("department", index, "windows"), found=shown(text), right=right, label=label)


def beyond(cloud: CloudConfig, hosts: int) -> list[str]:
    """A warning, if at some moment guarantees add up to more than `hosts` that are there: of the moment with the most."""
    moments = _edges(cloud) or [0.0]
    promised = {at: {d.name: lending.bounds(d, at)[0] for d in cloud.departments} for at in moments}
    worst = max(moments, key=lambda at: (sum(promised[at].values()), -at))
    total = sum(promised[worst].values())
    if total <= hosts:
        return []
    each = ", ".join(f"{name} {count}" for name, count in sorted(promised[worst].items()) if count)
    open_ = [w for d in cloud.departments if (w := lending.terms(cloud, d.name, worst).window)]
    when = f" in the window {shown(open_[0])}" if open_ else ""
    return [f"warning: guarantees add up to {total}{when} ({each}), and there are {hosts} hosts: not all can be kept"]


def _edges(cloud: CloudConfig) -> list[float]:
    """A moment of the week at each of which some department's window begins or ends."""
    found: dict[float, None] = {}
    for department in cloud.departments:
        calendar = windows.calendar(department.windows[:ENTRIES_MAX], department.windows_zone)
        for window in calendar.windows:
            begin = calendar.begin(window, 0.0) + windows.WEEK_S
            found |= {begin: None, begin + (window.end - window.begin) * 60: None}
    return sorted(found)


# --------------------------------------------------------------------------------------------------------------- contracts


def _contract(cloud: CloudConfig, index: int, contract: Lending) -> Iterator[Problem]:
    path: Path_ = ("lending", index)
    label, names = label_of(contract), [d.name for d in cloud.departments]
    for key, name in (("lender", contract.lender), ("borrower", contract.borrower)):
        if name != lending.ANY and name not in names:
            hint = suggestion(name, names) or f"; there are: {', '.join(names)}"
            right = f'should be a department, or "*" for all{hint}'
            yield Problem(path=(*path, key), found=shown(name), right=right, label=label)
    if contract.lender == contract.borrower != lending.ANY:
        right = "should be another department than the lender: a department cannot lend to itself"
        yield Problem(path=(*path, "borrower"), found=shown(contract.borrower), right=right, label=label)
    yield from ranges(contract, path, label)
    yield from _sense(cloud, index, contract)
    for text, found in _read(contract.windows, (*path, "windows"), label):
        if isinstance(found, Problem):
            yield found
        elif (found[0].guarantee, found[0].maximum) != (None, None):
            right = 'should be hours alone, such as "daily 20:00-06:00"; hosts says how many are lent'
            yield Problem(path=(*path, "windows"), found=shown(text), right=right, label=label)
    yield from _zone(contract.windows_zone, (*path, "windows_zone"), label)


def _sense(cloud: CloudConfig, index: int, contract: Lending) -> Iterator[Problem]:
    path: Path_ = ("lending", index)
    label = label_of(contract)
    if contract.grace_s is not None and contract.grace_s > cloud.policy.kill_s:
        right = f"should be at most policy.kill_s ({cloud.policy.kill_s:g}): a VM that takes longer is stopped hard"
        yield Problem(path=(*path, "grace_s"), found=shown(contract.grace_s), right=right, label=label)
    borrower = cloud.department(contract.borrower)
    if contract.deadline_s is not None and borrower is not None and borrower.kind == "web":
        right = "should be left out: web keeps a host as long as its load needs it; hosts bounds how many"
        yield Problem(path=(*path, "deadline_s"), found=shown(contract.deadline_s), right=right, label=label)
    lender = cloud.department(contract.lender)
    if contract.deadline_s is not None and lender is not None and lender.kind == "web":
        right = "should be left out: web has its hosts back on notice whenever its load needs them"
        yield Problem(path=(*path, "deadline_s"), found=shown(contract.deadline_s), right=right, label=label)
    if contract.credit and borrower is not None and borrower.kind == "web":
        right = "should be left out: web is served by priority, so what it earned would count for nothing"
        yield Problem(path=(*path, "credit"), found=shown(contract.credit), right=right, label=label)
    for earlier in cloud.lending[:index]:
        covers = all(mine in (lending.ANY, its) for mine, its in _names(earlier, contract))
        if covers and not earlier.windows:
            right = f'should stand before "{label_of(earlier)}", which holds always and names this pair too'
            yield Problem(path=(*path, "lender"), found=shown(contract.lender), right=right, label=label)
            break


def _names(earlier: Lending, later: Lending) -> tuple[tuple[str, str], ...]:
    return (earlier.lender, later.lender), (earlier.borrower, later.borrower)
