"""Handle each event of a department once, also over restarts of this program and of the cloud.

    python watch.py [--data DIR] [--user alice] [--last KIND] FILE

The id of the last event that was handled is kept in FILE.  With `--last` it ends behind the first event of that kind.
"""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from phoenix.client import Client, Gone, PhoenixError


async def main(args: argparse.Namespace) -> int:
    after: int | str = args.file.read_text() if args.file.exists() else 0
    async with Client.find(args.data, user=args.user) as phoenix:
        while True:
            try:
                async with contextlib.aclosing(phoenix.events(after=after)) as events:
                    async for event in events:
                        print(
                            f"{event.at:%H:%M:%S} {event.kind} {event.fact.get('unit') or event.fact.get('job') or ''}"
                        )
                        args.file.write_text(event.id)  # it is handled
                        if event.kind == args.last:
                            return 0
            except Gone as error:
                print(f"events up to {error.oldest} are lost: read the queue again", file=sys.stderr)
                after = error.oldest


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="the directory of an embedded cloud")
    parser.add_argument("--user")
    parser.add_argument("--last", metavar="KIND")
    parser.add_argument("file", type=Path)
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except PhoenixError as error:
        sys.exit(f"{error} {error.hint}".strip())
