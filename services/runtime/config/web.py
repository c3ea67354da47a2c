"""Meaning of what a web department's instances are (`schemas.config.WebPolicy`): whether they could run like that.

Rules
  1. An instance's variables, secrets among them, have names that a process can have, and no name appears twice.  Ours
     (`PHOENIX_…`, `PORT`, `HOME`, `TMPDIR`) are set by the guest, regardless of the department.
  2. A department's attributes of its VMs take the place of the site's; those that Phoenix sets can be given by neither.
  3. Every user named as a source of load exists: a misspelt name would match no user, and no load would count.
  4. With hypervisor `process` all hosts are one machine, on which a port is one program's: there it must be any free one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from schemas.config import CloudConfig, Department, WebPolicy
from schemas.dimensions import DIMENSIONS
from schemas.subjects import OPERATORS
from services.domain.capabilities import Hypervisor
from services.runtime.config.form import Path_, Problem, shown, suggestion
from services.runtime.config.secret_files import NAME, NAMES_MAX

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
ATTRIBUTE: Final = VARIABLE
TOLD: Final = ("PORT", "HOME", "TMPDIR", "PATH", "LANG")  # … and PHOENIX_…: of the guest
# Attributes of a VM that Phoenix sets.
_SIZED: Final = [pair for each in DIMENSIONS for pair in each.vm(1)]
OURS: Final = ("NAME", *(name for name, value in _SIZED if not isinstance(value, dict)), "PHOENIX_ID")
CONTEXT: Final = "CONTEXT"
KEEPS_NO_DOLLAR: Final = (
    "OpenNebula replaces $NAME in CONTEXT, by an attribute of the VM or by nothing; write the value itself (a script as "
    "START_SCRIPT_BASE64), or name an attribute of the owner, $USER[NAME]"
)
ATTRIBUTES_MAX: Final = 100


def check(department: Department, web: WebPolicy, path: Path_) -> Iterator[Problem]:
    yield from _secrets(web, (*path, "secrets"), department.name)
    yield from _template(web.template, (*path, "template"), department.name)


def check_ports(cloud: CloudConfig, hypervisor: Hypervisor | None) -> Iterator[Problem]:
    """Rule 4."""
    for index, department in enumerate(cloud.departments):
        port = department.web.port if department.web is not None else 0
        if port and hypervisor == "process":
            right = (
                'should be 0, and the program listen on $PORT: with hypervisor "process" all hosts are one machine, '
                "on which one instance alone could have this port"
            )
            yield _problem(("department", index, "web", "port"), port, right, department.name)


def check_people(cloud: CloudConfig) -> Iterator[Problem]:
    """Rule 3.  Of a cloud without users (a simulation) nothing is known."""
    for index, department in enumerate(cloud.departments if cloud.users else ()):
        web = department.web or WebPolicy()
        known = sorted(user.name for user in cloud.users if user.department in (department.name, OPERATORS))
        for place, name in enumerate(web.balancers):
            if name not in known:
                right = f"should be a user of {department.name} or an operator{suggestion(name, known)}"
                yield _problem(("department", index, "web", "balancers", place), name, right, department.name)


def _secrets(web: WebPolicy, path: Path_, label: str) -> Iterator[Problem]:
    """Rule 1."""
    if len(web.secrets) > NAMES_MAX:
        yield _problem(path, f"{len(web.secrets)} entries", f"should be at most {NAMES_MAX}", label)
    for variable, name in web.secrets.items():
        if VARIABLE.match(variable) is None or variable.startswith("PHOENIX_") or variable in TOLD:
            right = "should be the name of a variable of the department's own: letters, digits and '_', not PHOENIX_…"
            yield _problem((*path, variable), variable, right, label)
        elif variable in web.environment:
            yield _problem((*path, variable), variable, "should be a secret or in environment, not both", label)
        if NAME.match(name) is None:
            right = (
                "should be the name of a secret (phoenix secret set), never its value: "
                "small letters, digits, '.', '_' and '-', at most 64"
            )
            yield Problem(path=(*path, variable), found="a text", right=right, label=label)  # it could be the value


def _template(template: Mapping[str, str | dict[str, str]], path: Path_, label: str) -> Iterator[Problem]:
    """Rule 2."""
    if len(template) > ATTRIBUTES_MAX:
        yield _problem(path, f"{len(template)} attributes", f"should be at most {ATTRIBUTES_MAX}", label)
    for name, value in template.items():
        for wrong, right in _attribute(name, value):
            yield _problem((*path, name), wrong, right, label)


def _attribute(name: str, value: str | dict[str, str]) -> Iterator[tuple[str, str]]:
    """(found, what would be right)."""
    inner = value if isinstance(value, Mapping) else {}
    for one in (name, *inner):
        if ATTRIBUTE.match(one) is None:
            yield one, "should be an attribute's name: letters, digits and '_', not beginning with a digit"
    if name.upper() in OURS:
        yield name, "should be left out: Phoenix sets it for each VM"
    if name.upper() == CONTEXT and not isinstance(value, Mapping):
        yield shown(value), "should be a table"
    if name.upper() == CONTEXT and any(one.upper().startswith("PHOENIX_") for one in inner):
        yield name, "should hold no PHOENIX_ names: Phoenix sets those for each VM"
    for text in inner.values() if inner else [value]:
        wrong = unwritable(str(text))
        if wrong:
            yield shown(text), f"should be a text that a template can hold: OpenNebula's cannot express {wrong}"
        elif name.upper() == CONTEXT and replaced(str(text)):
            yield shown(text), f"should be without {replaced(str(text))}: {KEEPS_NO_DOLLAR}"


_REFUSED: Final = re.compile(r'\\(?="|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f]|[\ud800-\udfff\ufffe\uffff]')


def unwritable(text: str) -> str:
    """What of a value no template of OpenNebula's can hold; empty if it can be written."""
    found = _REFUSED.search(text)
    if found is None:
        return ""
    return "a backslash before a quote or at the end" if found[0] == "\\" else f"the character {found[0]!r}"


_REPLACED: Final = re.compile(r"\$(?!\w+\[)\w*")


def replaced(text: str) -> str:
    """What OpenNebula replaces in a value of CONTEXT, by an attribute of the VM or by nothing; empty if it keeps the value.
    `$USER[NAME]`, `$NETWORK[…]` and the like are asked for as such."""
    found = _REPLACED.search(text)
    return "" if found is None else found[0]


def _problem(path: Path_, value: object, right: str, label: str) -> Problem:
    return Problem(path=path, found=shown(value), right=right, label=label)
