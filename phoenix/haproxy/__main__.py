"""`phoenix-haproxy --config FILE`: the agent beside HAProxy; with `--check` it reports what is wrong, and changes nothing."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from phoenix.haproxy import check
from phoenix.haproxy.agent import Agent
from phoenix.haproxy.runtime_api import GoneError, RuntimeApi
from phoenix.haproxy.settings import Settings, SettingsError, load
from services.domain.exits import Exit, Stop
from services.runtime import log


def main() -> int:
    """Run until SIGTERM, or do what the options say; returns the exit code (docs/howto/haproxy.md)."""
    args = _parser().parse_args()
    log.configure(args.log_level, args.log_format, service="phoenix-haproxy")
    try:
        settings = load(args.config)
    except SettingsError as error:
        return _failed(error, Exit.USAGE)
    if args.check:
        return _run(check.run(settings))
    if args.save_state is not None:
        return _run(_save_state(settings, args.save_state))
    return _run(Agent(settings).run())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="phoenix-haproxy",
        description="Keeps HAProxy in step with the instances of a web department, and publishes its signals.",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="TOML file (docs/howto/haproxy.md)")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    once = parser.add_mutually_exclusive_group()
    once.add_argument(
        "--check", action="store_true", help="check file, socket and credential, report what is wrong, and exit"
    )
    once.add_argument(
        "--save-state", type=Path, metavar="FILE", help="write HAProxy's servers for its reload, then end"
    )
    return parser


def _run(work: Coroutine[Any, Any, int]) -> int:
    code = int(Exit.FAILED)
    try:
        code = asyncio.run(work)
    except* (Stop, OSError, GoneError) as group:
        cause: BaseException = group
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        code = _failed(cause, cause.code if isinstance(cause, Stop) else Exit.FAILED)
    return code


def _failed(cause: BaseException, code: Exit) -> int:
    print(f"phoenix-haproxy: {cause}", file=sys.stderr)
    return int(code)


async def _save_state(settings: Settings, path: Path) -> int:
    """The file that `server-state-file` names, and the map of health paths: each whole or not at all."""
    api = RuntimeApi(Path(settings.socket), settings.backend, settings.slots, settings.health_map)
    paths = await api.paths()
    if paths is not None:
        _write(Path(settings.health_map), "".join(f"{slot} {health_path}\n" for slot, health_path in paths.items()))
    _write(path, await api.ask("show servers state"))
    return int(Exit.OK)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
