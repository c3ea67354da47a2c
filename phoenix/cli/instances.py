"""`phoenix instances [DEPT]`: what web departments run, instance by instance."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, printing, tables
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client, query, quote
from phoenix.cli.last_output import last_words
from services.domain import text as sentences

HELP: Final = """examples:
  phoenix instances               those of all web departments
  phoenix instances web --all     also the last ones that have ended, and why
  phoenix instances web --json    for a program

states: booting, in-service, not-ready (its health check fails), draining (no new sessions; open ones end), stopped,
failed   (docs/reference/web.md)"""
HEAD: Final = ("INSTANCE", "STATE", "RELEASE", "HOST", "ADDRESS", "SINCE", "SESSIONS", "CPU", "NOTE")

WORDS_OF_MAX: Final = 5  # failed instances whose logs are looked into: each is a call, and the last ones tell
WORDS_CHARS_MAX: Final = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", nargs="?", metavar="DEPT", help="a web department (default: all of them)")
    parser.add_argument("--all", "-a", action="store_true", help="also the last ones that have ended")


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    if args.department is not None:
        where.check_department(args.department)
    client = where.operator()
    path = query("/v1/instances", department=args.department, all="1" if args.all else None)
    answer = client.get(path)
    answer["instances"] = _with_last_words(client, _with_problems(client, answer["instances"]))
    if args.json:
        printing.json(answer)
    else:
        printing.text(render(answer["instances"], args.department))
    return 0


def _with_problems(client: Client, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Why those that boot cannot, which the door knows: a secret that is missing."""
    problems: dict[str, str] = {}
    for dept in sorted({one["department"] for one in found if one["state"] == "booting"}):
        try:
            listed = client.get(f"/v1/departments/{quote(dept)}/instances")["instances"]
        except CliError:
            continue  # it is a note beside what was asked for
        problems |= {one["unit"]: one["problem"] for one in listed if one.get("problem")}
    return [{**one, "problem": problems.get(one["instance"], "")} for one in found]


def _with_last_words(client: Client, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the last ones that have failed, which come first, the last line that they wrote; the reason of some has it already."""
    failed = [one["instance"] for one in found if one["state"] == "failed" and not _quoted(one)]
    words = {unit: lines[-1] for unit in failed[:WORDS_OF_MAX] if (lines := last_words(client, unit))}
    return [{**one, "last_words": words.get(one["instance"], "")} for one in found]


def _quoted(one: dict[str, Any]) -> bool:
    return bool((one.get("why") or {}).get("said"))


def render(found: list[dict[str, Any]], department: str | None = None) -> str:
    if not found:
        return f"{department or 'no web department'} has no instances" if department else "there are no instances"
    return tables.render(HEAD, [_row(one) for one in found], right="RELEASE SESSIONS CPU")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    cpu, sessions = one.get("cpu"), one.get("sessions")
    return (
        one["instance"],
        one["state"],
        str(one["release"]),
        one.get("host") or "-",
        one.get("address") or "-",
        one.get("since") or "-",
        "-" if sessions is None else str(sessions),
        "-" if cpu is None else f"{cpu * 100:.0f} %",
        _note(one),
    )


def _note(one: dict[str, Any]) -> str:
    if one.get("problem"):
        return str(one["problem"])
    if one.get("drains_until"):
        return f"until {one['drains_until']} at the latest"
    if one.get("answer") and one["state"] in ("booting", "not-ready"):
        return str(one["answer"])
    words = f"; it wrote last: {one['last_words'][:WORDS_CHARS_MAX]}" if one.get("last_words") else ""
    return sentences.sentence(one["why"]) + words if one.get("why") else ""
