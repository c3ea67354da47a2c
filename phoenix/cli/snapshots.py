"""`phoenix snapshots rebuild [PROCESS…]`: the services' snapshots rebuilt from the journal.

Each is made by its own service's program, which alone knows how its state is folded; the running service is not disturbed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from phoenix.cli import cloud, local_audit, suggest
from phoenix.cli.errors import FAILED, OK, CliError, usage

VERBS: Final = ("rebuild",)
HELP: Final = """examples:
  phoenix snapshots rebuild                  of every service
  phoenix snapshots rebuild scheduler.hpc    of one (names as in `phoenix status`)

A snapshot only shortens a start. The journal is read from its beginning and not changed; a service reads its snapshot when it
starts. Exit code: 0 made, 1 one could not be made, 3 no cloud is running"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", metavar="rebuild")
    parser.add_argument("processes", nargs="*", metavar="PROCESS")


def run(args: argparse.Namespace) -> int:
    if args.verb not in VERBS:
        raise usage(f"snapshots has no {args.verb!r}", suggest.hint(args.verb, VERBS))
    from services.runtime.config.file import load

    file = Path(cloud.describe(cloud.data_dir(args))["config"])
    known = list(load(file).processes())
    for name in args.processes:
        if name not in known:
            raise usage(f"there is no snapshot of {name!r}", suggest.hint(name, known))
    local_audit.record(file, "snapshots.rebuild", *(args.processes or known))
    failed = [name for name in args.processes or known if not _rebuild(name, file)]
    if failed:
        raise CliError(FAILED, f"no new snapshot of {', '.join(failed)}")
    return OK


def _rebuild(process: str, file: Path) -> bool:
    """True if it was made; the program says where, or why not.  It has a deadline of its own."""
    name, _, department = process.partition(".")
    words = [sys.executable, "-m", f"services.{name}", "--config", str(file), "--rebuild-snapshot"]
    return subprocess.run([*words, *(["--department", department] if department else [])], check=False).returncode == 0
