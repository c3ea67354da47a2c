"""The shipped alert rules, as far as tests ask for them: read by the form in which they are written (test_alert_rules.py).

There is no YAML library here: `promtool` says whether they are right; this says which there are and what they use.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from phoenix import metrics
from services.runtime.families import Histogram

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
_METRIC: Final = re.compile(r"\bphoenix_[a-z0-9_]+\b")
_SELECTED: Final = re.compile(r"\b(phoenix_[a-z0-9_]+)\{([^}]*)\}")
_OF_TARGETS: Final = frozenset(
    ("job", "instance", "process", "service", "cloud", "department", "le")
)  # scrape.py, rule 3


class Alert(NamedTuple):
    """`why`: the lines of comment above it; `text`: all of it."""

    name: str
    file: str
    expr: str
    lasting: str
    severity: str
    why: str
    text: str


def alerts() -> dict[str, Alert]:
    found = {}
    for file in sorted(DEPLOY.glob("rules/*.yml")):
        why, *rules = re.split(r"^ +- alert: ", file.read_text(), flags=re.MULTILINE)
        for rule in rules:
            name = rule.split("\n", 1)[0]
            found[name] = Alert(
                name,
                file.name,
                _one(r"^        expr: (?:\|\n((?:          .*\n)+)|(.*)\n)", rule),
                _one(r"^        for: (\S+)$", rule),
                _one(r"^          severity: (\S+)$", rule),
                "\n".join(re.findall(r"^      # (.*)$", why.rpartition("\n\n")[2] or why, flags=re.MULTILINE)),
                rule,
            )
            why = rule
    return found


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text, flags=re.MULTILINE)
    return "" if found is None else next(group for group in found.groups() if group is not None)


def unknown(text: str) -> list[str]:
    """What a text of PromQL names and the code does not export: metrics, and labels of theirs."""
    every, wrong = metrics.every(), []
    for name in _METRIC.findall(text):
        if name not in every and not _of_histogram(name):
            wrong.append(name)
    for name, matchers in _SELECTED.findall(text):
        family = every.get(name) or every.get(re.sub(r"_(bucket|sum|count)$", "", name))
        known = {label.name: label.values for label in family.labels} if family is not None else {}
        for label, value in re.findall(r'(\w+)!?=~?"([^"]*)"', matchers):
            listed = known.get(label)
            if label not in known and label not in _OF_TARGETS:
                wrong.append(f"{name}{{{label}}}")
            elif isinstance(listed, tuple):
                wrong += [f"{name}{{{label}={one}}}" for one in value.split("|") if one not in listed]
    return wrong


def _of_histogram(name: str) -> bool:
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base != name and isinstance(metrics.every().get(base), Histogram)
