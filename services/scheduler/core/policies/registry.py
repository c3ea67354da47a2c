"""Every policy of the schedulers by its name in the configuration: one entry each, and plug-ins.

A policy that comes with Phoenix Cloud is a module of this folder and its `Entry` here; configuration, command line, checks,
tests and the tables of the documentation go by these entries.  What it is stands in its module's docstring: the first paragraph
says what it does, a paragraph that begins with "Source:" or "Sources:" where it is from, the whole is its theory of operation.

Plug-ins are entered once, when a process starts (`services.scheduler.edge.plugins`), before any core is made; cores read only.

Rules
  1. A name that is not here is not replaced by another policy: the process that would decide with it stops, and says why
     (`Exit.POLICY`).
  2. A process that only folds continues: that a policy was chosen once must not keep a journal from being read.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from services.domain.exits import Exit, Stop
from services.scheduler.core.policies import (
    order_conservative,
    order_easy,
    order_fcfs,
    order_first_fit,
    order_leases,
    order_multi_factor,
    order_shortest_first,
    plugged,
    scale_target,
    scale_threshold,
    victims_least_work_lost,
    victims_smallest_shortest,
    victims_smallest_shortest_spared,
    victims_youngest_first,
)
from services.scheduler.core.policies.order import Order
from services.scheduler.core.policies.scale import Rule
from services.scheduler.core.policies.victims import Victims

Kind: TypeAlias = Literal["order", "victims", "scaling"]


class Entry(NamedTuple):
    """A policy that comes with Phoenix Cloud.  `policy`: what cores call, an `Order`, `Victims` or `Rule` with its flags;
    None of `multi-factor`, which ranks the queue for the order below it.  `settings`: keys of the department's table that this
    policy reads and others do not; a key that is a table stands for all that is in it."""

    kind: Kind
    name: str
    policy: Any
    module: ModuleType
    settings: tuple[str, ...] = ()

    @property
    def minimal(self) -> bool:
        """Of victims: no more end than have to (`MINIMAL` in the module)."""
        return bool(getattr(self.module, "MINIMAL", True))


_CONSERVATIVE: Final = Order(order_conservative.plan, foresees=True, reserves_for_all=True)
_LEASES: Final = Order(order_leases.plan, foresees=True, makes_way=True, keeps_slots=True)
_TRACKS: Final = ("target", "tolerance", "up_window_s", "down_window_s")

# In the order of the documentation.
ENTRIES: Final = (
    Entry("order", "first-fit", Order(order_first_fit.plan), order_first_fit),
    Entry("order", "fcfs", Order(order_fcfs.plan), order_fcfs),
    Entry("order", "easy", Order(order_easy.plan, foresees=True), order_easy),
    Entry("order", "conservative", _CONSERVATIVE, order_conservative, ("reservations_max",)),
    Entry("order", "shortest-first", Order(order_shortest_first.plan), order_shortest_first),
    Entry("order", "multi-factor", None, order_multi_factor, ("multi_factor",)),
    Entry("order", "leases", _LEASES, order_leases, ("leases",)),
    Entry(
        "victims", "smallest-shortest-spared", victims_smallest_shortest_spared.choose, victims_smallest_shortest_spared
    ),
    Entry("victims", "smallest-shortest", victims_smallest_shortest.choose, victims_smallest_shortest),
    Entry("victims", "youngest-first", victims_youngest_first.choose, victims_youngest_first),
    Entry("victims", "least-work-lost", victims_least_work_lost.choose, victims_least_work_lost),
    Entry("scaling", "threshold", scale_threshold.RULE, scale_threshold, ("threshold", "window_s")),
    Entry("scaling", "target-tracking", scale_target.RULE, scale_target, _TRACKS),
)


def _table(kind: Kind) -> dict[str, Any]:
    return {entry.name: entry.policy for entry in ENTRIES if entry.kind == kind and entry.policy is not None}


# What cores look up, plug-ins too.
ORDERS: Final[dict[str, Order]] = _table("order")
VICTIMS: Final[dict[str, Victims]] = _table("victims")
RULES: Final[dict[str, Rule]] = _table("scaling")
COSTS: Final[
    dict[str, None]
] = {}  # those of VICTIMS that look at what preempting each costs: it is worked out for them alone
UNUSABLE: Final[dict[str, str]] = {}  # name of a plug-in that is installed -> why it is not in one of these tables


class Missing(Stop):
    """A policy that is needed is not here."""


def names(kind: Kind) -> tuple[str, ...]:
    """Of those that come with Phoenix Cloud."""
    return tuple(entry.name for entry in ENTRIES if entry.kind == kind)


def entry(kind: Kind, name: str) -> Entry:
    """Raises StopIteration if it does not come with Phoenix Cloud."""
    return next(one for one in ENTRIES if (one.kind, one.name) == (kind, name))


def enter(kind: Kind, name: str, policy: Any, who: str, *, costs: bool = False) -> None:
    """A plug-in, behind its guard (`plugged`).  `who`: the policy and its package, for messages; empty of one that comes with
    Phoenix Cloud, which is tested with it and needs no guard."""
    if kind == "order":
        ORDERS[name] = plugged.order(policy, who) if who else policy
    elif kind == "victims":
        VICTIMS[name] = plugged.victims(policy, who) if who else policy
        if costs:
            COSTS[name] = None
    else:
        RULES[name] = plugged.rule(policy, who) if who else policy


def order(name: str) -> Order:
    """Raises `Missing` if it is not here (rule 1)."""
    return ORDERS.get(name) or _missing("order", name)


def victims(name: str) -> Victims:
    """Raises `Missing` if it is not here (rule 1)."""
    return VICTIMS.get(name) or _missing("victims", name)


def rule(name: str) -> Rule:
    """Raises `Missing` if it is not here (rule 1)."""
    return RULES.get(name) or _missing("rule", name)


def absent(kind: str, name: str) -> str:
    """Why this replica cannot continue with a policy that it does not have."""
    where = "install it where this service runs, and start it again"
    return f'the configuration in force names {kind} "{name}": {why_absent(name)}; {where}'


def why_absent(name: str) -> str:
    """The second half of a sentence that names the policy."""
    return UNUSABLE.get(name, "no package that is installed here brings it")


def _missing(kind: str, name: str) -> NoReturn:
    raise Missing(Exit.POLICY, absent(kind, name))


def summary(theory: str) -> str:
    """What the policy does: the first paragraph, on one line."""
    return _line(theory.split("\n\n", 1)[0])


def source(theory: str) -> str:
    """Where it is from; empty if the theory does not say."""
    for paragraph in theory.split("\n\n"):
        word, colon, rest = paragraph.strip().partition(":")
        if colon and word in ("Source", "Sources"):
            return _line(rest)
    return ""


def _line(paragraph: str) -> str:
    return " ".join(paragraph.split())
