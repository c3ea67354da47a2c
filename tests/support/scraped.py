"""What a program exports, held against what is declared: every family and no other, type, labels, and the bounds of each label.

A family is there from the start, with its HELP and TYPE, though it may have no sample yet."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from schemas import reasons as because
from services.runtime.families import Family, Info, Label, Names, Table
from tests.support.tools import tool

OF_THE_PROCESS = "process_"  # the client library's own: CPU, memory, open files
OF_THE_FORM = ("le",)  # of buckets


def faults(
    text: str, tables: Iterable[Table], bounds: Mapping[Names, Iterable[str]], absent: Iterable[str] = ()
) -> list[str]:
    """What is wrong; empty if nothing is.  `bounds`: the names that there are; `absent`: names that may be missing."""
    declared = {_shown(family): family for table in tables for family in table.families}
    found: list[str] = []
    seen = set()
    for family in text_string_to_metric_families(text):
        if family.name.startswith(OF_THE_PROCESS):
            continue
        mine = declared.get(family.name)
        if mine is None:
            found.append(f"{family.name} is not declared")
            continue
        seen.add(family.name)
        if family.type != ("gauge" if isinstance(mine, Info) else mine.kind):
            found.append(f"{family.name} is a {family.type}, not a {mine.kind}")
        if family.documentation != mine.text:
            found.append(f"{family.name} says {family.documentation!r}")
        for sample in family.samples:
            found += _labels(family.name, sample.labels, mine, bounds)
    return found + [f"{name} is missing" for name in sorted(declared.keys() - seen - {*absent})]


def _shown(family: Family) -> str:
    return family.name.removesuffix("_total")


def _labels(name: str, labels: Mapping[str, Any], family: Family, bounds: Mapping[Names, Iterable[str]]) -> list[str]:
    given = {label: value for label, value in labels.items() if label not in OF_THE_FORM}
    if set(given) != set(family.label_names):
        return [f"{name} has the labels {sorted(given)}, not {sorted(family.label_names)}"]
    known = {label.name: _values(label, bounds) for label in family.labels}
    return [
        f"{name}: {label}={value!r} is out of bounds" for label, value in given.items() if value not in known[label]
    ]


def _values(label: Label, bounds: Mapping[Names, Iterable[str]]) -> set[str]:
    if isinstance(label.values, tuple):
        return set(label.values)
    if label.values is Names.REASONS:
        return tuple(because.BY_CODE)
    return {*bounds.get(label.values, ())}


def linted(text: str) -> str:
    """What Prometheus' own lint says; empty: nothing."""
    done = subprocess.run(
        [str(tool("promtool")), "check", "metrics"], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout + done.stderr
