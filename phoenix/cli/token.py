"""`phoenix token create|list|revoke`: HTTP tokens with an end, for people and programs elsewhere.

A token is shown once, on standard output, and kept nowhere: `tokens.json` has its hash (`services.runtime.tokens`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from phoenix.cli import cloud, files, local_audit, printing, suggest, tables, units
from phoenix.cli.errors import DENIED, FAILED, CliError, usage

if TYPE_CHECKING:
    from services.runtime.tokens import Issued

NONE: Final = "there are no tokens: none was issued, or all that were have been revoked"
VERBS: Final = ("create", "list", "revoke")
FOR: Final = "30d"
HELP: Final = """examples:
  phoenix token create ann --for 30d --out ann.token   a new token of user ann, in a file that you alone can read
  phoenix token create ann | ssh there 'umask 077; cat > token'
  phoenix token list                                   what was issued, and when it ends; never a token
  phoenix token revoke 3f2a9c01d47e                    by its id: refused from now on

It serves as $PHOENIX_TOKEN_FILE and over HTTP, with that user's rights, until it ends: then the doors refuse it and say so.
A user's own token (credentials/USER.token) stays as it is and has no end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", metavar="create|list|revoke")
    parser.add_argument("name", nargs="?", metavar="USER|ID", help="create: whose it is; revoke: which (see list)")
    parser.add_argument("--for", dest="for_s", metavar="TIME", help=f"how long it is good: 8h, 30d (default: {FOR})")
    parser.add_argument(
        "--out", type=files.text_out, metavar="FILE", help="write it to this new file (default: standard output, -)"
    )
    parser.add_argument(
        "--config", type=files.named, metavar="FILE", help="the cloud of this file, instead of that of --data"
    )


def run(args: argparse.Namespace) -> int:
    if args.verb not in VERBS:
        raise usage(f"token has no {args.verb!r}", suggest.hint(args.verb, VERBS))
    if args.verb != "create" and (args.for_s is not None or args.out is not None):
        raise usage(f"{'--for' if args.for_s is not None else '--out'} goes with create")
    if (args.verb == "list") == (args.name is not None):
        asked = {"create": "whose token? phoenix token create USER", "revoke": "which one? phoenix token revoke ID"}
        raise usage(asked.get(args.verb, "list takes no name"))
    from services.runtime.tokens import TokenError

    try:
        return {"create": _create, "list": _list, "revoke": _revoke}[args.verb](args)
    except TokenError as error:
        raise CliError(FAILED, str(error)) from None
    except PermissionError as error:
        told = "you may not: tokens are the business of the user that the cloud runs as"
        raise CliError(DENIED, f"{error.filename}: {told}") from None


def _where(args: argparse.Namespace) -> tuple[Path, list[str]]:
    """The tokens' file, and who are users."""
    from services.runtime.broker.credentials import tokens_file
    from services.runtime.config.file import ConfigError, load

    file = _file(args)
    if not file.is_file():
        raise usage(f"there is no cloud with {file}", "phoenix up makes one; --data DIR or --config FILE names another")
    try:
        config = load(file)
    except ConfigError as error:
        raise CliError(FAILED, f"{file} has problems:\n{error}") from error
    found = tokens_file(config)
    if not found.parent.is_dir():
        raise CliError(FAILED, f"{found.parent} is not there: phoenix up makes it")
    return found, [user.name for user in config.cloud.users]


def _file(args: argparse.Namespace) -> Path:
    from phoenix.local.stack_layout import layout

    return args.config or layout(cloud.data_dir(args)).config


def _create(args: argparse.Namespace) -> int:
    from services.runtime import tokens

    path, users = _where(args)
    if args.name not in users:
        raise usage(f"there is no user {args.name!r}", suggest.hint(args.name, users))
    try:
        for_s = units.parse_time_s(args.for_s or FOR)
    except ValueError as error:
        raise usage(f"--for: {error}") from None
    with _new_file(args.out) as file:
        token, entry = tokens.issue(path, args.name, for_s, time.time())
        if file is not None:
            file.write(token)
    name = tokens.digest(token)[: tokens.ID_CHARS]
    local_audit.record(_file(args), "token.create", entry.user, name)
    shown = token if args.out in (None, files.STDOUT) else None
    if args.json:
        printing.json({"id": name, "user": entry.user, "ends": units.exact(entry.ends), "token": shown})
        return 0
    if shown:
        print(shown)
    told = f"a token of {entry.user}, {name}, until {units.iso(entry.ends)}; it is not shown again"
    print(f"phoenix: {told}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """Made before there is a token, so that none is issued that goes nowhere; gone again if none was."""
    if path in (None, files.STDOUT):
        yield None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise usage(f"{path}: {error.strerror}", "--out names a new file") from None
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _list(args: argparse.Namespace) -> int:
    from services.runtime import tokens

    found, now = tokens.issued(_where(args)[0]), time.time()
    if args.json:
        printing.json({"tokens": [_told(name, entry, now) for name, entry in found.items()]})
        return 0
    rows = [
        (
            name,
            e.user,
            str(units.iso(e.made)),
            str(units.iso(e.ends)),
            "ended" if e.ends <= now else units.span(e.ends - now),
        )
        for name, e in found.items()
    ]
    print(tables.render(("ID", "USER", "MADE", "ENDS", "LEFT"), rows) if rows else NONE)
    return 0


def _told(name: str, entry: Issued, now: float) -> dict[str, object]:
    made, ends = units.exact(entry.made), units.exact(entry.ends)
    return {"id": name, "user": entry.user, "made": made, "ends": ends, "ended": entry.ends <= now}


def _revoke(args: argparse.Namespace) -> int:
    from services.runtime import tokens

    path, _ = _where(args)
    entry = tokens.revoke(path, args.name)
    if entry is None:
        raise usage(f"there is no issued token {args.name!r}", suggest.hint(args.name, tokens.issued(path)))
    local_audit.record(_file(args), "token.revoke", entry.user, args.name)
    if args.json:
        printing.json({"id": args.name, "user": entry.user})
    else:
        print(f"{args.name} of {entry.user} is revoked: the doors refuse it from now on")
    return 0
