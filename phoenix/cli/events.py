"""`phoenix events`: what happened, and with --follow what happens."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from phoenix.cli import cloud, printing, units
from phoenix.cli.errors import UNREACHABLE, CliError
from phoenix.cli.http import Client
from phoenix.cli.parser import at_least_zero
from services.domain import text as sentences
from services.domain.text import facts

LAST: Final = 30  # events shown when nothing else is asked for
QUIET: Final = "load.observed"  # one a second of each web department: it would be all that one sees
PAGE: Final = 5000  # events asked for at once
RETRY_S: Final = 0.5  # pause before a stream that ended is asked again
RETRIES_MAX: Final = 20  # in a row: the cloud is gone, not restarting
HELP: Final = """examples:
  phoenix events                        the last 30
  phoenix events --follow               what happens, until Ctrl-C
  phoenix events --sentences            the same in plain sentences
  phoenix events --all                  with the load that each web department has every second
  phoenix events --after 1200 --json    one JSON object a line, from position 1200 on"""
_PLACE: Final = (
    "v",
    "id",
    "kind",
    "position",
    "at",
    "index",
    "custody",
    "writer",
    "void",
    "cause",
    "department",
    "dept",
)
_OMIT: Final = frozenset(
    (*_PLACE, "reason", "why", "payload", "request")
)  # said elsewhere on the line, or not for people


_TIMES: Final = ("by", "start", "end", "until", "at")  # UTC seconds in a fact; shown as every other time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", "-f", action="store_true", help="follow new events, until Ctrl-C")
    parser.add_argument("--after", type=at_least_zero, metavar="N", help="only events after journal position N")
    parser.add_argument("--department", "-d", metavar="D", help="only events of this department")
    parser.add_argument("--all", action="store_true", help=f"also {QUIET}, one a second for each web department")
    parser.add_argument(
        "--sentences", "-s", action="store_true", help="each event as one plain sentence with its reason"
    )
    parser.add_argument(
        "--last", "-n", type=at_least_zero, default=LAST, metavar="N", help=f"how many (default {LAST})"
    )


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    if args.department:
        where.check_department(args.department)
    client = where.operator()
    chosen = Chosen(args.department, None if args.all else QUIET)
    after = args.after
    for event in since(client, after, chosen) if after is not None else read(client, chosen, args.last):
        _print(event, args)
        after = max(after or 0, int(event.get("position", 0)))
    if args.follow:
        for event in follow(client, after or 0, chosen):
            _print(event, args)
    return 0


class Chosen(NamedTuple):
    """Which events: the server looks for a department's, and denies those that the caller may not see."""

    department: str | None = None
    omit: str | None = QUIET


def read(client: Client, chosen: Chosen, last: int) -> list[dict[str, Any]]:
    """The newest `last` events that the monitor still keeps."""
    return _parsed(client.lines("/v1/events", limit=last, **chosen._asdict()))


def since(client: Client, after: int, chosen: Chosen) -> Iterator[dict[str, Any]]:
    """All that the monitor still keeps behind a position, page by page."""
    while True:
        try:
            page = _parsed(client.lines("/v1/events", after=after, limit=PAGE, **chosen._asdict()))
        except CliError as error:
            after = _after_gap(error, after)
            continue
        yield from page
        reached = max((int(event.get("position", after)) for event in page), default=after)
        if len(page) < PAGE or reached <= after:
            return
        after = reached


def follow(client: Client, after: int, chosen: Chosen) -> Iterator[dict[str, Any]]:
    """Events as they come; a stream that ends is asked again from the last position."""
    failures = 0
    while True:
        try:
            for line in client.lines("/v1/events", after=after, follow=1, **chosen._asdict()):
                failures = 0
                event = _parse(line)
                if event is not None:
                    after = max(after, int(event.get("position", after)))
                    yield event
        except CliError as error:
            if error.code != UNREACHABLE:
                after = _after_gap(error, after)
            failures += 1
            if failures > RETRIES_MAX:
                raise
        time.sleep(RETRY_S)


def _after_gap(error: CliError, after: int) -> int:
    """Where what is kept begins, if that is all that is wrong; users get a note that something is missing before it."""
    oldest = (error.answer or {}).get("oldest")
    if not isinstance(oldest, int) or oldest <= after:
        raise error
    print(
        f"phoenix: events after position {after} up to {oldest} are not kept any more: some are missing",
        file=sys.stderr,
    )
    return oldest


def render(event: dict[str, Any]) -> str:
    """One line: when, what, to whom, why."""
    instant = event.get("at")
    clock = _second(instant)
    body = event.get("fact") if isinstance(event.get("fact"), dict) else event.get("data")
    details = {
        **(body if isinstance(body, dict) else {}),
        **{k: v for k, v in event.items() if k not in ("fact", "data")},
    }
    lease = details.get("lease")
    if isinstance(lease, dict):  # of job.submitted: what makes it one
        told = {key: value for key, value in lease.items() if key != "kind" and value}
        details = {**details, **told, "lease": lease.get("kind")}
    words = " ".join(f"{key}={_value(key, value)}" for key, value in details.items() if _is_telling(key, value))
    if facts.ended_early(details):
        words = words.replace("terminated=True", "ended early")
    reason = details.get("reason") or details.get("why")
    why = f"  ({sentences.sentence(reason)})" if reason else ""
    kind = details.get("kind", "?")
    return f"{clock}  {kind:<18} {details.get('department') or details.get('dept') or '-':<10} {words}{why}"


def _second(instant: object) -> str:
    return units.iso(units.seconds(instant)) or ""


def _is_time(key: str) -> bool:
    return key in _TIMES or key.endswith("_at")


def _is_telling(key: str, value: object) -> bool:
    if value == 0 and _is_time(key):  # no time: the end of a quarantine that is over
        return False
    return key not in _OMIT and value is not False and value not in (None, "", []) and not isinstance(value, dict)


def _value(key: str, value: object) -> str:
    if isinstance(value, int | float) and _is_time(key) and value is not True:
        return units.iso(value) or ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _parsed(lines: Iterator[bytes]) -> list[dict[str, Any]]:
    return [event for line in lines if (event := _parse(line)) is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    text = line.strip().removeprefix(b"data:").strip()
    if not text.startswith(b"{"):
        return None  # a keep-alive or another field of server-sent events
    parsed = orjson.loads(text)
    return parsed if isinstance(parsed, dict) else None


def spoken(event: dict[str, Any]) -> str:
    """One line: when, and what happened in a sentence."""
    fact, at = event.get("fact"), event.get("at")
    sentence = facts.told(str(event.get("kind")), fact if isinstance(fact, dict) else {}, event.get("department") or "")
    return f"{_second(at)}  {sentence}"


def _print(event: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        printing.line(event)
    else:
        printing.text(spoken(event) if args.sentences else render(event))
        sys.stdout.flush()
