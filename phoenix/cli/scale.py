"""`phoenix scale DEPT`: a person's word on a web department's number of instances, always within its maximum."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from phoenix.cli import cloud, printing, units
from phoenix.cli.errors import CliError, in_words, usage
from phoenix.cli.http import quote
from phoenix.cli.parser import at_least_zero
from phoenix.cli.retrying import ask_again

HELP: Final = """examples:
  phoenix scale web 4              at least 4 instances
  phoenix scale web 4 --for 2h     the same, for two hours
  phoenix scale web --exact 3      3, whatever the load
  phoenix scale web --auto         the load decides again"""


_OPTIONS: Final = {
    "minimum": "N",
    "exact": "--exact",
    "for_s": "--for",
    "request": "--request",
}  # of fields of the request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", metavar="DEPT")
    parser.add_argument("minimum", nargs="?", type=at_least_zero, metavar="N", help="at least N instances")
    parser.add_argument(
        "--exact", type=at_least_zero, nargs="?", const=-1, metavar="N", help="exactly N, whatever the load"
    )
    parser.add_argument(
        "--for", dest="for_time", metavar="TIME", help="how long this holds: 30m, 2h (default: until changed)"
    )
    parser.add_argument("--request", metavar="ID", help="client request id: the same id is done only once")
    parser.add_argument("--auto", action="store_true", help="drop the minimum and the exact number: the load decides")


def run(args: argparse.Namespace) -> int:
    minimum, exact = _wish(args)
    for_s = _duration(args.for_time)
    where = cloud.find(args)
    where.check_web(args.department, "its queue determines the hosts that it needs; only web departments can be scaled")
    body: dict[str, Any] = {"minimum": minimum, "exact": exact, "for_s": for_s, "auto": args.auto}
    body["request"] = args.request or os.urandom(12).hex()
    try:
        answer = ask_again(where.operator(), f"/v1/departments/{quote(args.department)}/scale", body)
    except CliError as error:
        raise in_words(error, _OPTIONS) from error
    if args.json:
        printing.json(answer)
        return 0
    wish = "the load decides" if args.auto else f"exactly {exact}" if exact is not None else f"at least {minimum}"
    print(f"{args.department}: {wish}{f' for {units.span(for_s)}' if for_s else ''}")
    return 0


def _wish(args: argparse.Namespace) -> tuple[int | None, int | None]:
    """(minimum, exact); `scale web 3 --exact` means the same as `scale web --exact 3`."""
    minimum, exact = args.minimum, args.exact
    if exact == -1:
        minimum, exact = None, minimum
        if exact is None:
            raise usage("--exact needs a number", f"phoenix scale {args.department} --exact 3")
    if args.auto and (minimum is not None or exact is not None or args.for_time):
        raise usage("--auto goes alone: it drops every number", f"phoenix scale {args.department} --auto")
    if not args.auto and (minimum is None) == (exact is None):
        raise usage("give one of N, --exact N or --auto", f"phoenix scale {args.department} 4")
    return minimum, exact


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = units.parse_time_s(text)
    except ValueError as error:
        raise usage(f"--for: {error}") from error
    if seconds <= 0:
        raise usage("--for: a time above 0 is needed", "--for 2h")
    return seconds
