"""`phoenix releases DEPT`: what a web department's instances ran, run and are to run."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, printing, tables
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client, quote
from services.domain import text as sentences

HELP: Final = """examples:
  phoenix releases web           the newest first; how far each is, and how many instances run it
  phoenix releases web --json    with all that each of them is
Releases: docs/howto/deploy.md"""
HEAD: Final = ("RELEASE", "STATE", "IMAGE", "WHEN", "BY", "INSTANCES")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", metavar="DEPT")


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    where.check_web(args.department, "only web departments have releases")
    client = where.operator()
    answer = client.get(f"/v1/departments/{quote(args.department)}/releases")
    if answer.get("state") == "rolling" and (reason := stuck(client, args.department)):
        answer["stuck"] = reason
    printing.answer(answer, render, as_json=args.json)
    return 0


def stuck(client: Client, department: str) -> dict[str, Any] | None:
    """Why a rolling update makes no progress, which its scheduler knows: for want of a host, or since its instances fail, or
    do not get healthy."""
    try:
        reasons = client.get(f"/v1/why/{quote(department)}").get("reasons") or []
    except CliError:
        return None  # it is a word beside what was asked for
    for code, needed in (("roll_stuck", "hosts"), ("rolling", "unit"), ("starting", "answer")):
        for reason in reasons:
            if reason["code"] == code and needed in reason:
                return dict(reason)
    return None


def render(answer: dict[str, Any]) -> str:
    found = answer["releases"]
    table = tables.render(HEAD, [_row(one) for one in found], right="RELEASE")
    failed = [one for one in found[:1] if one["state"] in ("rolled_back", "stopped") and one.get("reason")]
    lines = [sentences.capital(sentences.sentence(one["reason"])) for one in failed]  # until the next deploy
    if reason := answer.get("stuck"):
        lines.append(sentences.capital(sentences.sentence(reason)))
        lines.append(f"To unblock it: {sentences.remedy(reason)}")
    return "\n".join([table, *lines])


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    live, serving = int(one["instances"]), int(one["instances_serving"])
    instances = f"{live} ({serving} in service)" if live != serving else str(live)
    when = one["requested_at"] or "(configuration)"
    state = str(one["state"]).replace("_", " ")
    return (str(one["release"]), state, one["image"] or "-", when, one["user"] or "-", instances)
