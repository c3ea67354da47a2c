"""Configurations of small clouds, in a line: who is there, and in which departments."""

from __future__ import annotations


def cloud(departments: str, people: str, more: str = "") -> str:
    """The file's text.  `departments`: "hpc:batch web:web"; `people`: "ann:hpc mia:hpc:manager"; `more`: other tables."""
    lines = ["[cloud]", 'name = "test"', more.strip()]
    for department in departments.split():
        name, kind = department.split(":")
        lines += ["[[department]]", f'name = "{name}"', f'kind = "{kind}"']
    for person in people.split():
        name, department, *role = person.split(":")
        lines += ["[[user]]", f'name = "{name}"', f'department = "{department}"', *(f'role = "{one}"' for one in role)]
    return "\n".join(lines) + "\n"
