"""`phoenix departments`: what each wants, may keep and holds."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, emit, tables

HELP: Final = """examples:
  phoenix departments           demand, quota and hosts held
  phoenix departments --json    for a program"""
_COLUMNS: Final = (
    ("DEPARTMENT", ("department", "name")),
    ("KIND", ("kind",)),
    ("HELD", ("held", "hosts_held", "hosts")),
    ("QUOTA", ("quota",)),
    ("DEMAND", ("demand",)),
    ("PENDING", ("pending", "jobs_pending")),
    ("RUNNING", ("running", "jobs_running", "instances")),
    ("UTILISATION", ("utilisation",)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    answer = cloud.find(args).operator().get("/v1/departments")
    if args.json:
        emit.json(answer)
    else:
        print(render(answer["departments"]))
    return 0


def render(departments: list[dict[str, Any]]) -> str:
    heads = tuple(head for head, _ in _COLUMNS)
    rows = [tuple(_cell(department, keys) for _, keys in _COLUMNS) for department in departments]
    return tables.render(heads, rows, right="HELD QUOTA DEMAND PENDING RUNNING UTILISATION")


def _cell(department: dict[str, Any], keys: tuple[str, ...]) -> str:
    value = next((department[key] for key in keys if department.get(key) is not None), None)
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value * 100:.0f} %" if keys[0] == "utilisation" else f"{value:g}"
    return str(len(value)) if isinstance(value, list) else str(value)
