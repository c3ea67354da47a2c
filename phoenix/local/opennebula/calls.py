"""The table of methods, and what every method gets.

A method declares its parameters as one string: `s`, `i`, `b`, `a` (string, int, bool, array); those behind `?` may be
left out and are then missing from the call. Types are checked as `oned`'s library does it: in order, after the
session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from phoenix.local.opennebula.errors import FAULT_TYPE, Fault
from phoenix.local.opennebula.model import User
from phoenix.local.opennebula.parts import Parts
from phoenix.local.opennebula.store import Store

Answer = str | int | bool
Handler = Callable[..., Any]

_TYPES: dict[str, tuple[type, str]] = {
    "s": (str, "a string"),
    "i": (int, "integer"),
    "b": (bool, "boolean"),
    "a": (list, "array"),
}


@dataclass(slots=True)
class Call:
    """One call: who asks whom. `request_id` counts calls."""

    one: Parts
    user: User
    request_id: int
    method: str

    @property
    def store(self) -> Store:
        """The pools."""
        return self.one.store


@dataclass(frozen=True, slots=True)
class Method:
    """A method: its handler, the types it needs and those it may get."""

    name: str
    handler: Handler
    needed: str
    optional: str

    def arguments(self, params: list[Any]) -> list[Any]:
        """The parameters behind the session, checked. Raises `Fault`."""
        kinds = self.needed + self.optional
        given = params[1 : 1 + len(kinds)]
        for kind, value in zip(kinds, given, strict=False):
            wanted, words = _TYPES[kind]
            if type(value) is not wanted:
                raise Fault(FAULT_TYPE, f"Parameter that is supposed to be {words} is not")
        if len(given) < len(self.needed):
            raise Fault(FAULT_TYPE, "Not enough parameters")
        return given


METHODS: dict[str, Method] = {}


def method(name: str, parameters: str = "") -> Callable[[Handler], Handler]:
    """Register a method."""
    needed, _, optional = parameters.partition("?")

    def register(handler: Handler) -> Handler:
        METHODS[name] = Method(name, handler, needed, optional)
        return handler

    return register
