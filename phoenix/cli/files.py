"""Files and directories that options name: the types of such options, and where text for them goes.

Rules
  1. `-` is standard output where an option takes a file for text (`text_out`), standard input where that is read (`text_in`),
     and no file anywhere else (`named`): who means a file of that name writes `./-`.
  2. An empty name is none: it comes from a variable that was not set.
  3. What is meant for people beside such text goes to standard error (`beside`), and JSON cannot go to the same place.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import IO, Final

from phoenix.cli.errors import usage

STDIN: Final = Path("/dev/stdin")
STDOUT: Final = Path("/dev/stdout")


def named(text: str) -> Path:
    """Type of an option that names a file to read, or a place to write to."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: name a file or directory")
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is no file here: name one; ./- is a file of that name")
    return Path(text)


def text_out(text: str) -> Path:
    """Type of an option that names a file for text; `-` is standard output."""
    return STDOUT if text == "-" else named(text)


def text_in(text: str) -> Path:
    """Type of an option that names a file of text to read; `-` is standard input."""
    return STDIN if text == "-" else named(text)


def beside(path: Path | None) -> IO[str]:
    """Where what is for people goes (rule 3)."""
    return sys.stderr if path == STDOUT else sys.stdout


def check_alone(option: str, path: Path | None, *, as_json: bool) -> None:
    """CliError if JSON is asked for as well (rule 3)."""
    if path == STDOUT and as_json:
        raise usage(f"{option} - and --json both write to standard output", f"name a file for one: {option} FILE")
