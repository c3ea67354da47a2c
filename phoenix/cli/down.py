"""`phoenix down`: stop the cloud; what ran is requeued at the next `phoenix up`."""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import sys
import time
from pathlib import Path
from typing import Final

from phoenix.cli import cloud
from phoenix.cli.errors import FAILED, OK, UNREACHABLE, CliError

GONE_S: Final = 20.0  # the supervisor ends after its last child
ASK_S: Final = 0.02
HELP: Final = """examples:
  phoenix down             the data stays: `phoenix up` continues where it was
  phoenix down --purge     delete the data, too"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--purge", action="store_true", help="delete the data")
    parser.add_argument("--hard", action="store_true", help="kill everything at once instead of stopping it in order")


def run(args: argparse.Namespace) -> int:
    from phoenix.local.control import NotRunningError, call
    from phoenix.local.stack_layout import layout

    where = layout(cloud.data_dir(args))
    if not where.data.is_dir():
        raise CliError(
            UNREACHABLE, f"there is no cloud in {where.data}", "name its directory with --data or $PHOENIX_DATA"
        )
    supervisor = _supervisor(where.lock)
    try:
        call(
            where,
            {"op": "down", "hard": args.hard},
            lambda text: print(f"phoenix: {text}", file=sys.stderr, flush=True),
        )
    except NotRunningError as error:
        if _locked(where.lock):
            raise CliError(FAILED, f"{error}; it may be starting: try again") from error
        if not args.purge:
            raise CliError(UNREACHABLE, f"no cloud is running in {where.data}", "phoenix up starts one") from error
    _wait_until_gone(where.lock, supervisor)
    if args.purge:
        _purge(where.data)
    return OK


def _supervisor(lock: Path) -> int | None:
    """A descriptor of the supervisor's process, taken while it lives so that its number cannot mean another."""
    try:
        return os.pidfd_open(int(lock.read_text()))
    except (OSError, ValueError):
        return None


def _wait_until_gone(lock: Path, supervisor: int | None) -> None:
    deadline = time.monotonic() + GONE_S
    if supervisor is not None:
        select.select([supervisor], [], [], GONE_S)
        os.close(supervisor)
    while _locked(lock):
        if time.monotonic() > deadline:
            raise CliError(FAILED, f"the supervisor did not end within {GONE_S:.0f} s", "phoenix down --hard")
        time.sleep(ASK_S)


def _locked(lock: Path) -> bool:
    """True while a supervisor lives there."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _purge(data: Path) -> None:
    """Delete what `up` has made there, and the directory if nothing else is in it: `--data .` is a thing people type."""
    from phoenix.local.process.removal import remove
    from phoenix.local.stack_layout import CONTENT

    if not (data / "run" / "lock").exists():
        raise CliError(FAILED, f"{data} does not look like a cloud's data directory: nothing was deleted")
    try:
        for path in [path for pattern in CONTENT for path in data.glob(pattern)]:
            remove(path)
        others = sorted(path.name for path in data.iterdir())
        if not others:
            data.rmdir()
    except OSError as error:
        raise CliError(FAILED, f"{error.filename}: {error.strerror}") from error
    if others:
        print(f"phoenix: {data} stays, other files are in it: {', '.join(others[:5])}", file=sys.stderr)
