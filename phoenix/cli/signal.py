"""`phoenix signal DEPT …`: publish a web department's load or a claim, as its load balancer does."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from phoenix.cli import cloud, printing
from phoenix.cli.errors import DENIED, CliError, in_words, usage
from phoenix.cli.http import Client, quote
from phoenix.cli.parser import amount, at_least_zero, worded
from phoenix.cli.units import parse_time_s

HELP: Final = """examples:
  phoenix signal web 0.9                          once: the instances' CPUs are at 90 %
  phoenix signal web 0.9 --for 30s                every second for half a minute (the rule looks at a window)
  phoenix signal web --requests 400 --target 100  400 requests/s came in, and an instance is to serve 100
  phoenix signal web --claim 5 --for 10m          five instances, whatever the load, for ten minutes
  phoenix scale web 4                             to say a number of instances instead

A signal counts until the next one; what counts how long, and how signals combine: docs/reference/signals.md."""
MAX: Final = 10.0  # utilisation is 0 to 1; above it an overloaded department may report its backlog
EVERY_LEAST_S: Final = 0.05  # more often is not looked at
SOURCE: Final = "phoenix signal"
_OPTIONS: Final = {
    "instances": "--claim",
    "rate": "--requests",
    "target": "--target",
    "interval_s": "--every",
}  # of fields
_ALLOWED: Final = {  # by the field that was refused
    "instances": "a manager of the department may (--as MANAGER); or raise its claim_max_user in the configuration",
    "user": "a manager of the department may (--as MANAGER); or name the user in its balancers in the configuration",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", metavar="DEPT")
    parser.add_argument(
        "value", type=worded(_utilisation), nargs="?", metavar="VALUE", help="CPU utilisation: 0.9 is 90 %%"
    )
    parser.add_argument("--requests", type=amount, metavar="RATE", help="requests that came in, per second")
    parser.add_argument(
        "--target", type=amount, metavar="RATE", help="requests per second that one instance is to serve"
    )
    parser.add_argument("--claim", type=at_least_zero, metavar="N", help="the total number of instances wanted")
    parser.add_argument(
        "--for", dest="for_time", type=worded(parse_time_s), metavar="TIME", help="repeat for this long"
    )
    parser.add_argument(
        "--every", type=worded(parse_time_s), default="1s", metavar="TIME", help="how often (default 1s)"
    )


def run(args: argparse.Namespace) -> int:
    until = time.monotonic() + (args.for_time or 0.0)
    every_s = max(EVERY_LEAST_S, args.every)
    name, content = _content(args, every_s)
    where = cloud.find(args)
    where.check_web(args.department, "its queue determines the hosts that it needs; signals are for web departments")
    # To claim is to scale, which not every user may.
    client = where.operator() if name == "claim" else where.member(args.department)
    path = f"/v1/signals/{quote(args.department)}/{name}"
    sent = 0
    while True:
        # No `at`: it counts when it arrives, whatever this machine's clock says.
        try:
            answer = post_signal(client, path, {**content, "source": SOURCE})
        except CliError as error:
            raise in_words(error, _OPTIONS) from error
        sent += 1
        if time.monotonic() + every_s > until:
            break
        time.sleep(every_s)
    if args.json:
        printing.json({**answer, "sent": sent})
    return 0


def post_signal(client: Client, path: str, content: dict[str, object]) -> Any:
    """What the department's configuration refuses has another remedy than another credential alone."""
    try:
        return client.post(path, content)
    except CliError as error:
        hint = _ALLOWED.get(str((error.answer or {}).get("field"))) if error.code == DENIED else None
        raise error if hint is None else CliError(DENIED, error.message, hint, error.answer) from None


def _content(args: argparse.Namespace, every_s: float) -> tuple[str, dict[str, object]]:
    """Name and payload of the signal."""
    if [args.value, args.requests, args.claim].count(None) != 2:
        raise usage(
            "give one of VALUE, --requests or --claim", "phoenix signal web 0.9, or --requests 400, or --claim 5"
        )
    if args.target is not None and args.requests is None:
        raise usage("--target goes with --requests", "phoenix signal web --requests 400 --target 100")
    if args.claim is not None:
        return "claim", {"instances": args.claim}
    if args.requests is not None:
        target = {} if args.target is None else {"target": args.target}
        return "requests", {"rate": args.requests, "interval_s": every_s, **target}
    return "cpu", {"utilisation": args.value, "interval_s": every_s}


def _utilisation(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= MAX:  # neither is what is not a number
        raise ValueError(f"{text!r} is no utilisation: write 0.9 for 90 %; at most {MAX:g}")
    return found
