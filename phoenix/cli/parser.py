"""The parser of one command: argparse, with errors that name the close match and exit code 2."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, NoReturn, TypeVar

from phoenix.cli import suggest
from phoenix.cli.commands import BY_NAME, Command
from phoenix.cli.errors import CliError, usage
from phoenix.cli.files import named as named_file

T = TypeVar("T")
INTEGER_MAX: Final = 10**18 - 1  # what is sent has 64 bits; far more than anything is counted to


class Parser(argparse.ArgumentParser):
    """Raises CliError instead of exiting, so that every error leaves the program at one place."""

    def error(self, message: str) -> NoReturn:
        raise usage(message, self._hint(message))

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Options may stand anywhere, also between a verb and its name: `hosts cordon --reason x host003`.  Where the words of
        a script follow, or `--` says that no option does, they stand before."""
        followed = any(action.nargs == argparse.REMAINDER for action in self._actions)
        return self.parse_args(argv) if followed or "--" in argv else self.parse_intermixed_args(argv)

    def option_strings(self) -> list[str]:
        """Every option, for completion."""
        return list(self._option_string_actions)

    def option_of(self, dest: str) -> str:
        """The first long option that sets this value."""
        return next(
            o for o, action in self._option_string_actions.items() if action.dest == dest and o.startswith("--")
        )

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


def of(name: str, words: Sequence[str] = ()) -> Parser:
    """The parser of a command; of `simulate`, that of the experiment that the words name, if they do."""
    module = import_module(f"phoenix.cli.{name}")
    if name == "simulate":
        return module.parser_of(words)  # type: ignore[no-any-return]
    parser = make(name, module.HELP)
    module.add_arguments(parser)
    return parser


def common(parser: argparse.ArgumentParser, reads: bool) -> None:
    parser.add_argument(
        "--data",
        type=named_file,
        metavar="DIR",
        help="the embedded cloud's directory (default: $PHOENIX_DATA or ./.phoenix)",
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
    return _whole(text, 1, "a number above 0")


def at_least_zero(text: str) -> int:
    return _whole(text, 0, "a number of 0 or more")


def whole(text: str) -> int:
    """Type of a number that may be negative."""
    return _whole(text, -INTEGER_MAX, "a whole number")


def amount(text: str) -> float:
    """Type of a number of 0 or more, whole or not."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not found >= 0:  # neither is what is not a number
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    if found >= INTEGER_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is too large: a number below {INTEGER_MAX + 1:.0e} is wanted")
    return found


def share(text: str) -> float:
    """Type of a part of a whole."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: write a number from 0 to 1, such as 0.2")
    return found


def worded(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Type of an option: `parse`, whose ValueError says what would be right."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _whole(text: str, least: int, what: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    if len(digits) > len(str(INTEGER_MAX)):
        raise argparse.ArgumentTypeError(
            f"a number has at most {len(str(INTEGER_MAX))} digits: {text[:24]}… is too large"
        )
    if int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


__all__ = ["CliError", "Parser", "at_least_zero", "common", "count", "job_id", "make", "of"]
