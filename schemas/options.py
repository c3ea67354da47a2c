"""A plug-in's own settings: what a person wrote in `options`, as the struct that the plug-in declares.

A plug-in declares a frozen `msgspec.Struct`, `Settings`, whose fields have defaults.  A department may have two plug-ins (an
order and an order of victims) and one table of options, so each takes the fields that it declares and leaves the others alone.

Rules
  1. An option that none of a department's plug-ins declares is a mistake, and told as one (`unknown`).
  2. What fields mean together is checked by the struct itself: a `ValueError` in `__post_init__` is a problem with its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

S = TypeVar("S", bound=msgspec.Struct)
_PLACE: Final = re.compile(r" - at `\$\.?([A-Za-z0-9_]*).*`\Z")


class Unfit(ValueError):
    """An option that its plug-in cannot take.  `key`: which one, empty if it is several together; `right`: what is wrong."""

    def __init__(self, key: str, right: str) -> None:
        super().__init__(f"{key}: {right}" if key else right)
        self.key, self.right = key, right


def read(settings: type[S], options: Mapping[str, Any]) -> S:
    """The plug-in's settings, with its defaults for what is not given.  Raises `Unfit`; never after the configuration has been
    checked."""
    given = {name: options[name] for name in settings.__struct_fields__ if name in options}
    try:
        return msgspec.convert(given, settings)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        key = place[1] if place else ""
        raise Unfit(key, _choice(settings, key, given.get(key)) or _PLACE.sub("", text)) from error


def _choice(settings: type[msgspec.Struct], key: str, value: object) -> str:
    """What would be right where a field takes one of a few values; empty where it does not, or the value is one."""
    options = get_args(get_type_hints(settings).get(key)) if key else ()
    one_of = options and get_origin(get_type_hints(settings)[key]) is Literal and value not in options
    return "should be one of " + ", ".join(msgspec.json.encode(each).decode() for each in options) if one_of else ""


def unknown(declared: Sequence[type[msgspec.Struct]], options: Mapping[str, Any]) -> list[str]:
    """Undeclared options, in the order of the file (rule 1)."""
    return [key for key in options if all(key not in settings.__struct_fields__ for settings in declared)]
