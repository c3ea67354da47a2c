"""`phoenix logs INSTANCE`: what an instance of a web department writes, also when it is gone; of a job, as `output`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from phoenix.cli import cloud, emit
from phoenix.cli.errors import UNREACHABLE, CliError
from phoenix.cli.http import Client, query
from phoenix.cli.output import FOLLOW_S, PAUSE_S
from phoenix.cli.parser import job_id

HELP: Final = """examples:
  phoenix logs web.7                what instance web.7 wrote to stdout: the last 4 MiB
  phoenix logs web.7 --follow       go on until it has ended
  phoenix logs web.7 --stderr       the other stream
  phoenix logs 17                   of a job: what phoenix output 17 shows

The logs of a department's last 200 instances that have ended are kept; phoenix instances --all names the last ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("unit", type=job_id, metavar="INSTANCE", help="an instance (web.7), or a job")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until it has ended")
    parser.add_argument("--stderr", "-e", action="store_true", help="stderr instead of stdout")


def run(args: argparse.Namespace) -> int:
    client = cloud.find(args).operator()
    if args.json:
        stream = "stderr" if args.stderr else "stdout"
        answer = client.fetch("GET", _path(args, 0, None))
        emit.json({"instance": args.unit, stream: answer.body.decode(errors="replace")})
        return 0
    return _print(client, args)


def _path(args: argparse.Namespace, offset: int, follow_s: int | None) -> str:
    kind = "instances" if "." in args.unit else "jobs"
    return query(
        f"/v1/{kind}/{args.unit}/output",
        stream="stderr" if args.stderr else "stdout",
        offset=offset,
        follow_s=follow_s,
    )


def _print(client: Client, args: argparse.Namespace) -> int:
    """Parts of the stream until its end; without --follow what there is now."""
    offset = 0
    while True:
        try:
            part = client.fetch("GET", _path(args, offset, FOLLOW_S if args.follow else None))
        except CliError as error:
            if not (args.follow and offset and error.code == UNREACHABLE):
                raise
            time.sleep(1.0)  # the door restarts: what was written waits for us
            continue
        sys.stdout.buffer.write(part.body)
        sys.stdout.buffer.flush()
        following = int(part.headers.get("phoenix-offset", offset + len(part.body)))
        moved, offset = following > offset, following
        if part.headers.get("phoenix-end", "true") == "true" or (not args.follow and not moved):
            return 0
        if not moved:
            time.sleep(PAUSE_S)
