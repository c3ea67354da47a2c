"""The job's side of `phoenix whatif`: the words of `phoenix submit`, and when and where it would start.

Rules
  1. The same parser and the same checks as `phoenix submit`; what that would refuse is refused here, in the same words.
  2. Only the job's shape is sent: neither the script nor its arguments, environment and files.
  3. A time that cannot be promised is not shown as a promise: how sure it is stands beside it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from phoenix.cli import cloud, printing, sbatch, units
from phoenix.cli import submit as submission
from phoenix.cli.errors import CliError
from phoenix.cli.http import query
from schemas.dimensions import words
from schemas.size import size_in
from schemas.words import claim_waits
from services.domain.text import capital, sentence

_CONTENT: Final = (
    "script",
    "argv",
    "environment",
    "inputs",
    "keep",
    "signal",
    "directory",
    "stdout",
    "stderr",
    "stdin",
)
_SURE: Final = {
    "planned": "planned: the department's order keeps room for it",
    "by_walltimes": "by the time limits of other jobs; most end sooner",
    "cannot_say": "",
}
HOSTS_SHOWN: Final = 8
VARIANTS_SHOWN: Final = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    submission.add_job(parser)


def run(args: argparse.Namespace) -> int:
    submission.trailing(args)
    script = submission.script_of(args)
    found = sbatch.read(script)
    options = submission.merged(args, found.options)
    for name in found.unsupported:
        print(f"phoenix: warning: not supported, so without effect: {name}", file=sys.stderr)
    where = cloud.find(args)
    department = where.department(args.department, "batch")
    client = where.member(department) if department else where.operator()
    asked = submission.request_of(args, options, script)
    try:
        answer = client.post(query("/v1/whatif", department=department), shape_of(asked))
    except CliError as error:
        raise sbatch.in_options(error, options) from error
    printing.answer(answer, render, as_json=args.json)
    return 0


def shape_of(asked: dict[str, Any]) -> dict[str, Any]:
    """What is sent of a submission (rule 2)."""
    return {**{name: value for name, value in asked.items() if name not in _CONTENT}, "argv": ["true"]}


def render(answer: dict[str, Any]) -> str:
    """The whole answer as people read it."""
    lines = [f"{_shape(answer)} in {answer['department']}:"]
    lines.append(f"  {capital(_when(answer['forecast'], answer))}")
    sure = _SURE[answer["forecast"]["sure"]]
    if not answer["now"]:
        lines += [f"  {capital(sentence(answer['forecast']['why']))}"]
        lines += [f"  How sure: {sure}."] if sure else []
    if answer.get("last"):
        lines.append(f"  Its last element: {_when(answer['last'], answer)}.")
    lines += [
        f"  With {_option(each)} {_when(each['forecast'], answer)}." for each in answer["variants"][:VARIANTS_SHOWN]
    ]
    cost = claim_waits(answer.get("claim_waits_s"))
    lines += [f"  {capital(cost)}"] if cost else []
    lines.append("Nothing was submitted.")
    return "\n".join(lines)


def _shape(answer: dict[str, Any]) -> str:
    on_each = " on each" if answer["nodes"] > 1 else ""
    many = f"an array of {answer['units']}, each " if answer["units"] > 1 else ""
    size = f"{units.count(answer['nodes'], 'host')}, {words(size_in(answer))}"
    return f"{many}{size}{on_each}, for at most {units.span(answer['walltime_s'])},"


def _when(forecast: dict[str, Any], answer: dict[str, Any]) -> str:
    at = units.seconds(forecast["start_at"])
    if at is None:
        return "its start cannot be predicted"
    wait_s = at - (units.seconds(answer["at"]) or at)
    when = "now" if wait_s < 1.0 else f"at {units.iso(at)}, in {units.span(wait_s)}"
    return f"it would start {when}{_where(forecast['hosts'])}"


def _where(hosts: list[str]) -> str:
    return f" on {units.some(hosts, HOSTS_SHOWN)}" if hosts else ""


def _option(variant: dict[str, Any]) -> str:
    """The variant as words of `phoenix submit`."""
    field, value = variant["field"], variant["value"]
    if field == "walltime_s":
        return f"--time {_time(float(value))}"
    words = {"nodes": f"--nodes {value}", "quality": f"--qos {value}", "best_effort": "--best-effort"}
    return words.get(field, "shared hosts (without --exclusive)")


def _time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
