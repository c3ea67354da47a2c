"""`phoenix hold JOB…`: keeps pending jobs from starting."""

from __future__ import annotations

import argparse
from typing import Final

from phoenix.cli import jobs

HELP: Final = """examples:
  phoenix hold 17      until: phoenix release 17"""

add_arguments = jobs.add_arguments


def run(args: argparse.Namespace) -> int:
    return jobs.run("hold", args)
