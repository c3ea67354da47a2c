"""`phoenix deploy DEPT`: a new release for a web department's instances; with `--wait`, until all run it or it was given up.

Rules
  1. What is not named is as in the release that is wanted now; `--configured` and `--undo` begin from another one.
  2. What follows `--` is the command; nothing follows it: the guest's default web program.
  3. `--wait` ends with 0 if the release is complete, with 1 if it was given up, another one took over, or the time is over;
     then it says what the update waits for, if it makes no progress, or what the last instance wrote that failed.  Each change
     meanwhile is a line on stderr.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import uuid
from typing import Any, Final

import orjson

from phoenix.cli import cloud, printing, releases, units
from phoenix.cli.errors import FAILED, OK, UNREACHABLE, CliError, in_words, usage
from phoenix.cli.http import Client, quote
from phoenix.cli.last_output import last_words
from phoenix.cli.parser import at_least_zero
from phoenix.cli.retrying import ask_again
from phoenix.cli.waiting import LOST_MAX_S, POLL_FIRST_S, POLL_MAX_S
from schemas import control_characters
from services.domain import text as sentences

HELP: Final = """examples:
  phoenix deploy web --image shop-2 --wait            another image; 0 when all instances run it, 1 if it was given up
  phoenix deploy web --env GREETING=hello             one variable, the rest as it is
  phoenix deploy web --secret DB_PASSWORD=shop-db     the secret shop-db as a variable
  phoenix deploy web -- /srv/shop/serve --verbose     another command
  phoenix deploy web                                  the same again: every instance is replaced
  phoenix deploy web --undo                           what was complete before
  phoenix deploy web --configured                     what the configuration says
The program starts in an empty directory, as a user who cannot read private files: name it by absolute path.
What a program must do: docs/reference/web.md
How instances are replaced, and when a release is given up: docs/howto/deploy.md"""
_OPTIONS: Final = {  # of fields of the request
    "image": "--image",
    "environment": "--env",
    "secrets": "--secret",
    "health_path": "--health-path",
    "max_unavailable": "--max-unavailable",
    "max_surge": "--max-surge",
    "min_ready_s": "--min-ready",
    "undo": "--undo",
    "request": "--request",
}
_COMMAND: Final = "-\0"  # stands for `--`, which argparse would drop; it cannot be typed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("department", metavar="DEPT")
    parser.add_argument("--image", metavar="NAME", help="the image; '' is the site's own")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="a variable (may be repeated)")
    parser.add_argument(
        "--secret", action="append", default=[], metavar="VAR=NAME", help="a variable with the value of this secret"
    )
    parser.add_argument("--unset", action="append", default=[], metavar="K", help="without this variable or secret")
    parser.add_argument("--health-path", metavar="PATH", help="the path of the health check, such as /healthz")
    parser.add_argument("--configured", action="store_true", help="start from the configuration's settings")
    parser.add_argument("--undo", action="store_true", help="start from the last complete release before this one")
    parser.add_argument(
        "--max-unavailable",
        type=at_least_zero,
        metavar="N",
        help="at most N fewer instances serve meanwhile (default: the department's)",
    )
    parser.add_argument("--max-surge", type=at_least_zero, metavar="N", help="at most N more instances run meanwhile")
    parser.add_argument("--min-ready", metavar="TIME", help="a new instance counts once ready for this long: 5s, 1m")
    parser.add_argument("--request", metavar="ID", help="client request id: the same id deploys only once")
    parser.add_argument("--wait", action="store_true", help="until it is complete, or given up")
    parser.add_argument("--timeout", metavar="TIME", help="wait at most this long: 90s, 10m")
    parser.add_argument(_COMMAND, dest="command", type=orjson.loads, help=argparse.SUPPRESS)


def prepared(argv: list[str]) -> list[str]:
    """Rule 2."""
    at = argv.index("--") if "--" in argv else len(argv)
    return [*argv[:at], _COMMAND, orjson.dumps(argv[at + 1 :]).decode()] if at < len(argv) else argv


def run(args: argparse.Namespace) -> int:
    body, timeout_s = _asked(args), _timeout_s(args)
    where = cloud.find(args)
    where.check_web(args.department, "only web departments have releases")
    client = where.operator()
    try:
        answer = ask_again(client, f"/v1/departments/{quote(args.department)}/releases", body)
    except CliError as error:
        raise in_words(error, _OPTIONS) from error
    if answer.get("warning"):
        print(control_characters.shown(f"phoenix: {args.department}: {answer['warning']}"), file=sys.stderr, flush=True)
    if not args.wait:
        return _tell(args, answer, f"{args.department}: release {answer['release']}")
    if not args.json:
        print(f"{args.department}: release {answer['release']}", flush=True)
        print(f"phoenix: {given_up(answer)}", file=sys.stderr)
    found = wait(client, args.department, int(answer["release"]), timeout_s)
    if found["state"] == "complete":
        return _tell(
            args, {**answer, "state": "complete"}, f"{args.department}: release {answer['release']} is complete"
        )
    reason = found.get("stuck") or found.get("reason")
    if args.json:
        printing.json({**answer, "state": found["state"], "reason": reason})
    else:
        _tell_last_words(client, reason)
    raise CliError(FAILED, f"{args.department}: {_why_not(found)}", sentences.remedy(reason))


def given_up(answer: dict[str, Any]) -> str:
    """When the release is given up, as the department's settings say."""
    failures = int(answer["start_failures_max"])
    if not failures:
        return "it is tried until another release is deployed: start_failures_max is 0"
    return (
        f"it is given up after {units.count(failures, 'failed start')} of at most {answer['boot_timeout_s']:g} s each"
    )


def _tell(args: argparse.Namespace, answer: dict[str, Any], line: str) -> int:
    if args.json:
        printing.json(answer)
    else:
        print(line)
    return OK


def _tell_last_words(client: Client, reason: dict[str, Any] | None) -> None:
    unit = reason.get("unit") if reason else None
    if unit and (words := last_words(client, str(unit))):
        print(
            "\n".join([f"{unit} wrote last:", *(f"  {control_characters.shown(line)}" for line in words)]),
            file=sys.stderr,
        )


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    gone = dict.fromkeys(args.unset)
    return {
        "request": args.request or str(uuid.uuid4()),
        "image": args.image,
        "command": args.command,
        "environment": {**gone, **_pairs("--env", args.env)},
        "secrets": {**gone, **_secrets(args.secret)},
        "health_path": args.health_path,
        "configured": args.configured,
        "undo": args.undo,
        "max_unavailable": args.max_unavailable,
        "max_surge": args.max_surge,
        "min_ready_s": _min_ready_s(args),
    }


def _pairs(option: str, words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise usage(f"{option} {word}: NAME=VALUE is needed", f"{option} GREETING=hello")
        found[name] = value
    return found


def _secrets(words: list[str]) -> dict[str, str]:
    found = _pairs("--secret", words)
    for variable, name in found.items():
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
            told = "a secret's name is 1 to 64 small letters, digits, '.', '_' and '-', a letter or digit first"
            raise usage(f"--secret {variable}={name}: {told}", "--secret DB_PASSWORD=shop-db")
    return found


def _min_ready_s(args: argparse.Namespace) -> float | None:
    try:
        return None if args.min_ready is None else units.parse_time_s(args.min_ready)
    except ValueError as error:
        raise usage(f"--min-ready: {error}") from error


def _timeout_s(args: argparse.Namespace) -> float | None:
    if args.timeout is None:
        return None
    if not args.wait:
        raise usage("--timeout goes with --wait", "without --wait nothing is waited for")
    try:
        return units.parse_time_s(args.timeout)
    except ValueError as error:
        raise usage(f"--timeout: {error}") from error


# ---------------------------------------------------------------------------------------------------------------- waiting


def wait(client: Client, department: str, number: int, timeout_s: float | None) -> dict[str, Any]:
    """The release once nothing more will come of it; as it is when the time is over."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s, shown, lost_since = POLL_FIRST_S, "", None
    while True:
        try:
            found = _look(client, department, number)
            lost_since = None
        except CliError as error:
            lost_since = lost_since or time.monotonic()
            if error.code != UNREACHABLE or time.monotonic() - lost_since > LOST_MAX_S:
                raise
            found = {"release": number, "state": "not reachable"}
        if found["state"] in ("complete", "rolled_back", "stopped", "replaced", "forgotten"):
            return found
        if end is not None and time.monotonic() >= end:
            return {**found, "late_s": timeout_s, "stuck": releases.stuck(client, department)}
        shown = _progress(found, releases.stuck(client, department), shown)
        time.sleep(pause_s)
        pause_s = min(POLL_MAX_S, pause_s * 1.3)


def _look(client: Client, department: str, number: int) -> dict[str, Any]:
    answer = client.get(f"/v1/departments/{quote(department)}/releases")
    found = next((one for one in answer["releases"] if one["release"] == number), None)
    return {"instances_wanted": answer.get("instances_wanted"), **(found or {"release": number, "state": "forgotten"})}


def _progress(found: dict[str, Any], stuck: dict[str, Any] | None, shown: str) -> str:
    """Of those that are wanted: more of them come than there are yet.  `stuck`: what keeps it."""
    serving, live = (
        found.get("instances_serving", 0),
        max(found.get("instances", 0), found.get("instances_wanted") or 0),
    )
    text = f"release {found['release']}: {found['state']}, {serving} of {live} in service"
    if stuck is not None:
        text += f"; {sentences.sentence(stuck)}"
    if text != shown:
        print(control_characters.shown(text), file=sys.stderr, flush=True)
    return text


def _why_not(found: dict[str, Any]) -> str:
    number = found["release"]
    if "late_s" in found:
        late = f"release {number} is not complete after {found['late_s']:g} s"
        waits = found.get("stuck")
        return f"{late}: {sentences.sentence(waits)}" if waits else f"{late} ({found['state']}); it continues"
    if found["state"] in ("replaced", "forgotten"):
        return f"another release took the place of release {number}"
    return sentences.sentence(found.get("reason")) if found.get("reason") else f"release {number}: {found['state']}"
