"""Constraints: which hosts are meant, by their labels and clusters, as in Slurm's ``--constraint``.

What it decides: whether a text is a constraint, and whether a host satisfies it.  A host's labels are the plain attributes of
its TEMPLATE in OpenNebula (as probes and administrators wrote them), and two more: ``cluster`` and ``host``, its names.

    gpu=yes&cluster=batch|host=big01        (gpu is yes and the cluster is batch) or it is big01

Rules
  1. ``|`` separates alternatives, ``&`` (or a comma) what must hold together; ``&`` binds closer.  There are no brackets.
  2. A term is ``name=value``, ``name!=value``, or ``name`` alone: the host has that label, and its value is none of NO.
  3. Names are compared without case (OpenNebula writes attributes in capitals), values as they are.
  4. A host without the label satisfies ``name!=value``.
  5. A label never hides the two names above: ``cluster`` and ``host`` are OpenNebula's own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

CHARS_MAX: Final = 256
TERMS_MAX: Final = 16  # more is a list of hosts: give them a label
NO: Final = ("", "0", "no", "none", "false", "off")  # values by which a label says that its host has no such thing
CLUSTER: Final = "CLUSTER"
HOST: Final = "HOST"
_TERM: Final = re.compile(r"^([A-Za-z_][A-Za-z0-9_.-]*)(?:(!?=)([A-Za-z0-9_./:+@-]{1,64}))?$")


class Term(NamedTuple):
    """`operator`: "=", "!=" or "" (the label is there)."""

    name: str
    operator: str
    value: str


class ConstraintError(ValueError):
    """The text is no constraint; the message says what is wrong, and what would be right."""


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[tuple[Term, ...], ...]:
    """The alternatives, each as terms that must hold together; empty: every host.  Raises `ConstraintError`."""
    if not text.strip():
        return ()
    if len(text) > CHARS_MAX:
        raise ConstraintError(f"has {len(text)} characters; should have at most {CHARS_MAX}")
    alternatives = tuple(
        tuple(_term(part.strip()) for part in re.split("[&,]", alternative)) for alternative in text.split("|")
    )
    if sum(map(len, alternatives)) > TERMS_MAX:
        raise ConstraintError(
            f"should have at most {TERMS_MAX} terms: give the hosts that are meant a label of their own"
        )
    return alternatives


def _term(text: str) -> Term:
    found = _TERM.match(text)
    if found is None:
        raise ConstraintError(f"{text!r} should be NAME, NAME=VALUE or NAME!=VALUE, such as gpu=yes&cluster=batch")
    name, operator, value = found.groups()
    return Term(name.upper(), operator or "", value or "")


def satisfies(name: str, cluster: str, labels: Mapping[str, str], text: str) -> bool:
    """True if the host `name` of `cluster` with these labels is one of those that `text` means.  Raises `ConstraintError`."""
    alternatives = parse(text)
    return not alternatives or any(all(_holds(name, cluster, labels, t) for t in terms) for terms in alternatives)


def _holds(name: str, cluster: str, labels: Mapping[str, str], term: Term) -> bool:
    if term.name == CLUSTER:
        value: str | None = cluster
    elif term.name == HOST:
        value = name
    else:
        value = next((v for k, v in labels.items() if k.upper() == term.name), None)
    if term.operator == "=":
        return value == term.value
    if term.operator == "!=":
        return value != term.value
    return value is not None and value.lower() not in NO


def problem(text: str) -> str:
    """What is wrong with the text, or empty."""
    try:
        parse(text)
    except ConstraintError as error:
        return str(error)
    return ""
