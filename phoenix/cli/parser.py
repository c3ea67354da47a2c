"""The parser of one command: argparse, with errors that name the close match and exit code 2."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from phoenix.cli import suggest
from phoenix.cli.commands import BY_NAME, Command
from phoenix.cli.errors import CliError, usage


class Parser(argparse.ArgumentParser):
    """Raises CliError instead of exiting, so that every error leaves the program at one place."""

    def error(self, message: str) -> NoReturn:
        raise usage(message, self._hint(message))

    def option_strings(self) -> list[str]:
        """Every option, for completion."""
        return list(self._option_string_actions)

    def _hint(self, message: str) -> str:
        wrong = re.search(r"unrecognized arguments: (--?[^\s=]+)", message)
        if wrong:
            near = suggest.closest(wrong.group(1), self._option_string_actions)
            if near is not None:
                return f"did you mean {near}?"
        return f"{self.prog} --help shows what it takes"


def make(name: str, text: str = "") -> Parser:
    """A parser with the options that every command takes."""
    command: Command = BY_NAME[name]
    parser = Parser(
        prog=f"phoenix {name}",
        description=command.about[0].upper() + command.about[1:] + ".",
        epilog=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    common(parser, command.reads)
    return parser


def common(parser: argparse.ArgumentParser, reads: bool) -> None:
    parser.add_argument(
        "--data", metavar="DIR", help="the embedded cloud's directory (default: $PHOENIX_DATA or ./.phoenix)"
    )
    parser.add_argument("--as", dest="as_user", metavar="USER", help="act as this user of the embedded cloud")
    if reads:
        parser.add_argument("--json", action="store_true", help="JSON on stdout")


def job_id(text: str) -> str:
    """Type of a job argument: `17`, `17_3`, or an instance `web.7`."""
    if re.fullmatch(r"[1-9][0-9]{0,17}(_(0|[1-9][0-9]{0,8}))?|[a-z][a-z0-9-]{0,31}\.[1-9][0-9]{0,17}", text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is no job: write a number as `phoenix queue` shows it, such as 17 or 17_3"
    )


def entity(text: str) -> str:
    """Type of what `why` and `story` tell of: a job, an instance, a department or a host, by name; `host:17` says which."""
    if re.fullmatch(r"((job|department|host):)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}", text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is no job (17, 18_3), instance (web.7), department or host: names have letters, digits and . _ -"
    )


def named(text: str) -> tuple[str, str | None]:
    """The name of an `entity`, and its kind if it was said."""
    kind, colon, name = text.partition(":")
    return (name, kind) if colon and kind in ("job", "department", "host") else (text, None)


def count(text: str) -> int:
    """Type of a positive number."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def at_least_zero(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")


__all__ = ["CliError", "Parser", "at_least_zero", "common", "count", "job_id", "make"]
