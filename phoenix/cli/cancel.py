"""`phoenix cancel JOB…`: ends jobs: those that wait at once, those that run by a stop."""

from __future__ import annotations

import argparse
from typing import Final

from phoenix.cli import jobs

HELP: Final = """examples:
  phoenix cancel 17            one job
  phoenix cancel 17 18_3       a job, and one element of an array"""

add_arguments = jobs.add_arguments


def run(args: argparse.Namespace) -> int:
    return jobs.run("cancel", args)
