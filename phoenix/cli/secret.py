"""`phoenix secret set|list|remove`: values that instances of a web department find in their environment, in files of the cloud.

A value is read from standard input or a file, never from an argument: those are in the list of processes, and in the shell's
history.  It is shown nowhere.

Rules
  1. A secret is used if the configuration names it, or a release of the running cloud that is wanted or that instances run.  A
     cloud that does not answer is told apart from one that uses it not.
  2. What is set or removed is in the audit (`phoenix.cli.local_audit`): who, and which; never a value.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from phoenix.cli import cloud, files, local_audit, printing, suggest
from phoenix.cli.errors import DENIED, FAILED, CliError, usage
from phoenix.cli.http import quote

VERBS: Final = ("set", "list", "remove")
Wanted: TypeAlias = dict[str, list[str]]  # secret -> variables that are to have it
HELP: Final = """examples:
  phoenix secret set web db-password < password.txt    from standard input; at a terminal it is asked for
  phoenix secret set web db-password --file FILE
  phoenix secret list web                              names, and what uses them
  phoenix secret remove web db-password

[department.web] secrets = { DB_PASSWORD = "db-password" } hands it to instances as $DB_PASSWORD, from their next start on."""


class Place(NamedTuple):
    """`directory`: of the secrets; `data`: of the cloud; `config`: its file, if there is one; `wanted`: what that wants of this
    department."""

    directory: Path
    data: Path
    config: Path | None
    wanted: Wanted


class Uses(NamedTuple):
    """Rule 1.  `releases`: secret -> its variables in releases; `unknown`: why those are not known."""

    releases: dict[str, dict[int, list[str]]]
    unknown: str


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

    place = _where(args)
    try:
        return {"set": _set, "list": _list, "remove": _remove}[args.verb](args, place)
    except SecretError as error:
        raise CliError(FAILED, str(error)) from None
    except PermissionError as error:
        raise CliError(DENIED, f"{error.filename}: you may not: secrets belong to the user of the cloud") from None


def _where(args: argparse.Namespace) -> Place:
    from phoenix.local.stack_layout import layout
    from services.runtime.config.file import ConfigError, load

    place = layout(cloud.data_dir(args))
    file: Path = args.config or place.config
    if args.config is None and not place.data.is_dir():
        raise usage(
            f"there is no cloud in {place.data}", "phoenix up makes one; --data DIR or --config FILE names another"
        )
    if not file.is_file():
        return Place(place.credentials / "secrets", place.data, None, {})
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
    return Place(config.secrets.directory, config.data.directory, file, wanted)


def _uses(args: argparse.Namespace, place: Place) -> Uses:
    """Rule 1.  A site's cloud is where $PHOENIX_URL says, that of other files in their data directory."""
    is_remote = args.config is not None and os.environ.get("PHOENIX_URL")
    asked = argparse.Namespace(data=None if is_remote else str(place.data), as_user=args.as_user)
    try:
        found = cloud.find(asked).operator().get(f"/v1/departments/{quote(args.department)}/releases")
    except CliError as error:
        return Uses({}, error.message)
    used: dict[str, dict[int, list[str]]] = {}
    for row in found["releases"]:
        if row["release"] == found["wanted"] or row["instances"]:
            secrets: dict[str, str] = (row["content"] or {}).get("secrets", {})
            for variable, name in secrets.items():
                used.setdefault(name, {}).setdefault(row["release"], []).append(variable)
    return Uses(used, "")


def _record(args: argparse.Namespace, place: Place) -> None:
    """Rule 2."""
    if place.config is None:
        print("phoenix: this is not in the audit: the cloud has no configuration yet", file=sys.stderr)
    else:
        local_audit.record(place.config, f"secret.{args.verb}", args.department, args.name)


def _set(args: argparse.Namespace, place: Place) -> int:
    from services.runtime.config import secret_files

    secret_files.write(place.directory, args.department, args.name, _value(args))
    _record(args, place)
    if args.json:
        printing.json({"department": args.department, "secret": args.name})
        return 0
    print(f"{args.department}: {args.name} is set; instances that start from now on have it")
    if args.name not in place.wanted and args.name not in (uses := _uses(args, place)).releases:
        print(
            f"phoenix: {_unused(uses)}: phoenix deploy {args.department} --secret VARIABLE={args.name}, "
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


def _unused(uses: Uses) -> str:
    return "the configuration does not use it" if uses.unknown else "neither the configuration nor a release uses it"


def _list(args: argparse.Namespace, place: Place) -> int:
    from services.runtime.config import secret_files

    there, uses = secret_files.names(place.directory, args.department), _uses(args, place)
    names = sorted({*there, *place.wanted, *uses.releases})
    problems = {name: _problem(place.directory, args.department, name) for name in names}
    if args.json:
        printing.json(
            {"department": args.department, "secrets": [_row(place, uses, n, p) for n, p in problems.items()]}
        )
        return 0
    for name, problem in problems.items():
        used = [f"${variable}" for variable in place.wanted.get(name, ())]
        for release, variables in sorted(uses.releases.get(name, {}).items()):
            used += [f"${variable} (release {release})" for variable in variables]
        print("  ".join(word for word in (name, ", ".join(used) or _unused(uses), problem) if word))
    if not problems:
        print(f"{args.department} has no secrets")
    elif uses.unknown:
        print(f"phoenix: what its releases use is not known: {uses.unknown}", file=sys.stderr)
    return 0


def _row(place: Place, uses: Uses, name: str, problem: str) -> dict[str, Any]:
    releases = None if uses.unknown else {str(n): some for n, some in sorted(uses.releases.get(name, {}).items())}
    return {"secret": name, "variables": place.wanted.get(name, []), "releases": releases, "problem": problem}


def _problem(directory: Path, dept: str, name: str) -> str:
    from services.runtime.config import secret_files

    try:
        secret_files.read(directory, dept, name)
    except secret_files.SecretError as error:
        return str(error)
    return ""


def _remove(args: argparse.Namespace, place: Place) -> int:
    from services.runtime.config import secret_files

    if not secret_files.remove(place.directory, args.department, args.name):
        there = secret_files.names(place.directory, args.department)
        raise usage(f"{args.department} has no secret {args.name}", suggest.hint(args.name, there))
    _record(args, place)
    if args.json:
        printing.json({"department": args.department, "secret": args.name})
    else:
        print(f"{args.department}: {args.name} is removed; instances that run keep what they were given")
    return 0
