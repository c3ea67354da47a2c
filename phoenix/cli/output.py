"""`phoenix output JOB`: what it wrote, kept by the cloud, and the files that it asked to keep."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from phoenix.cli import cloud, printing, show, tail, waiting
from phoenix.cli.errors import usage
from phoenix.cli.http import Client, query, quote
from phoenix.cli.parser import at_least_zero, count, job_id

NAME_DEFAULT: Final = "phoenix-%j.out"  # as slurm-%j.out
HELP: Final = """examples:
  phoenix output 17                 what job 17 wrote to stdout
  phoenix output 17 --follow        continue while it runs
  phoenix output 17 --stderr        the other stream
  phoenix output 17 --save          into the file of -o, or phoenix-17.out
  phoenix output 17 --files         the files that --keep kept
  phoenix output 17 --file r.dat    one of them, to stdout"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=job_id, metavar="JOB", help="a job (17) or an array's element (18_3)")
    parser.add_argument("--follow", "-f", action="store_true", help="continue until the job has ended")
    parser.add_argument("--stderr", "-e", action="store_true", help="stderr instead of stdout")
    parser.add_argument(
        "--rank", type=at_least_zero, metavar="R", help="the output of this node of a multi-node job (default 0)"
    )
    parser.add_argument(
        "--attempt", type=_attempt, metavar="N", help="the output of this attempt (default: the latest)"
    )
    parser.add_argument(
        "--save", nargs="?", const="", metavar="FILE", help="write it to a file; %%j is the job, - stdout"
    )
    parser.add_argument("--files", action="store_true", help="list the files that were kept")
    parser.add_argument("--file", metavar="NAME", help="write one of them to stdout")


def _attempt(text: str) -> str:
    return text if text == "latest" else str(count(text))


def run(args: argparse.Namespace) -> int:
    client = cloud.find(args).operator()
    base = f"/v1/jobs/{args.job}"
    if args.files:
        return _files(client, base, args.json)
    if args.file is not None:
        return tail.write(client.fetch("GET", f"{base}/files/{quote(args.file)}").body)
    if args.save is not None:
        return _save(client, args)
    if args.json:
        stream = "stderr" if args.stderr else "stdout"
        answer = client.fetch("GET", _path(args, 0, None))
        removed = answer.headers.get("phoenix-removed")
        found = {"job": args.job, stream: answer.body.decode(errors="replace")}
        printing.json(found | ({"removed": removed} if removed else {}))
        return 0
    return _print(client, args)


def _path(args: argparse.Namespace, offset: int, wait_s: int | None) -> str:
    return query(
        f"/v1/jobs/{args.job}/output",
        stream="stderr" if args.stderr else "stdout",
        rank=args.rank,
        attempt=args.attempt,
        offset=offset,
        wait_s=wait_s,
    )


def _print(client: Client, args: argparse.Namespace) -> int:
    ended = tail.follow(client, lambda offset, wait_s: _path(args, offset, wait_s), args.follow)
    if not ended:
        print(f"phoenix: job {args.job} is not over: more may come (--follow waits for it)", file=sys.stderr)
    return 0


def _save(client: Client, args: argparse.Namespace) -> int:
    job = show.fetch(client, args.job)
    pattern = args.save or job.get("stderr" if args.stderr else "stdout") or NAME_DEFAULT
    if not isinstance(pattern, str):
        raise usage("save where?", "phoenix output JOB --save FILE")
    chosen = (None, pattern) if args.stderr else (pattern, None)
    written: list[Path] = waiting.save(client, job, *chosen, keeps=True)
    if written:
        print("\n".join(map(str, written)))
    return 0


def _files(client: Client, base: str, as_json: bool) -> int:
    answer = client.get(f"{base}/files")
    files = answer.get("files", [])
    if as_json:
        printing.json(answer)
    elif files:
        printing.text(
            "\n".join(f"{f['name']}  {f.get('size', '')}".rstrip() if isinstance(f, dict) else str(f) for f in files)
        )
    elif told := answer.get("removed"):
        print(f"no files are kept: {told}")
    else:
        print("no files were kept")
    return 0
