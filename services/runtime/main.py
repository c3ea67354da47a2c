"""How a service process starts and ends: arguments, configuration, one event loop, one exit code.

    python -m services.<name> --config FILE [--department D] [--instance ID] [--reaped ID,ID]
    python -m services.<name> --config FILE [--department D] --rebuild-snapshot

Rules
  1. All problems of the arguments and the file are reported together, and the process ends with code 2.
  2. The process never lingers: once its code is known it has EXIT_S to end, regardless of threads and cleanups.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.domain.exits import Exit, Stop
from services.runtime.config.file import ConfigError, load
from services.runtime.config.tables import Config
from services.runtime.log import configure
from services.runtime.rebuild import rebuild_as
from services.runtime.service import Service

EXIT_S: Final = 5.0  # threads in a hung call outlive asyncio's own shutdown
# The collector's thresholds.  The state is large and has no cycles: a pass over all of it takes 100 ms and finds
# nothing, so it comes seldom; one over what is new is short.
GC_THRESHOLDS: Final = (10_000, 10, 1_000)
_INSTANCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of a service.  `department` is empty for all but schedulers."""

    config_path: Path
    department: str
    instance: str
    reaped: tuple[str, ...]
    rebuild_snapshot: bool = False


def parse(process: str, argv: Sequence[str], *, department: bool = False) -> Options:
    """Read the arguments.  SystemExit(2) with a message if they are wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m services.{process}")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration (TOML)")
    if department:
        parser.add_argument(
            "--department", required=True, metavar="D", help="the department that this process schedules"
        )
    parser.add_argument(
        "--instance", default=f"{process}-{os.getpid()}", metavar="ID", help="names this process; unique"
    )
    parser.add_argument("--reaped", default="", metavar="ID,ID", help="instances that the supervisor has found dead")
    parser.add_argument(
        "--rebuild-snapshot", action="store_true", help="do not serve: fold the journal, save the snapshot, and end"
    )
    given = parser.parse_args(argv)
    reaped = tuple(part for part in given.reaped.split(",") if part)
    for name in (given.instance, *reaped):
        if not _INSTANCE.match(name):
            parser.error(f"{name!r} is no instance id: letters, digits, '.', '_', '-', at most 64")
    return Options(given.config, getattr(given, "department", ""), given.instance, reaped, given.rebuild_snapshot)


def run(
    process: str,
    build: Callable[[Config, Options], Service],
    argv: Sequence[str] | None = None,
    *,
    department: bool = False,
) -> int:
    """Be the process `process`: returns its exit code.  `build` makes the service from configuration and options; it may raise
    `ConfigError`."""
    options = parse(process, sys.argv[1:] if argv is None else argv, department=department)
    try:
        config = load(options.config_path)
        name = f"{process}.{options.department}" if options.department else process
        configure(config.runtime.level_of(name), config.runtime.log_format, service=name, instance=options.instance)
        gc.set_threshold(*GC_THRESHOLDS)
        gc.freeze()  # what has been imported stays
        service = build(config, options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return int(Exit.USAGE)
    if options.rebuild_snapshot:
        return _rebuild(config, service)
    service.on_end = _end_for_certain
    code = asyncio.run(service.run())
    _end_for_certain(code)  # covers what asyncio.run does not wait for: the interpreter's own shutdown joins threads
    return code


def _rebuild(config: Config, service: Service) -> int:
    """A new snapshot instead of a service; returns the exit code."""
    if not service.use_snapshots:
        print(f"{service.name} keeps no snapshot: it folds the whole journal at each start", file=sys.stderr)
        return int(Exit.USAGE)
    made = rebuild_as(
        config, name=service.name, writer=service.writer, core_factory=service.core_factory, log=service.log
    )
    try:
        position = asyncio.run(made)
    except Stop as stop:
        print(stop.why, file=sys.stderr)
        return int(stop.code)
    print(f"{service.name}: snapshot at journal position {position}")
    return int(Exit.OK)


def _end_for_certain(code: int) -> None:
    """From now on the process has EXIT_S to end by itself."""
    timer = threading.Timer(EXIT_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
