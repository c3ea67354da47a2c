"""`phoenix why JOB`: the reasons why it waits, heaviest first, and what would unblock it."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import ailing, cloud, emit
from phoenix.cli.errors import UNREACHABLE, CliError
from phoenix.cli.http import Client, quote
from phoenix.cli.parser import job_or_department
from schemas import sentences

HELP: Final = """examples:
  phoenix why 17           the reasons, ranked, and what would unblock it
  phoenix why shop         a web department: why it has the instances and hosts that it has
  phoenix why 17 --json    as data: code and parameters of each reason"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        type=job_or_department,
        metavar="JOB",
        help="a job (17), an array's element (18_3), an instance (web.7) or a web department (web)",
    )


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    try:
        answer = where.operator().get(f"/v1/why/{args.job}")
    except CliError as error:
        if error.code == UNREACHABLE:
            ailing.tell(where)
        raise
    answer.setdefault("job", args.job)
    answer.setdefault("what", "job" if args.job[0].isdecimal() else "instance" if "." in args.job else "department")
    problems = _problems(where.operator(), args.job, str(answer["what"]))
    if args.json:
        told = [sentences.capital(sentences.sentence(reason)) for reason in reasons(answer)]
        emit.json(answer | {"sentences": told} | ({"problems": problems} if problems else {}))
    else:
        print("\n".join([render(answer), *(f"  {problem}" for problem in problems)]))
    return 0


def _problems(client: Client, name: str, what: str) -> list[str]:
    """Why instances that boot cannot, which the door knows and no scheduler: a secret that is missing."""
    if what == "job":
        return []
    try:
        listed = client.get(f"/v1/departments/{quote(name.partition('.')[0])}/instances")["instances"]
    except CliError:
        return []  # it is a word beside what was asked for
    found = [f"{one['unit']} cannot boot: {one['problem']}" for one in listed if one.get("problem")]
    return [told for told in found if what == "department" or told.startswith(f"{name} ")]


def reasons(answer: dict[str, Any]) -> list[Any]:
    """All of them, in the order of the scheduler's own record."""
    found = answer.get("reasons")
    if found is None:
        found = answer.get("reason")
    return found if isinstance(found, list) else [found] if found else []


def render(answer: dict[str, Any]) -> str:
    found = reasons(answer)
    state = answer.get("state")
    unit = answer.get("unit") or answer["job"]
    element = "" if unit == answer["job"] else f", its element {unit} (each has reasons of its own)"
    head = f"{answer.get('what') or 'job'} {answer['job']}{element}" + (f" is {state}" if state else "")
    if not found:
        return head
    lines = [f"{head}:"]
    for rank, reason in enumerate(found, 1):
        lines.append(f"  {rank}. {sentences.capital(sentences.sentence(reason))}")
        remedy = sentences.remedy(reason)
        if remedy:
            lines.append(f"     To unblock it: {_named(remedy, answer)}")
    return "\n".join(lines + _extra(answer))


def _named(remedy: str, answer: dict[str, Any]) -> str:
    """With the names of what was asked about for the placeholders of the sentence."""
    asked = str(answer["job"])
    if answer.get("what") in ("department", "instance"):
        remedy = remedy.replace("DEPARTMENT", asked.partition(".")[0])
    return remedy.replace("JOB", asked)


def _extra(answer: dict[str, Any]) -> list[str]:
    """What the scheduler itself says would unblock it."""
    unblock = answer.get("unblock")
    if not unblock:
        return []
    items = unblock if isinstance(unblock, list) else [unblock]
    return ["  What would unblock it: " + "; ".join(sentences.sentence(item) for item in items)]
