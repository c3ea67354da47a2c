"""`phoenix release JOB…`: lifts a hold."""

from __future__ import annotations

import argparse
from typing import Final

from phoenix.cli import jobs

HELP: Final = """examples:
  phoenix release 17   it may start again"""

add_arguments = jobs.add_arguments


def run(args: argparse.Namespace) -> int:
    return jobs.run("release", args)
