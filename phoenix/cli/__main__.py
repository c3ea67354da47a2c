"""Entry point of `phoenix`: finds the command, imports its module, and turns every failure into a sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module

from phoenix.cli import commands, errors, suggest

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a write to stdout ends with: `phoenix … > FILE`
_TAKE_VALUE = ("--data", "--as")  # options of every command that may also stand before it


def main(argv: list[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        _refuse_what_is_no_text(words)
        code = _run(words)
        sys.stdout.flush()
        return code
    except errors.CliError as error:
        print(f"phoenix: {_shown(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"         {_shown(error.hint)}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return errors.INTERRUPTED
    except BrokenPipeError:  # `phoenix queue | head`: the reader has seen enough
        _say_no_more()
        return errors.OK
    except OSError as error:
        if error.filename is not None:  # a file or directory of the person's: no bug
            print(f"phoenix: {_shown(str(error.filename))}: {error.strerror}", file=sys.stderr)
            return errors.FAILED
        if error.errno not in _FULL:
            raise
        _say_no_more()
        print(f"phoenix: the output cannot be written: {error.strerror}", file=sys.stderr)
        return errors.FAILED


def _shown(text: str) -> str:
    """What the cloud says may quote other people's words."""
    if text.isascii() and text.isprintable():
        return text
    from phoenix.cli.tables import lines_shown

    return lines_shown(text)


def _refuse_what_is_no_text(words: list[str]) -> None:
    """Bytes that are no UTF-8, and NUL, can neither be sent nor shown."""
    named = [(f"${name}", value) for name, value in os.environ.items() if name.startswith("PHOENIX_")]
    for name, text in [*((repr(word), word) for word in words), *named]:
        try:
            plain = "\0" not in text and text.encode() is not None
        except UnicodeEncodeError:
            plain = False
        if not plain:
            raise errors.usage(f"{name}: this is no text (UTF-8)")


def _say_no_more() -> None:
    """Stdout takes nothing any more, and Python would try once again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: list[str]) -> int:
    first = _leading(argv)
    if not argv or argv[first : first + 1] in ([], ["-h"], ["--help"], ["help"]):
        return _help(argv[first + 1 :])
    name = argv[first]
    if name in ("-V", "--version"):
        name = "version"
    if name not in commands.BY_NAME:
        raise errors.usage(f"there is no command {name!r}", suggest.hint(name, commands.BY_NAME) + "  (phoenix --help)")
    rest = argv[:first] + argv[first + 1 :]
    if commands.BY_NAME[name].parses:
        as_json = commands.BY_NAME[name].reads and "--json" in rest
        return _or_problem(lambda: import_module(f"phoenix.cli.{name}").main(rest), as_json=as_json)
    return _dispatch(name, rest)


def _dispatch(name: str, rest: list[str]) -> int:
    from phoenix.cli import parser as parsers

    module = import_module(f"phoenix.cli.{name}")
    args = parsers.of(name).parse(getattr(module, "prepared", list)(rest))
    return _or_problem(lambda: module.run(args), as_json=getattr(args, "json", False))


def _or_problem(run: Callable[[], int], *, as_json: bool) -> int:
    """The exit code of `run`.  With `as_json` its error is on stdout too, unless a whole answer is there."""
    errors.Stdout.is_whole = False
    try:
        return int(run())
    except errors.CliError as error:
        if as_json and not errors.Stdout.is_whole:
            from phoenix.cli import printing

            printing.line(error.problem())
        raise


def _leading(argv: list[str]) -> int:
    """How many arguments before the command are options of every command."""
    first = 0
    while first < len(argv) and (
        argv[first] in _TAKE_VALUE or argv[first] == "--json" or argv[first].startswith("--data=")
    ):
        first += 2 if argv[first] in _TAKE_VALUE else 1
    return first


def _help(rest: list[str]) -> int:
    if rest and rest[0] in commands.BY_NAME:
        return _run([rest[0], "--help"])
    print(commands.overview())
    return errors.OK if not rest else errors.USAGE


if __name__ == "__main__":
    sys.exit(main())
