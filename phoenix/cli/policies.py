"""`phoenix policies`: which policies there are, what each is, and whether a plug-in keeps the rules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.cli import cloud, printing, suggest, tables
from phoenix.cli.errors import FAILED, OK, CliError, usage
from phoenix.cli.parser import count
from phoenix.policies import Described, described

VERBS: Final = ("show", "check")
EXAMPLES: Final = 100  # of each rule: some seconds
HEAD: Final = ("KIND", "NAME", "DEPARTMENTS", "FROM")
HELP: Final = """examples:
  phoenix policies                        all of them, and which departments use which
  phoenix policies --kind order           orders of the queue only (or victims, scaling)
  phoenix policies show easy              how it works, where it is from, its settings
  phoenix policies check widest-first     does a plug-in keep the rules of its kind?

How to write one: docs/howto/plugins.md

exit code: 0 done, 1 a rule is broken or the plug-in cannot be loaded, 2 there is no such policy"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", metavar="show|check")
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--kind", metavar="order|victims|scaling", help="only policies of this kind")
    parser.add_argument(
        "--examples", type=count, default=EXAMPLES, metavar="N", help=f"check: tries of each rule (default {EXAMPLES})"
    )


def run(args: argparse.Namespace) -> int:
    from services.runtime.plugins import KINDS

    if args.kind is not None and args.kind not in KINDS:
        raise usage(f"there is no kind {args.kind!r}", suggest.hint(args.kind, KINDS))
    if args.verb is not None and args.verb not in VERBS:
        raise usage(f"policies has no {args.verb!r}", suggest.hint(args.verb, VERBS))
    if args.verb is not None and args.name is None:
        raise usage(f"which policy? phoenix policies {args.verb} NAME", "phoenix policies lists them")
    every = [policy for policy in described() if args.kind in (None, policy.kind)]
    if args.verb is None:
        return _list(args, every)
    policy = _named(every, args.name)
    return _show(args, policy) if args.verb == "show" else _check(args, policy)


def _named(every: Sequence[Described], name: str) -> Described:
    found = [policy for policy in every if policy.name == name]
    if not found:
        raise usage(f"there is no policy {name!r}", suggest.hint(name, [policy.name for policy in every]))
    kinds = list(dict.fromkeys(policy.kind for policy in found))
    if len(kinds) > 1:
        raise usage(f"{name!r} is the name of several: {', '.join(kinds)}", "say which with --kind")
    return found[0]


def _users(args: argparse.Namespace) -> dict[tuple[str, str], list[str]] | None:
    """(kind, name) -> departments whose configuration in force names it; None if no cloud runs here, or it cannot be read."""
    from services.runtime.config.file import ConfigError, load
    from services.runtime.config.policies import named

    try:
        config = load(Path(cloud.describe(cloud.data_dir(args))["config"]))
    except CliError:
        return None
    except ConfigError as error:
        print(f"phoenix: which departments use which cannot be read: {error}", file=sys.stderr)
        return None
    found: dict[tuple[str, str], list[str]] = {}
    for department in config.cloud.departments:
        for _key, kind, name in named(department):
            found.setdefault((kind, name), []).append(department.name)
    return found


def _as_data(policy: Described, users: dict[tuple[str, str], list[str]] | None) -> dict[str, Any]:
    departments = None if users is None else users.get((policy.kind, policy.name), [])
    found: dict[str, Any] = msgspec.to_builtins(policy)
    return {**found, "departments": departments}


def _list(args: argparse.Namespace, every: Sequence[Described]) -> int:
    users = _users(args)
    if args.json:
        shown = [_as_data(policy, users) for policy in every]
        for one in shown:
            del one["theory"]
        printing.json({"policies": shown})
        return OK
    print(_table(every, users or {}))
    return OK


def _table(every: Sequence[Described], users: dict[tuple[str, str], list[str]]) -> str:
    """A line each, and below it what it does and where it is from."""
    rows = [(p.kind, p.name, ", ".join(users.get((p.kind, p.name), [])) or "-", p.origin) for p in every]
    head, *lines = tables.render(HEAD, rows).split("\n")
    told = [head]
    for line, policy in zip(lines, every, strict=True):
        told += [line, *(f"    {text}" for text in _below(policy))]
    return "\n".join(told)


def _below(policy: Described) -> list[str]:
    if policy.problem:
        return [f"not usable: {policy.problem}"]
    return [policy.about, f"Source: {policy.source or 'not stated'}"]


def _show(args: argparse.Namespace, policy: Described) -> int:
    users = _users(args)
    if args.json:
        printing.json(_as_data(policy, users))
        return OK
    used = ", ".join((users or {}).get((policy.kind, policy.name), [])) or ("none" if users is not None else "?")
    told = [
        ("policy", f"{policy.name} ({policy.kind})"),
        ("from", policy.origin),
        ("source", policy.source or "not stated"),
        ("used by", used if used != "?" else "no cloud is running here"),
    ]
    if policy.problem:
        told.append(("not usable", policy.problem))
    print(tables.pairs(told))
    if policy.theory:
        print(f"\n{policy.theory}")
    print("\n" + "\n".join(["Settings:", *(f"  {s.key} = {s.default}" for s in policy.settings)]))
    if not policy.settings:
        print("  none of its own")
    return OK


def _check(args: argparse.Namespace, policy: Described) -> int:
    if policy.problem:
        raise CliError(FAILED, f"{policy.kind} {policy.name!r}: {policy.problem}")
    try:
        from phoenix.policy_check.verdict import judged
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise CliError(FAILED, "the check needs Hypothesis", "pip install 'phoenix-cloud[policies]'") from error
    if not args.json:
        print(
            f"{policy.name} ({policy.kind}) of {policy.origin}, {args.examples} situations for each rule:", flush=True
        )
    broken, told = 0, []
    for rule, violation in judged(policy.kind, policy.name, args.examples):
        broken += violation is not None
        told.append({"rule": rule.name, "text": rule.text, "seen": violation.seen if violation else None})
        if not args.json:
            print(f"  {'ok    ' if violation is None else 'BROKEN'}  {rule.name:<4} {rule.text}", flush=True)
            if violation is not None:
                print("\n".join(f"              {line}" for line in (violation.seen, *violation.story.splitlines())))
    if args.json:
        printing.json({"kind": policy.kind, "name": policy.name, "package": policy.origin, "rules": told})
    else:
        print(f"{len(told) - broken} of {len(told)} rules hold")
    return FAILED if broken else OK
