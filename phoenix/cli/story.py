"""`phoenix story NAME`: the whole life of a job, an instance, a host or a department, with what led to each step."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from phoenix.cli import cloud, printing, units
from phoenix.cli.http import quote
from phoenix.cli.parser import count, entity, named
from phoenix.cli.period import add_since, instant
from schemas.control_characters import shown

LAST: Final = 100  # steps shown when nothing else is asked for
HELP: Final = """examples:
  phoenix story 17                 a job, from its submission to its end
  phoenix story host003 --last 20  a host: whose it was, what ran there, and why it moved
  phoenix story web --since 1h     a department: what it wanted and had, and who asked
  phoenix story 17 --json          as data: position, sentence, reason and causes of each step"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "entity",
        type=entity,
        metavar="NAME",
        help="a job (17), an array's element (18_3), a lease, an instance (web.7), a department (web) or a host (host003)",
    )
    parser.add_argument("--last", "-n", type=count, default=LAST, metavar="N", help=f"how many (default {LAST})")
    add_since(parser)


def run(args: argparse.Namespace) -> int:
    name, kind = named(args.entity)
    since = None if args.since is None else instant("--since", args.since, time.time())
    answer = (
        cloud.find(args).operator().get(f"/v1/story/{quote(name)}", kind=kind, limit=args.last, since=units.when(since))
    )
    printing.answer(answer, render, as_json=args.json)
    return 0


def render(answer: dict[str, Any]) -> str:
    whose = f" of {answer['department']}" if answer.get("department") and answer["kind"] != "department" else ""
    lines = [f"{answer['kind']} {answer['entity']}{whose}:"]
    if answer.get("more"):
        lines.append("  … what came before is not shown (--last shows more, as far as it is kept)")
    for step in answer["steps"]:
        lines.append(f"  {step['at']}  {shown(step['sentence'])}")
        lines += [f"      because {shown(cause['sentence'])}  ({_ago(step, cause)})" for cause in step["because"]]
    if not answer["steps"]:
        lines.append("  nothing is known of it in that time")
    return "\n".join(lines)


def _ago(step: dict[str, Any], cause: dict[str, Any]) -> str:
    """How long before the step its cause was."""
    between = (units.seconds(step["at"]) or 0.0) - (units.seconds(cause["at"]) or 0.0)
    return f"{between:.3f} s before" if between < 60 else f"{units.span(between)} before"
