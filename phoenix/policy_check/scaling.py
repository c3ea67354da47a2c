"""What every scaling rule must keep (`services.scheduler.core.policies.scale`).

Rules of a scaling rule
  S1  It answers, whatever was observed, with a whole number of instances of 0 or more and a reason.
  S2  The same observations give the same number: again, and after a restart (what it remembers survives the snapshot).
  S3  It changes nothing that it is shown: what it remembers is a new value each time.
  S4  It asks for no more than there may be, and one: `instances_max`, or what there is.
  S5  What it remembers is bounded: it does not grow with the time that it has observed.
  S6  An overload that stays never takes instances away, and idleness that stays never adds any.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from hypothesis import strategies as st

from phoenix.policy_check.rules import EXAMPLES, attempt, demand
from phoenix.policy_check.rules import Rule as Property
from schemas.config import Option, WebPolicy
from services.scheduler.core.policies.plugged import wrong_number
from services.scheduler.core.policies.scale import Heard, Memory, Rule, Track
from services.scheduler.core.state.load import Sample

START: Final = 1_000_000.0  # UTC seconds
# bytes in a snapshot: an hour of observations has about 100 kB, the windows are minutes
REMEMBERED_MAX: Final = 64 << 10
LONG: Final = 5000  # observations of one second: longer than any window of a department as it is by default
STAYS_S: Final = 4000.0  # longer than the longest window that can be configured


class Heard_(NamedTuple):
    """An observation: seconds since the last one ended, length in seconds, number of instances."""

    gap_s: float
    length_s: float
    utilisation: float
    serving: int


class Load(NamedTuple):
    heard: tuple[Heard_, ...]
    current: int
    instances_max: int


class Checked(NamedTuple):
    rule: Rule
    options: dict[str, Option]

    def policy(self, load: Load) -> WebPolicy:
        return WebPolicy(instances_max=load.instances_max, options=self.options)


def loads() -> st.SearchStrategy[Load]:
    heard = st.builds(
        Heard_,
        gap_s=st.sampled_from((0.0, 0.0, 0.0, 1.0, 30.0)),
        length_s=st.sampled_from((0.25, 1.0, 20.0)),
        utilisation=st.sampled_from((0.0, 0.2, 0.5, 0.75, 0.8, 0.9, 1.0, 3.0)),
        serving=st.integers(0, 5),
    )
    return st.builds(Load, st.lists(heard, max_size=40).map(tuple), st.integers(0, 6), st.sampled_from((5, 1000)))


def story(load: Load) -> str:
    lines = [
        f"  {one.length_s:g} s at {one.utilisation:.0%} of {one.serving} instances"
        + (f", {one.gap_s:g} s after the last" if one.gap_s else "")
        for one in load.heard
    ]
    head = f"{load.current} instances wanted until now, at most {load.instances_max}, and observed:"
    return "\n".join([head, *(lines or ["  nothing"])])


def _observed(load: Load) -> list[Heard]:
    found, at, since, serving = [], START, START, -1
    for one in load.heard:
        at += one.gap_s
        if one.serving != serving:
            since, serving = at, one.serving
        found.append(Heard(Sample(at, at + one.length_s, one.utilisation), serving, since))
        at += one.length_s
    return found


def _followed(checked: Checked, load: Load) -> tuple[Memory, int]:
    """What it remembers after all, and how many serve."""
    memory, policy, serving = Memory([], Track()), checked.policy(load), 0
    for heard in _observed(load):
        if heard.serving != serving:  # as the core does
            memory, serving = memory._replace(samples=[]), heard.serving
        memory = checked.rule.follow(memory, heard, policy)
    return memory, serving


def _wanted(checked: Checked, load: Load, memory: Memory, serving: int) -> int:
    number = checked.rule.wanted(memory, serving, load.current, checked.policy(load))
    wrong = wrong_number(number)
    demand(not wrong, wrong)
    return number[0]


def _form(checked: Checked, load: Load) -> None:
    _wanted(checked, load, *_followed(checked, load))


def _same(checked: Checked, load: Load) -> None:
    memory, serving = _followed(checked, load)
    first = _wanted(checked, load, memory, serving)
    demand(_wanted(checked, load, memory, serving) == first, "asked twice, it gives two answers")
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(memory), type=Memory)
    demand(_wanted(checked, load, restored, serving) == first, "after a restart, it gives another answer")
    again, _ = _followed(checked, load)
    demand(again == memory, "the same observations are remembered in two ways")


def _changes_nothing(checked: Checked, load: Load) -> None:
    memory, policy = Memory([], Track()), checked.policy(load)
    for heard in _observed(load):
        before = repr((memory, heard))
        followed = checked.rule.follow(memory, heard, policy)
        checked.rule.wanted(followed, heard.serving, load.current, policy)
        demand(repr((memory, heard)) == before, "what it remembered, or the observation, is not what it was")
        memory = followed


def _bounded(checked: Checked, load: Load) -> None:
    wanted = _wanted(checked, load, *_followed(checked, load))
    most = max([load.current, load.instances_max, *(one.serving for one in load.heard)]) + 1
    demand(wanted <= most, f"it asks for {wanted} instances")


def _forgets(checked: Checked, load: Load) -> None:
    pattern = [one._replace(gap_s=0.0, length_s=1.0, serving=2) for one in load.heard[:3]] or [Heard_(0.0, 1.0, 0.5, 2)]
    heard = tuple(pattern[n % len(pattern)] for n in range(LONG))
    memory, _ = _followed(checked, load._replace(heard=heard))
    size = len(msgspec.msgpack.encode(memory))
    demand(size <= REMEMBERED_MAX, f"after {LONG} observations it remembers {size} bytes; {REMEMBERED_MAX} are allowed")


def _sane(checked: Checked, load: Load) -> None:
    for serving, utilisation in ((2, 1.0), (3, 1.0), (2, 0.0), (3, 0.0)):
        stays = tuple(Heard_(0.0, 5.0, utilisation, serving) for _ in range(int(STAYS_S / 5.0)))
        given = load._replace(heard=stays, current=serving)
        wanted = _wanted(checked, given, *_followed(checked, given))
        text = f"{serving} instances were at {utilisation:.0%} for {STAYS_S:g} s, and it asks for {wanted}"
        demand(wanted >= serving if utilisation else wanted <= serving, text)


SCALING_RULES: Final[tuple[Property[Checked, Load], ...]] = (
    Property("S1", "it answers whatever was observed, in the right form", _form),
    Property("S2", "the same observations give the same number", _same),
    Property("S3", "it changes nothing that it is shown", _changes_nothing),
    Property("S4", "it asks for no more than there may be, and one", _bounded),
    Property("S5", "what it remembers does not grow with time", _forgets),
    Property("S6", "overload takes nothing away, idleness adds nothing", _sane),
)
FEW: Final = ("S5", "S6")  # rules whose cases hardly differ, and take long: a few tries


def tries(name: str, examples: int) -> int:
    return min(examples, 3) if name in FEW else examples


def check_scaling(rule: Rule, options: dict[str, Option] | None = None, *, examples: int = EXAMPLES) -> None:
    """Raises `Violation` for the first rule that the policy does not keep.  `options`: what it reads of the department's."""
    checked = Checked(rule, options or {})
    for each in SCALING_RULES:
        attempt(each, checked, loads(), story, tries(each.name, examples))
