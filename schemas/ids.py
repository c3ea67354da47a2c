"""Identifiers: how departments, users, jobs, array elements and instances are named.

Rules
  1. A department or user is ``[a-z][a-z0-9-]*``, at most 32 characters: it is a token of NATS subjects, so it holds no
     dot, space or wildcard, and no underscore (``_`` separates an array element from its job).
  2. A job is a decimal number counted by admission: ``17``.  An element of an array job is ``17_3``.
  3. A web instance is ``<department>.<number>``: ``web.7``.  Numbers only grow, so an id is never used again.
  4. A *unit* is what can be placed on hosts: a job without array, an array element, or an instance.
"""

from __future__ import annotations

import re
from typing import Final

NAME_MAX: Final = 32
JOB_NAME_MAX: Final = 128  # squeue shows 8; OpenNebula takes 128 characters in a VM's name
END: Final = r"\Z"  # of each pattern, in Python's notation
DEPARTMENT: Final = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
JOB: Final = re.compile(r"[1-9][0-9]{0,17}\Z")
ELEMENT: Final = re.compile(r"([1-9][0-9]{0,17})_(0|[1-9][0-9]{0,8})\Z")
INSTANCE: Final = re.compile(r"([a-z][a-z0-9-]{0,31})\.([1-9][0-9]{0,17})\Z")
HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def is_department(name: str) -> bool:
    return DEPARTMENT.match(name) is not None


def element_id(job: str, index: int) -> str:
    """The unit id of element `index` of array job `job`."""
    return f"{job}_{index}"


def instance_id(department: str, number: int) -> str:
    return f"{department}.{number}"


def is_instance(unit: str) -> bool:
    return "." in unit


def instance_parts(unit: str) -> tuple[str, int]:
    """Department and number of an instance's id.  ValueError if `unit` is no instance."""
    match = INSTANCE.match(unit)
    if match is None:
        raise ValueError(f"{unit!r} is not an instance id (<department>.<number>)")
    return match.group(1), int(match.group(2))


def job_of(unit: str) -> str:
    """The job that a unit belongs to: ``17`` for both ``17`` and ``17_3``."""
    return unit.partition("_")[0]


def sort_key(unit: str) -> tuple[int, int, str]:
    """A total order of units by submission: job number, then array index; instances by number."""
    if "." in unit:
        department, _, number = unit.partition(".")
        return int(number), 0, department
    head, _, index = unit.partition("_")
    return int(head), int(index) if index else -1, ""


def vm_tag(cloud: str, unit: str, attempt: int, rank: int) -> str:
    """PHOENIX_ID: what every VM carries so that it can be adopted or swept (PROTOCOL X6)."""
    return f"{cloud}/{unit}/{attempt}/{rank}"


def parse_vm_tag(tag: str) -> tuple[str, str, int, int] | None:
    """cloud, unit, attempt, rank; None if `tag` is no PHOENIX_ID."""
    parts = tag.split("/")
    if len(parts) != 4 or not parts[2].isdecimal() or not parts[3].isdecimal():
        return None
    return parts[0], parts[1], int(parts[2]), int(parts[3])
