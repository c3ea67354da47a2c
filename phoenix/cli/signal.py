"""`phoenix signal DEPT 0.9`: publish a web department's CPU utilisation, as its load balancer does."""

from __future__ import annotations

import argparse
import time
from typing import Final

from phoenix.cli import cloud, emit
from phoenix.cli.errors import usage
from phoenix.cli.http import quote
from phoenix.cli.units import parse_time_s

HELP: Final = """examples:
  phoenix signal web 0.9               once: 90 %
  phoenix signal web 0.9 --for 30s     every second for half a minute (the rule looks at a window)
  phoenix scale web 4                  to say a number of instances instead"""
MAX: Final = 10.0  # utilisation is 0 to 1; above it an overloaded department may report its backlog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", metavar="DEPT")
    parser.add_argument("value", type=float, metavar="VALUE", help="utilisation: 0.9 is 90 %%")
    parser.add_argument("--for", dest="for_time", metavar="TIME", help="repeat for so long")
    parser.add_argument("--every", default="1s", metavar="TIME", help="how often (default 1s)")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.value <= MAX:
        raise usage(f"{args.value:g} is no utilisation", "0.9 is 90 %")
    try:
        until = time.monotonic() + (parse_time_s(args.for_time) if args.for_time else 0.0)
        every_s = max(0.05, parse_time_s(args.every))
    except ValueError as error:
        raise usage(str(error)) from error
    where = cloud.find(args)
    where.check_department(args.department)
    client = where.member(args.department)
    path = f"/v1/signals/{quote(args.department)}/cpu"
    sent = 0
    while True:
        answer = client.post(
            path, {"utilisation": args.value, "at": time.time(), "interval_s": every_s, "source": "phoenix signal"}
        )
        sent += 1
        if time.monotonic() + every_s > until:
            break
        time.sleep(every_s)
    if args.json:
        emit.json({**answer, "sent": sent})
    return 0
