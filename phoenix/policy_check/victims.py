"""What every order of victims must keep (`services.scheduler.core.policies.victims`).

Rules of an order of victims
  V1  It answers, whatever runs where: as many hosts as asked, or all; they are empty once the victims have ended.
  V2  The same crowd gives the same choice, in whatever order it is shown.
  V3  It changes nothing that it is shown.
  V4  Cordoned hosts go first: as many of those that are given back as there are.
  V5  Where idle hosts suffice, no job ends.
  V6  Where hosts with nothing but best-effort on them suffice, no production ends.
  V7  No victim could be spared.  A policy that does not promise that says so: `MINIMAL = False` in its module.
  V8  Of two jobs with hosts of their own that differ in nothing but their number and the grace that they asked for, the one
      that leaves sooner goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hypothesis import strategies as st

from phoenix.policy_check.rules import EXAMPLES, Rule, attempt, demand
from services.scheduler.core.policies.plugged import wrong_choice
from services.scheduler.core.policies.victims import Candidate, HostLoad, Victims


class Crowd(NamedTuple):
    hosts: list[HostLoad]
    candidates: dict[str, Candidate]
    asked: int


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Jobs that share hosts in any way, or jobs with hosts of their own; and idle hosts."""
    names = [f"h{n}" for n in range(1, draw(st.integers(1, 7)) + 1)]
    on: dict[str, list[str]] = {name: [] for name in names}
    known: dict[str, Candidate] = {}
    shared, free = draw(st.booleans()), list(names)
    for number in range(1, draw(st.integers(0, 6)) + 1):
        width = draw(st.integers(1, 3))
        if shared:
            hosts = draw(st.lists(st.sampled_from(names), min_size=1, max_size=width, unique=True))
        else:
            hosts, free = free[:width], free[width:]
        if hosts:
            unit, ran_s = str(number), draw(st.sampled_from((0.0, 1.0, 60.0, 3600.0)))
            lost_s = ran_s * draw(st.sampled_from((1, 1, 0)))
            known[unit] = Candidate(
                unit,
                len(hosts),
                ran_s,
                lost_s,
                draw(st.booleans()),
                guarded=draw(st.booleans()),
                cores=len(hosts) * draw(st.sampled_from((1, 2, 8))),
                left_s=draw(st.sampled_from((60.0, 3600.0, 0.0))),
                user=draw(st.sampled_from(("ann", "bob"))),
                priority=draw(st.sampled_from((0, 10, -10))),
                late_s=draw(st.sampled_from((0.0, 0.0, 30.0, 60.0))),
            )
            for host in sorted(hosts):
                on[host].append(unit)
    cordoned = draw(st.lists(st.sampled_from(names), max_size=2)) if draw(st.booleans()) else []
    loads = [HostLoad(name, name in cordoned, tuple(on[name])) for name in names]
    return Crowd(loads, known, draw(st.integers(1, len(names) + 1)))


def story(crowd: Crowd) -> str:
    lines = [
        f"  host {host.name}: {', '.join(f'job {u}' for u in host.units) or 'idle'}{' (cordoned)' if host.cordoned else ''}"
        for host in crowd.hosts
    ]
    for one in crowd.candidates.values():
        kind = ", best-effort" if one.best_effort else ""
        guard = ", guarded" if one.guarded else ""
        size = f"{one.nodes} nodes, {one.cores} cores, of {one.user}, priority {one.priority}"
        ran = f"ran {one.running_s:g} s, has {one.left_s:g} s left, would lose {one.lost_s:g} s"
        grace = f", asked for {one.late_s:g} s to save" if one.late_s else ""
        lines.append(f"  job {one.unit}: {size}, {ran}{kind}{guard}{grace}")
    return "\n".join([f"{crowd.asked} hosts of these must go back:", *lines])


def _empty(hosts: Sequence[HostLoad], ended: Sequence[str]) -> list[HostLoad]:
    return [host for host in hosts if all(unit in ended for unit in host.units)]


def _must(crowd: Crowd) -> int:
    """Cordoned hosts that have to be among those given back."""
    return min(crowd.asked, sum(1 for host in crowd.hosts if host.cordoned))


def _form(choose: Victims, crowd: Crowd) -> None:
    choice = choose(*crowd)
    wrong = wrong_choice(*crowd, choice)
    demand(not wrong, wrong)


def _same(choose: Victims, crowd: Crowd) -> None:
    first = choose(*crowd)
    demand(choose(*crowd) == first, "asked twice, it gives two answers")
    turned = Crowd(crowd.hosts[::-1], dict(reversed(crowd.candidates.items())), crowd.asked)
    demand(choose(*turned) == first, f"shown in another order, it chooses {choose(*turned)}, and before {first}")


def _changes_nothing(choose: Victims, crowd: Crowd) -> None:
    before = repr(crowd)
    choose(*crowd)
    demand(repr(crowd) == before, "hosts or candidates are not what they were before it was asked")


def _cordoned(choose: Victims, crowd: Crowd) -> None:
    given = choose(*crowd).hosts
    found = sum(1 for host in crowd.hosts if host.cordoned and host.name in given)
    demand(found >= _must(crowd), f"it gives back {given}, and keeps hosts that are cordoned")


def _idle(choose: Victims, crowd: Crowd) -> None:
    idle = _empty(crowd.hosts, ())
    if len(idle) >= crowd.asked and sum(1 for host in idle if host.cordoned) >= _must(crowd):
        victims = choose(*crowd).victims
        demand(not victims, f"{victims} end, though {len(idle)} hosts are idle")


def _best_effort(choose: Victims, crowd: Crowd) -> None:
    free = [unit for unit, one in crowd.candidates.items() if one.best_effort]
    empty = _empty(crowd.hosts, free)
    if len(empty) >= crowd.asked and not _must(crowd):
        production = [unit for unit in choose(*crowd).victims if unit not in free]
        demand(not production, f"{production} end, though best-effort alone would make {len(empty)} hosts empty")


def _minimal(choose: Victims, crowd: Crowd) -> None:
    victims, wanted = choose(*crowd).victims, min(crowd.asked, len(crowd.hosts))
    for victim in victims:
        left = _empty(crowd.hosts, [unit for unit in victims if unit != victim])
        enough = len(left) >= wanted and sum(1 for host in left if host.cordoned) >= _must(crowd)
        demand(not enough, f"of the victims {victims}, job {victim} could be spared")


def _late_last(choose: Victims, crowd: Crowd) -> None:
    """The crowd with jobs of one size made alike."""
    first: dict[int, Candidate] = {}
    for one in crowd.candidates.values():
        first.setdefault(one.nodes, one)
    alike = {unit: first[one.nodes]._replace(unit=unit, late_s=one.late_s) for unit, one in crowd.candidates.items()}
    victims = choose(crowd.hosts, alike, crowd.asked).victims
    alone = [unit for unit in alike if all(len(host.units) == 1 for host in crowd.hosts if unit in host.units)]
    for one in (alike[unit] for unit in victims if unit in alone):
        for other in (alike[unit] for unit in alone if unit not in victims):
            sooner = other.nodes == one.nodes and other.late_s < one.late_s
            told = f"job {one.unit} ends, and job {other.unit}, were it its equal but for leaving sooner, does not"
            demand(not sooner or _is_cordoned(crowd, one.unit, other.unit), told)


def _is_cordoned(crowd: Crowd, *units: str) -> bool:
    return any(host.cordoned and unit in host.units for host in crowd.hosts for unit in units)


VICTIMS_RULES: Final[tuple[Rule[Victims, Crowd], ...]] = (
    Rule("V1", "it gives back as many hosts as asked, and they are empty", _form),
    Rule("V2", "the same crowd gives the same choice", _same),
    Rule("V3", "it changes nothing that it is shown", _changes_nothing),
    Rule("V4", "cordoned hosts go first", _cordoned),
    Rule("V5", "where idle hosts suffice, no job ends", _idle),
    Rule("V6", "where best-effort suffices, no production ends", _best_effort),
    Rule("V7", "no victim could be spared", _minimal),
    Rule("V8", "of equals who asked for a grace goes last", _late_last),
)
MINIMAL: Final = "V7"


def rules(*, minimal: bool = True) -> tuple[Rule[Victims, Crowd], ...]:
    """Those that hold for a policy that promises the least victims, or that does not."""
    return tuple(rule for rule in VICTIMS_RULES if minimal or rule.name != MINIMAL)


def check_victims(choose: Victims, *, minimal: bool = True, examples: int = EXAMPLES) -> None:
    """Raises `Violation` for the first rule that the policy does not keep."""
    for rule in rules(minimal=minimal):
        attempt(rule, choose, crowds(), story, examples)
