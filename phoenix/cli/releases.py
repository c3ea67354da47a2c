"""`phoenix releases DEPT`: what a web department's instances ran, run and are to run."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, emit, sentences, tables
from phoenix.cli.http import quote

HELP: Final = """examples:
  phoenix releases web           the newest first; how far each is, and how many instances run it
  phoenix releases web --json    with all that each of them is
Releases: docs/deploy.md"""
HEAD: Final = ("RELEASE", "STATE", "IMAGE", "WHEN", "BY", "INSTANCES")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", metavar="DEPT")


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    where.check_department(args.department)
    answer = where.operator().get(f"/v1/departments/{quote(args.department)}/releases")
    if args.json:
        emit.json(answer)
    else:
        print(render(answer))
    return 0


def render(answer: dict[str, Any]) -> str:
    found = answer["releases"]
    table = tables.render(HEAD, [_row(one) for one in found], right="RELEASE")
    failed = [one for one in found if one["state"] in ("rolled_back", "stopped") and one.get("reason")]
    return "\n".join([table, *(sentences.capital(sentences.sentence(one["reason"])) for one in failed[:1])])


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    live, serving = int(one["instances"]), int(one["instances_serving"])
    instances = f"{live} ({serving} in service)" if live != serving else str(live)
    when = one["requested_at"] or "(configuration)"
    state = str(one["state"]).replace("_", " ")
    return (str(one["release"]), state, one["image"] or "-", when, one["user"] or "-", instances)
