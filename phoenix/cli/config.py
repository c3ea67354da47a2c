"""`phoenix config check|diff|apply FILE`: a configuration before and while it is in force."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from phoenix.cli import cloud, files, printing, suggest
from phoenix.cli.errors import FAILED, OK, UNREACHABLE, CliError, usage

VERBS: Final = ("check", "diff", "apply")
HELP: Final = """examples:
  phoenix config check site.toml     every problem of the file at once
  phoenix config diff site.toml      what would change in the running cloud, and what at its next start
  phoenix config apply site.toml     adopt it while running: departments and users come and go, keys with them
  phoenix config apply site.toml --accept-late-leases     although leases that were accepted would begin late or not at all

exit code: 0 good or applied, 1 the file has problems or was refused, 3 no cloud is running"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", metavar="check|diff|apply")
    parser.add_argument("file", type=files.named, metavar="FILE")
    parser.add_argument(
        "--accept-late-leases", action="store_true", help="apply: also if accepted leases would not be kept"
    )


def run(args: argparse.Namespace) -> int:
    if args.verb not in VERBS:
        raise usage(f"config has no {args.verb!r}", suggest.hint(args.verb, VERBS))
    if args.file.is_dir():
        there = sorted(args.file.glob("*.toml"), key=lambda file: (file.name != "phoenix.toml", file.name))
        hint = (
            f"name the file: phoenix config {args.verb} {there[0]}" if there else "name a file: there is no .toml in it"
        )
        raise usage(f"{args.file} is a directory", hint)
    if not args.file.is_file():
        raise usage(f"{args.file}: there is no such file")
    return {"check": _check, "diff": _diff, "apply": _apply}[args.verb](args)


def load_file(file: Path, opennebula: Any = None) -> Any:
    """The configuration in `file`, or every problem of it."""
    from services.runtime.config.file import ConfigError, load

    try:
        return load(file, opennebula)
    except ConfigError as error:
        raise CliError(FAILED, f"{file} has problems:\n{error}") from error


def _check(args: argparse.Namespace) -> int:
    config = load_file(args.file)
    warnings = _warnings(args, config) + _late_leases(args)
    for warning in warnings:
        print(f"phoenix: {warning}", file=sys.stderr)
    departments = [f"{d.name} ({d.kind})" for d in config.cloud.departments]
    if args.json:
        printing.json(
            {
                "departments": [d.name for d in config.cloud.departments],
                "users": len(config.cloud.users),
                "warnings": warnings,
            }
        )
    else:
        print(f"{args.file} is good: {', '.join(departments)}; {len(config.cloud.users)} users")
    return OK


def _warnings(args: argparse.Namespace, config: Any) -> list[str]:
    """What is no mistake of the file, and will be in the way."""
    from phoenix.local.stack_config import secrets_directory
    from phoenix.local.stack_layout import layout
    from services.runtime.config.secret_files import problems

    return problems(secrets_directory(config, layout(cloud.data_dir(args))), config.cloud) + _of_prices(args, config)


def _of_prices(args: argparse.Namespace, config: Any) -> list[str]:
    """Prices that apply to none; one may be for a department or user that was removed.  CliError for a table that is of no
    use: a cloud runs with it, but has no bills."""
    from services.runtime.config import prices

    file = config.billing.prices
    if file is None:
        return []
    try:
        found = prices.load(file)
    except prices.Unusable as error:
        raise CliError(
            FAILED, f"{args.file} names a price table, [billing] prices, that cannot be used:\n{error}"
        ) from None
    known = {"department": config.cloud.departments, "user": config.cloud.users}
    wrong = [
        (what, name)
        for what, some in known.items()
        for name in dict.fromkeys(getattr(price, what) for price in found.price)
        if name is not None and name not in {each.name for each in some}
    ]
    return [f"{file.name} has prices for {name!r}, and there is no such {what}" for what, name in wrong]


def _late_leases(args: argparse.Namespace) -> list[str]:
    """Accepted leases that would not be kept, as the running cloud says; empty where none is running."""
    from phoenix.local.control import NotRunningError

    try:
        answer = _ask(args, dry_run=True)
    except NotRunningError:
        return []
    return [*answer["late_leases"]] if answer["ok"] else [f"accepted leases are not known: {answer['error']}"]


def _ask(args: argparse.Namespace, **fields: bool) -> dict[str, Any]:
    """The supervisor's answer to this file.  Raises `NotRunningError`."""
    from phoenix.local.control import call
    from phoenix.local.stack_layout import layout

    file, where = args.file, layout(cloud.data_dir(args))
    request = {"op": "apply", "text": file.read_text(), "name": file.name, "base": str(file.absolute().parent)}
    return call(where, request | fields, lambda text: print(f"phoenix: {text}", file=sys.stderr, flush=True))


def _diff(args: argparse.Namespace) -> int:
    from services.runtime.config.file import load
    from services.runtime.config.text import diff

    running = load(Path(cloud.describe(cloud.data_dir(args))["config"]))
    wanted = load_file(args.file, running.opennebula)
    changes = diff(running.cloud, wanted.cloud)
    late = _late_leases(args) if changes else []
    _show(args, {"changes": changes, "late_leases": late, "later": _later(args)}, "nothing would change")
    return OK


def _later(args: argparse.Namespace) -> list[str]:
    """What the file says of the tables that processes read when they start."""
    from phoenix.cli.local import is_external
    from phoenix.local.stack_config import at_next_start
    from phoenix.local.stack_layout import layout
    from services.runtime.config.file import load

    data = cloud.data_dir(args)
    about = cloud.describe(data)
    return at_next_start(args.file, layout(data), load(Path(about["config"])), external=is_external(about))


def _apply(args: argparse.Namespace) -> int:
    from phoenix.local.control import NotRunningError

    load_file(args.file)
    try:
        answer = _ask(args, accept_late_leases=args.accept_late_leases)
    except NotRunningError as error:
        raise CliError(
            UNREACHABLE, str(error), "a cloud that is not running takes it with: phoenix up --config FILE"
        ) from error
    if not answer["ok"]:
        raise CliError(FAILED, str(answer.get("error")))
    shown = {name: value for name, value in answer.items() if name != "ok"} | {"later": _later(args)}
    _show(args, shown, "nothing has changed: this configuration is in force already")
    return OK


def _show(args: argparse.Namespace, answer: dict[str, Any], nothing: str) -> None:
    if args.json:
        printing.json(answer)
        return
    lines = [*answer["changes"], *(f"not kept: {lease}" for lease in answer.get("late_leases", ()))]
    lines += [f"made: {name}" for name in answer.get("renewed", ())]
    if answer["later"]:
        how = f"`phoenix down` and `phoenix up --config {args.file}`"
        lines += [f"not while it runs, but with {how}:", *(f"  {change}" for change in answer["later"])]
    print("\n".join(lines) or nothing)
