"""`phoenix secret set|list|remove`: values that instances of a web department find in their environment, in files of the cloud.

A value is read from standard input or a file, never from an argument: those are in the list of processes, and in the shell's
history.  It is shown nowhere.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from typing import Final, TypeAlias

from phoenix.cli import cloud, emit, files, suggest
from phoenix.cli.errors import DENIED, FAILED, CliError, usage

VERBS: Final = ("set", "list", "remove")
Wanted: TypeAlias = dict[str, list[str]]  # secret -> variables that are to have it
HELP: Final = """examples:
  phoenix secret set web db-password < password.txt    from standard input; at a terminal it is asked for
  phoenix secret set web db-password --file FILE
  phoenix secret list web                              names, and which the configuration wants
  phoenix secret remove web db-password

[department.web] secrets = { DB_PASSWORD = "db-password" } hands it to instances as $DB_PASSWORD, from their next start on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", metavar="set|list|remove")
    parser.add_argument("department", metavar="DEPT")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the secret: small letters, digits, '.', '_', '-'")
    parser.add_argument(
        "--file", type=files.text_in, metavar="FILE", help="read the value from this file (default: standard input, -)"
    )
    parser.add_argument(
        "--config", type=files.named, metavar="FILE", help="the cloud of this file, instead of that of --data"
    )


def run(args: argparse.Namespace) -> int:
    if args.verb not in VERBS:
        raise usage(f"secret has no {args.verb!r}", suggest.hint(args.verb, VERBS))
    if args.verb != "list" and args.name is None:
        raise usage("which secret?", f"phoenix secret {args.verb} {args.department} NAME")
    if args.file is not None and args.verb != "set":
        raise usage("--file goes with set")
    from services.runtime.config.secret_files import SecretError

    directory, wanted = _where(args)
    try:
        return {"set": _set, "list": _list, "remove": _remove}[args.verb](args, directory, wanted)
    except SecretError as error:
        raise CliError(FAILED, str(error)) from None
    except PermissionError as error:
        raise CliError(DENIED, f"{error.filename}: you may not: secrets belong to the user of the cloud") from None


def _where(args: argparse.Namespace) -> tuple[Path, Wanted]:
    """Where the secrets are, and what the configuration wants of this department."""
    from phoenix.local.stack_layout import layout
    from services.runtime.config.file import ConfigError, load

    place = layout(cloud.data_dir(args))
    file: Path = args.config or place.config
    if args.config is None and not place.data.is_dir():
        raise usage(
            f"there is no cloud in {place.data}", "phoenix up makes one; --data DIR or --config FILE names another"
        )
    if not file.is_file():
        return place.credentials / "secrets", {}
    try:
        config = load(file)
    except ConfigError as error:
        raise CliError(FAILED, f"{file} has problems:\n{error}") from error
    names = {department.name: department for department in config.cloud.departments}
    if args.department not in names:
        raise usage(f"there is no department {args.department!r}", suggest.hint(args.department, names))
    web = names[args.department].web
    if web is None:
        raise usage(f"{args.department} is a batch department", "only instances of web departments have secrets")
    wanted: Wanted = {}
    for variable, name in web.secrets.items():
        wanted.setdefault(name, []).append(variable)
    return config.secrets.directory, wanted


def _set(args: argparse.Namespace, directory: Path, wanted: Wanted) -> int:
    from services.runtime.config import secret_files

    secret_files.write(directory, args.department, args.name, _value(args))
    if args.json:
        emit.json({"ok": True, "department": args.department, "secret": args.name})
        return 0
    print(f"{args.department}: {args.name} is set; instances that start from now on have it")
    if args.name not in wanted:
        print(
            f"phoenix: the configuration does not use it: phoenix deploy {args.department} --secret VARIABLE={args.name}, "
            f'or [department.web] secrets = {{ VARIABLE = "{args.name}" }}',
            file=sys.stderr,
        )
    return 0


def _value(args: argparse.Namespace) -> bytes:
    from services.runtime.config.secret_files import VALUE_MAX_BYTES

    if args.file not in (None, files.STDIN):
        try:
            with args.file.open("rb") as file:
                return bytes(file.read(VALUE_MAX_BYTES + 1))
        except OSError as error:
            raise usage(f"{args.file}: {error.strerror}") from error
    if sys.stdin.isatty():
        return getpass.getpass(f"{args.name} of {args.department}: ").encode()
    return sys.stdin.buffer.read(VALUE_MAX_BYTES + 1)


def _list(args: argparse.Namespace, directory: Path, wanted: Wanted) -> int:
    from services.runtime.config import secret_files

    there = secret_files.names(directory, args.department)
    problems = {name: _problem(directory, args.department, name) for name in sorted({*there, *wanted})}
    if args.json:
        found = [{"secret": n, "variables": wanted.get(n, []), "problem": p} for n, p in problems.items()]
        emit.json({"department": args.department, "secrets": found})
        return 0
    for name, problem in problems.items():
        used = ", ".join(f"${variable}" for variable in wanted.get(name, ())) or "the configuration does not use it"
        print("  ".join(word for word in (name, used, problem) if word))
    if not problems:
        print(f"{args.department} has no secrets")
    return 0


def _problem(directory: Path, dept: str, name: str) -> str:
    from services.runtime.config import secret_files

    try:
        secret_files.read(directory, dept, name)
    except secret_files.SecretError as error:
        return str(error)
    return ""


def _remove(args: argparse.Namespace, directory: Path, _wanted: Wanted) -> int:
    from services.runtime.config import secret_files

    if not secret_files.remove(directory, args.department, args.name):
        there = secret_files.names(directory, args.department)
        raise usage(f"{args.department} has no secret {args.name}", suggest.hint(args.name, there))
    if args.json:
        emit.json({"ok": True, "department": args.department, "secret": args.name})
    else:
        print(f"{args.department}: {args.name} is removed; instances that run keep what they were given")
    return 0
