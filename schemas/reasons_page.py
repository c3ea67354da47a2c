"""The page of all reasons: code, meaning, an example sentence, the remedy and the parameters of each.

    python -m schemas.reasons_page > docs/reference/reasons.md

It says what the structs say (`schemas.reasons`, `schemas.descriptions`), with the examples of `schemas.examples_reasons`.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from schemas import reasons
from schemas.descriptions import fields, summary
from schemas.examples_reasons import BY_KIND
from schemas.reasons import ends, instances, waits, web
from schemas.reasons.base import AnyReason

WIDTH: Final = 124
AREAS: Final = {  # module -> heading
    "hosts": "Hosts of departments",
    "starts": "Why a unit was placed",
    "ends": "Why an attempt was closed",
    "waits": "Why a job waits, and how it runs",
    "web": "Number of instances",
    "instances": "Instances and releases",
    "newer": "Other versions",
}
SHARED: Final[dict[type[AnyReason], str]] = {  # a struct that others build on -> heading of its parameters
    ends.Interrupted: "An interrupted attempt",
    waits.Needs: "What a job needs",
    waits.Elsewhere: "Where hosts are",
    waits.Limited: "A limit",
    web.ByWord: "Reported load",
    web.Utilisation: "Observed load",
    instances.Failure: "A failed instance",
}
_HEAD: Final = """\
# Reasons

Each decision carries one reason: in facts and [events](events.md) as `reason` or `why`, in the answers of `phoenix why`,
`phoenix story` and the queue. On the wire it is a flat object whose `code` tells which reason it is:

    {"code": "walltime", "walltime_s": 3600.0}

Parameters that are not known are left out. A sentence is made from code and parameters; those here have the values of an
example. The remedy is what would change the situation; not every reason has one. Programs read the code and the parameters,
never the sentence. New codes and parameters may be added: a reader shows a code that it does not know as it is.

This page is generated (`python -m schemas.reasons_page`). The same is in `openapi.json` and `schemas/asyncapi.json`, as the
component `Reason`.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([*_wrapped_head(), *_areas(), *_shared()])


def _wrapped_head() -> Iterator[str]:
    for paragraph in _HEAD.strip().split("\n\n"):
        plain = paragraph.startswith(("#", "    "))
        yield from (paragraph, "") if plain else (*textwrap.wrap(paragraph, WIDTH, break_on_hyphens=False), "")


def _areas() -> Iterator[str]:
    for module, heading in AREAS.items():
        yield from (f"## {heading}", "")
        for kind in reasons.REASONS:
            if kind.__module__.rpartition(".")[2] == module:
                yield from _reason(kind)


def _reason(kind: type[AnyReason]) -> Iterator[str]:
    example = BY_KIND[kind]
    yield from (f"### `{reasons.tag(kind)}`", "", *_prose(summary(kind)), "")
    yield from (*_prose(example.sentence(), "> "), "")
    remedy = example.remedy()
    if remedy:
        yield from (*_prose(f"Remedy: {remedy}."), "")
    bases = [base for base in kind.__mro__[1:] if base in SHARED]
    inherited = {name for base in bases for name in base.__struct_fields__}
    known = fields(kind)
    yield from _table({name: known[name] for name in kind.__struct_fields__ if name not in inherited})
    if bases:
        links = ", ".join(f"[{SHARED[base].lower()}](#{_anchor(SHARED[base])})" for base in bases)
        yield from (*_prose(f"Also the parameters of: {links}."), "")


def _shared() -> Iterator[str]:
    yield from ("## Parameters of several reasons", "")
    for base, heading in SHARED.items():
        above = {name for each in base.__mro__[1:] if each in SHARED for name in each.__struct_fields__}
        known = fields(base)
        yield from (f"### {heading}", "")
        yield from _table({name: known[name] for name in base.__struct_fields__ if name not in above})


def _table(meanings: Mapping[str, str]) -> Iterator[str]:
    if meanings:
        yield from ("| parameter | meaning |", "|---|---|")
        yield from (f"| `{name}` | {meaning} |" for name, meaning in meanings.items())
        yield ""


def _prose(text: str, prefix: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_on_hyphens=False, break_long_words=False
    )


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(page())
