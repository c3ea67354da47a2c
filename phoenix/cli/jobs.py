"""What cancel, hold and release share: one request for several jobs, and an answer for each."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from phoenix.cli import cloud, printing
from phoenix.cli.errors import DENIED, FAILED, OK, USAGE
from phoenix.cli.http import Client
from phoenix.cli.parser import job_id
from phoenix.cli.retrying import ask_again
from schemas.control_characters import shown

DONE: Final = {"cancel": "cancelled", "hold": "held", "release": "released"}
_CODES: Final = {"unknown": USAGE, "denied": DENIED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="+", type=job_id, metavar="JOB", help="jobs (17) and elements of arrays (18_3)")


def run(verb: str, args: argparse.Namespace) -> int:
    """Act on every job named; the exit code is that of the worst answer."""
    results = ask(cloud.find(args).operator(), verb, args.job)
    if args.json:
        printing.json({"results": results})
    code = OK
    for result in results:
        error = result.get("error")
        if error is None:
            if not args.json:
                print(f"{result['job']}: {DONE[verb]}")
            continue
        message = error.get("detail", "refused")
        named = message if f"job {result['job']}" in message else f"job {result['job']}: {message}"
        print(shown(f"phoenix: {named}"), file=sys.stderr)
        code = max(code, _CODES.get(error.get("code", ""), FAILED))
    return code


def ask(client: Client, verb: str, jobs: list[str]) -> list[dict[str, Any]]:
    """Each job's result.  Repeated after a lost answer: a job that is as it should be is no error."""
    answer = ask_again(client, f"/v1/jobs/{jobs[0]}/{verb}", {"jobs": jobs})
    results = answer.get("results")
    return list(results) if results is not None else [{"job": job} for job in jobs]
