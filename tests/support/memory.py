"""What a core remembers beside its state: every field of every object that it leads to, compared with a core that was loaded.

A field in which the two differ is lost with a restart from a snapshot.  `BESIDE` names those for which that is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

BESIDE: Final = {
    "Budgets._bounds": "kept as asked",
    "Budgets._owners": "kept as asked",
    "Idle._on": "hosts that are looked at again: too many do no harm, and each that a unit may leave is among them",
    "Jobs.at": "the moment of the last look",
    "Ledger.binding": "what is not wanted any more is dropped when it is looked at",
    "Ledger.dirty": "what the planner has to look at: all of it",
    "Ledger.freed": "what the planner has to look at: all that waits",
    "Ledger.rebound": "for the planner: what this leader saw under another name",
    "Ledger.refused": "for the planner: a new leader finds them with its first audit",
    "Ledger.saved_at": "orders what this leader saw; no poll of another one is in flight",
    "Ledger.tick": "orders what this leader saw",
    "Ledger.touched": "orders what this leader saw",
    "Ledger.wants": "what is not wanted any more is dropped when it is looked at",
    "Ledger.weight": "nothing on a host is as good as no entry",
    "Ledger.worn": "what samples of this leader are worth",
    "Limits.began_at": "a sign of life of admission, for the process that is to hear it",
    "Limits.heap": "holds limits that do not count any more",
    "Priorities._seen": "what the ranks followed from that it was asked for",
    "Priorities.at": "of when it was asked",
    "Priorities.department": "of when it was asked",
    "Priorities.fair": "of when it was asked",
    "Priorities.policy": "of when it was asked",
    "ProvisionerCore._adoption": "kept for the configuration that it was asked under",
    "StartJobs.passed_at": "of the last fruitless pass; a core that was loaded makes one",
    "StartJobs.shifted": "a flag of passes; unused before the first one, and a core that was loaded makes one",
    "View._order_of": "kept for the settings that it was asked under",
}
_PLAIN: Final = (str, bytes, int, float, bool, type(None), type)


def differences(core: Any, loaded: Any) -> list[str]:
    """Fields (`Class.field`) whose contents differ, but for those beside the state.  What is executed is no memory."""
    return sorted({*_differ(core, loaded, "", {})})


def _differ(one: Any, other: Any, path: str, seen: dict[tuple[int, int], None]) -> Iterator[str]:
    if one is other or path in BESIDE or (id(one), id(other)) in seen:
        return
    seen[id(one), id(other)] = None
    if type(one) is not type(other):
        yield path
    elif isinstance(one, (*_PLAIN, set, frozenset)):
        if one != other:
            yield path
    elif isinstance(one, Mapping):
        yield from _differ_by_key(_without_empty(one), _without_empty(other), path, seen)
    elif isinstance(one, list | tuple):
        yield from _differ_by_key(dict(enumerate(one)), dict(enumerate(other)), path, seen)
    elif not callable(one):
        yield from _differ_by_field(one, other, seen)


def _differ_by_key(
    one: dict[Any, Any], other: dict[Any, Any], path: str, seen: dict[tuple[int, int], None]
) -> Iterator[str]:
    if one.keys() != other.keys():
        yield path
        return
    for key in one:
        yield from _differ(one[key], other[key], path, seen)


def _differ_by_field(one: Any, other: Any, seen: dict[tuple[int, int], None]) -> Iterator[str]:
    for name in _fields(one):
        if hasattr(one, name) or hasattr(other, name):
            mine, theirs = getattr(one, name, None), getattr(other, name, None)
            yield from _differ(mine, theirs, f"{type(one).__name__}.{name}", seen)


def _without_empty(found: Mapping[Any, Any]) -> dict[Any, Any]:
    """An index that has nothing of a department is as good as one that does not name it."""
    return {key: value for key, value in found.items() if value != {}}


def _fields(thing: Any) -> list[str]:
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    struct = getattr(type(thing), "__struct_fields__", ())
    return [*dict.fromkeys((*struct, *slots, *getattr(thing, "__dict__", {})))]
