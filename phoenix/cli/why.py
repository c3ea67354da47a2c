"""`phoenix why NAME`: why a job waits, heaviest reason first, what would unblock it, and when it starts; why an instance, a
department or a host is as it is."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from phoenix.cli import cloud, health_notes, printing
from phoenix.cli.errors import UNREACHABLE, CliError
from phoenix.cli.http import Client, quote
from phoenix.cli.parser import entity, named
from services.domain import text as sentences
from services.domain.text.starts import when_it_starts

HELP: Final = """examples:
  phoenix why 17           the reasons, ranked, what would unblock it, and when it starts
  phoenix why shop         a web department: why it has the instances and hosts that it has
  phoenix why hpc          a batch department: why it has no more hosts, and who has them
  phoenix why host003      a host: why it is where it is, and its last moves
  phoenix why 17 --json    as data: code and parameters of each reason"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        type=entity,
        metavar="NAME",
        help="a job (17), an array's element (18_3), an instance (web.7), a department (web) or a host (host003)",
    )


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    name, kind = named(args.job)
    try:
        answer = where.operator().get(f"/v1/why/{quote(name)}", kind=kind)
    except CliError as error:
        if error.code == UNREACHABLE:
            health_notes.tell(where)
        raise
    if "reasons" not in answer:  # of a host, or a batch department
        printing.answer(answer, render_told, as_json=args.json)
        return 0
    return _of_scheduler(where, answer, name, args.json)


def _of_scheduler(where: cloud.Cloud, answer: dict[str, Any], name: str, as_json: bool) -> int:
    """Of a job, an instance or a web department: reasons."""
    answer.setdefault("job", name)
    answer.setdefault("what", "job" if name[0].isdecimal() else "instance" if "." in name else "department")
    problems = _problems(where.operator(), name, str(answer["what"]))
    if as_json:
        told = [sentences.capital(sentences.sentence(reason)) for reason in reasons(answer)]
        printing.json(answer | {"sentences": told} | ({"problems": problems} if problems else {}))
    else:
        printing.text("\n".join([render(answer, time.time()), *(f"  {problem}" for problem in problems)]))
    return 0


def render_told(answer: dict[str, Any]) -> str:
    """A host, or a batch department: sentences, and the last decisions."""
    lines = [f"{answer['what']} {answer['name']}:"]
    for rank, (sentence, remedy) in enumerate(zip(answer["sentences"], answer["remedies"], strict=True), 1):
        lines.append(f"  {rank}. {sentence}")
        if remedy:
            lines.append(f"     To change it: {remedy}")
    if answer["what"] == "host" and answer.get("moves"):
        lines.append("  Its last moves (phoenix story has all):")
        lines += [f"    {step['at']}  {step['sentence']}" for step in answer["moves"]]
    return "\n".join(lines)


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


def render(answer: dict[str, Any], now: float = 0.0) -> str:
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
    if answer.get("start"):
        lines.append(f"  When it starts: {when_it_starts(answer['start'], now, sentences.sentence)}.")
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
