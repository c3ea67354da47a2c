"""Submit a job, follow what it writes, and say how it has ended.

python hello.py [--data DIR] [--user alice] COMMAND…
"""

import argparse
import asyncio
import sys

from phoenix.client import Client, Invalid, OverLimit, PhoenixError


async def main(args: argparse.Namespace) -> int:
    async with Client.find(args.data, user=args.user) as phoenix:
        try:
            job = await phoenix.submit(argv=args.command, walltime_s=600)
        except Invalid as error:
            print(f"{error.field} is wrong: {error}", file=sys.stderr)
            return 2
        except OverLimit as error:
            print(f"try again in {error.retry_after_s} s: {error}", file=sys.stderr)
            return 1
        for sentence in (await phoenix.why(job)).sentences:
            print(f"job {job}: {sentence}", file=sys.stderr)
        async for part in phoenix.output(job):
            sys.stdout.buffer.write(part)
            sys.stdout.flush()
        end = await phoenix.wait(job, timeout_s=60)
        print(f"job {job} is {end.state}", file=sys.stderr)
        return 0 if end.succeeded else end.exit_code or 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="the directory of an embedded cloud")
    parser.add_argument("--user")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except PhoenixError as error:
        sys.exit(f"{error} {error.hint}".strip())
