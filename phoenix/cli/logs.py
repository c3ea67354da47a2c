"""`phoenix logs INSTANCE`: the logs of a web instance, also when it is gone; of a job, as `output`."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from phoenix.cli import cloud, printing, tail
from phoenix.cli.http import query
from phoenix.cli.parser import job_id

HELP: Final = """examples:
  phoenix logs web.7                what instance web.7 wrote to stdout: the last 4 MiB
  phoenix logs web.7 --follow       continue until it has ended
  phoenix logs web.7 --stderr       the other stream
  phoenix logs 17                   of a job: what phoenix output 17 shows

The logs of a department's last 200 instances that have ended are kept; phoenix instances --all names the last ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("unit", type=job_id, metavar="INSTANCE", help="an instance (web.7), or a job")
    parser.add_argument("--follow", "-f", action="store_true", help="continue until it has ended")
    parser.add_argument("--stderr", "-e", action="store_true", help="stderr instead of stdout")


def run(args: argparse.Namespace) -> int:
    client = cloud.find(args).operator()
    if args.json:
        stream = "stderr" if args.stderr else "stdout"
        answer = client.fetch("GET", _path(args, 0, None))
        printing.json({"instance": args.unit, stream: answer.body.decode(errors="replace")})
        return 0
    wrote = tail.Wrote()
    tail.follow(client, lambda offset, wait_s: _path(args, offset, wait_s), args.follow, wrote)
    if not wrote.size:
        print("(nothing was written)", file=sys.stderr)
    return 0


def _path(args: argparse.Namespace, offset: int, wait_s: int | None) -> str:
    kind = "instances" if "." in args.unit else "jobs"
    return query(
        f"/v1/{kind}/{args.unit}/output",
        stream="stderr" if args.stderr else "stdout",
        offset=offset,
        wait_s=wait_s,
    )
