"""A workflow: four steps, one of them an array, submitted at once; the cloud starts each when those before it have completed.

    python workflow.py [--data DIR] [--user alice] DIRECTORY TEXT

        split ──▶ count (an array) ──▶ merge ──▶ report

It counts the words of TEXT.  The steps pass files on in DIRECTORY, which all hosts must see, and every job be able to write to.
Each job has a request id made of DIRECTORY: a program that was interrupted and is started again finds its jobs, and waits for
them, instead of submitting others.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
from pathlib import Path

from phoenix.client import Client, JobOptions, PhoenixError, Submitted

PARTS = 3
SPLIT = f"""#!/bin/sh -e
awk '{{ print > "part." (NR % {PARTS} + 1) }}' text
"""
COUNT = """#!/bin/sh -e
exec < part."$PHOENIX_ARRAY_TASK_ID"
tr -cs '[:alpha:]' '\\n' | sort | uniq -c > counted."$PHOENIX_ARRAY_TASK_ID"
"""
MERGE = """#!/bin/sh -e
awk '{ sum[$2] += $1 } END { for (word in sum) if (word != "") print sum[word], word }' counted.* | sort -k1,1nr -k2 > merged
"""
REPORT = """#!/bin/sh -e
head -n 3 merged
"""


class Workflow:
    """Steps in `directory`."""

    def __init__(self, phoenix: Client, directory: Path) -> None:
        self.phoenix, self.directory = phoenix, directory
        self.steps: list[Submitted] = []

    async def step(self, name: str, script: str, *after: Submitted, array: str | None = None) -> Submitted:
        options: JobOptions = {"name": name, "script": script, "array": array, "walltime_s": 600}
        options["directory"] = str(self.directory)
        request = hashlib.sha256(f"{self.directory}/{name}".encode()).hexdigest()
        job = await self.phoenix.submit(after=after or None, request=request, **options)
        print(f"{name}: job {job}", file=sys.stderr)
        self.steps.append(job)
        return job

    async def finish(self) -> None:
        """Wait for each step; after one that failed the others would wait for ever, so they are cancelled."""
        for number, job in enumerate(self.steps):
            end = await self.phoenix.wait(job, timeout_s=3600)
            if not end.succeeded:
                await self.phoenix.cancel(*self.steps[number + 1 :])
                named = end.units[0].unit if end.units else end.unit
                wrote = await self.phoenix.read_output(named, stream="stderr")
                raise SystemExit(f"{end.name} is {end.state}: {wrote.decode(errors='replace').strip()}")


async def main(args: argparse.Namespace) -> int:
    (args.directory / "text").write_bytes(args.text.read_bytes())
    async with Client.find(args.data, user=args.user) as phoenix:
        flow = Workflow(phoenix, args.directory)
        split = await flow.step("split", SPLIT)
        count = await flow.step("count", COUNT, split, array=f"1-{PARTS}")
        merge = await flow.step("merge", MERGE, count)
        report = await flow.step("report", REPORT, merge)
        for sentence in (await phoenix.why(report)).sentences:
            print(f"report: {sentence}", file=sys.stderr)
        await flow.finish()
        print((await phoenix.read_output(report)).decode(), end="")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="the directory of an embedded cloud")
    parser.add_argument("--user")
    parser.add_argument("directory", type=lambda text: Path(text).resolve())
    parser.add_argument("text", type=Path)
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except PhoenixError as error:
        sys.exit(f"{error} {error.hint}".strip())
