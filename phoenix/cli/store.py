"""`phoenix store`: object store usage and quota of each department."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, printing, tables

HELP: Final = """examples:
  phoenix store            scripts and inputs, output, kept files and checkpoints of each department, and its share
  phoenix store --json     in bytes
A user sees the own department.  What ended jobs left goes by itself: docs/reference/service-limits.md"""
HEAD: Final = ("DEPARTMENT", "USED", "SHARE", "", "SUBMITTED", "OUTPUT", "FILES", "CHECKPOINTS")
_MIB: Final = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    answer = cloud.find(args).operator().get("/v1/store")
    printing.answer(answer, render, as_json=args.json)
    return 0


def render(answer: dict[str, Any]) -> str:
    table = tables.render(HEAD, [_row(one) for one in answer["departments"]], right=" ".join(HEAD[1:]))
    counting = (
        []
        if answer["counted"]
        else ["what is there is still being counted: it is more than this, and no share holds yet"]
    )
    return "\n".join([f"{table}", "(MiB)", *counting])


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    share = one["share_bytes"]
    part = f"{100 * one['bytes'] / share:.0f} %" if share else "-"
    parts = (one[name] for name in ("submitted", "output", "files", "checkpoints"))
    return (one["department"], _mib(one["bytes"]), _mib(share), part, *(_mib(count) for count in parts))


def _mib(count: int) -> str:
    return f"{count / _MIB:.1f}"
