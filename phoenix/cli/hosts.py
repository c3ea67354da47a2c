"""`phoenix hosts`: who holds which, and taking one out of use or back in.

Rules
  1. With a host that is cordoned or drained it is said what runs there, what of it stays and what will end: as it was before,
     and once it is granted, since what is refused changes nothing.  If that cannot be read, this is said, and the host is set
     apart all the same: a broken host must not wait for the monitor.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from phoenix.cli import cloud, printing, suggest, tables, units
from phoenix.cli.errors import USAGE, CliError, usage
from phoenix.cli.http import Client, quote
from schemas.dimensions import DIMENSIONS, Dimension
from schemas.ids import is_instance

STATES: Final = ("free", "held", "draining", "lost", "absent")
VERBS: Final = {"cordon": "cordoned", "drain": "draining", "uncordon": "back in use"}
NAMED_MAX: Final = 10  # of a host: a longer list is not read
FOR_GOOD_YEARS: Final = 5  # longer is no time but "until that is over"
HELP: Final = """examples:
  phoenix hosts                                      who holds which host
  phoenix hosts cordon host03 --reason "bad disk"    place nothing more there; what runs stays
  phoenix hosts drain host03 --reason "bad disk"     also replace web instances elsewhere; jobs run to their end
  phoenix hosts drain host03 --reason "new memory" --deadline 2h    … or for two hours at most
  phoenix hosts uncordon host03                      use it again"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb", nargs="?", metavar="cordon|drain|uncordon", help="the action; without one, list the hosts"
    )
    parser.add_argument("host", nargs="*", metavar="HOST", help="the hosts to act on")
    parser.add_argument("--reason", default="", help="why; people see it in `phoenix hosts`")
    parser.add_argument(
        "--deadline", metavar="TIME", help="drain: end what still runs there after this time: 30m, 2h, or 0 for at once"
    )
    parser.add_argument("--department", "-d", metavar="D", help="list only the hosts that it holds")
    parser.add_argument("--state", metavar="STATE", help=f"list only those in this state: {' '.join(STATES)}")


def run(args: argparse.Namespace) -> int:
    if args.verb is None:
        return _list(cloud.find(args), args)
    if args.verb not in VERBS:
        raise usage(f"hosts has no {args.verb!r}", suggest.hint(args.verb, VERBS))
    if not args.host:
        raise usage(f"which host is to be {args.verb}ed?", f"phoenix hosts {args.verb} HOST --reason WHY")
    if args.verb != "uncordon" and not args.reason:
        raise usage(
            "give a reason for the people who will ask", f"phoenix hosts {args.verb} {args.host[0]} --reason WHY"
        )
    deadline_s = _deadline_s(args)
    client = cloud.find(args).operator()
    there = _there(client, args.host)
    asked = {"reason": args.reason} | ({} if deadline_s is None else {"deadline_s": deadline_s})
    done: list[dict[str, Any]] = []
    refused: dict[str, Any] = {}
    try:
        for host in args.host:
            runs = _runs(there.get(host)) if args.verb != "uncordon" else {}
            done.append(_act(client, args.verb, host, asked) | runs)
            if args.json:
                continue
            print(f"{host}: {outcome(args.verb, there.get(host))}", flush=True)
            if host in there and args.verb != "uncordon":
                print(told(there[host], args.verb, deadline_s, time.time()), flush=True)
    except CliError as error:
        refused = {"error": error.problem()}
        raise
    finally:  # the hosts before the one that was refused are done
        if args.json and (done or not refused):
            printing.json({"hosts": done} | refused)
    return 0


def _deadline_s(args: argparse.Namespace) -> float | None:
    if args.deadline is None:
        return None
    if args.verb != "drain":
        raise usage(
            f"{args.verb} has no --deadline: only drain ends what runs", "phoenix hosts drain HOST --deadline TIME"
        )
    try:
        return units.parse_time_s(args.deadline)
    except ValueError as error:
        raise usage(f"--deadline: {error}") from error


def _there(client: Client, names: list[str]) -> dict[str, dict[str, Any]]:
    """Rule 1: the hosts as they are now.  One that the monitor does not know is not there: the cloud will say so."""
    try:
        known = {str(row["host"]): row for row in client.get("/v1/hosts")["hosts"]}
    except CliError as error:
        print(f"phoenix: what runs there cannot be read ({error.message})", file=sys.stderr)
        return {}
    return {name: known[name] for name in names if name in known}


def outcome(verb: str, row: dict[str, Any] | None) -> str:
    """What the verb has done to a host that was in this row before.  A quarantine is not a person's, and stays."""
    if verb != "uncordon" or row is None:
        return VERBS[verb]
    was = VERBS[verb] if row.get("cordoned") else "it was not cordoned"
    return f"{was}, but quarantined: {row['quarantine']}{_until(row)}" if row.get("quarantine") else was


def _runs(row: dict[str, Any] | None) -> dict[str, Any]:
    return {} if row is None else {"department": row.get("department"), "units": row.get("units") or []}


def told(row: dict[str, Any], verb: str, deadline_s: float | None, now: float) -> str:
    """Rule 1, of one host that was cordoned or drained."""
    running = [str(unit) for unit in row.get("units") or []]
    jobs, instances = ([u for u in running if is_instance(u) is web] for web in (False, True))
    if not running:
        holder = f", and {row['department']} gives it back" if row["state"] == "held" else ""
        return f"{row['host']}: nothing runs there{holder}; it is granted to no department"
    words = [_job_stays(jobs, deadline_s, now)] if jobs else []
    words += [_instance_stays(instances, verb, deadline_s, now)] if instances else []
    after = f"{row['department']} gives the host back"
    if deadline_s is None:
        after = f"; then {after}"
    elif deadline_s == 0:
        after = f", as on notice; then {after}"
    else:
        after = f"; then {'it is' if len(running) == 1 else 'they are'} ended, as on notice, and {after}"
    return f"{row['host']} ({row['department']}): {', '.join(words)}{after}"


def _job_stays(jobs: list[str], deadline_s: float | None, now: float) -> str:
    """Until when these jobs run."""
    who, one = _named("job", jobs), len(jobs) == 1
    if deadline_s is None:
        return f"{who} {'runs' if one else 'run'} to the end"
    if deadline_s == 0:
        return f"{who} {'is' if one else 'are'} ended now"
    return f"{who} may run until {units.iso(now + deadline_s)}"


def _instance_stays(instances: list[str], verb: str, deadline_s: float | None, now: float) -> str:
    """What becomes of these instances."""
    who, one = _named("instance", instances), len(instances) == 1
    if verb != "drain":
        return f"{who} {'serves' if one else 'serve'} on"
    if deadline_s == 0:
        return f"{who} {'is' if one else 'are'} ended now"
    if deadline_s is not None:
        return f"{who} {'has' if one else 'have'} until {units.iso(now + deadline_s)} to be replaced elsewhere"
    return f"{who} {'is' if one else 'are'} replaced elsewhere first"


def _named(noun: str, names: list[str]) -> str:
    return f"{noun}{'s' if len(names) > 1 else ''} {units.some(names, NAMED_MAX)}"


def _act(client: Client, verb: str, host: str, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = client.post(f"/v1/hosts/{quote(host)}/{verb}", {"host": host, **asked})
    except CliError as error:
        if error.code != USAGE:
            raise
        known = [item["host"] for item in client.get("/v1/hosts")["hosts"]]
        raise usage(error.message, suggest.hint(host, known) if host not in known else "") from error
    return {"host": host, **answer}


def _list(where: cloud.Cloud, args: argparse.Namespace) -> int:
    if args.department:
        where.check_department(args.department)
    if args.state and args.state not in STATES:
        raise usage(f"--state: {args.state!r} is no state of a host", suggest.hint(args.state, STATES))
    answer = where.operator().get("/v1/hosts")
    hosts = [
        host
        for host in answer["hosts"]
        if (not args.department or host.get("department") == args.department)
        and (not args.state or host["state"] == args.state)
    ]
    if args.json:
        printing.json({**answer, "hosts": hosts})
    else:
        printing.text(render(hosts))
    return 0


def _in_use(host: dict[str, Any], dimension: Dimension) -> str:
    """`3/8`; of memory only how much there is."""
    there = host.get(dimension.field, 0)
    return str(there) if dimension.field == "memory_mb" else f"{host.get(dimension.used, 0)}/{there}"


def render(hosts: list[dict[str, Any]]) -> str:
    """A column of what is optional only where a host has any."""
    if not hosts:
        return "no hosts"
    shown = [d for d in DIMENSIONS if any(d.is_shown(host.get(d.field, 0)) for host in hosts)]
    rows = [
        (
            host["host"],
            host["state"],
            host.get("department") or "-",
            _owner(host),
            *(_in_use(host, dimension) for dimension in shown),
            _work(host.get("units") or []),
            units.iso(host.get("since")) or "",
            _note(host),
        )
        for host in hosts
    ]
    size = [dimension.name.upper() for dimension in shown]
    head = ("HOST", "STATE", "DEPARTMENT", "OWNER", *size, "UNITS", "SINCE", "NOTE")
    return tables.render(head, rows, right=" ".join(size))


def _owner(host: dict[str, Any]) -> str:
    """Whose it is; of a host that is lent also when it is due, if that is known."""
    owner = str(host.get("owner") or "-")
    if not host.get("lent"):
        return owner
    due = f" due {units.iso(host['due_at'])}" if host.get("due_at") else ""
    return f"{owner} (lent{due})"


def _work(running: list[str] | dict[str, Any]) -> str:
    names = list(running)
    return ",".join(names[:3]) + (f",… ({len(names)})" if len(names) > 3 else "")


def _until(host: dict[str, Any]) -> str:
    """When the quarantine ends by itself; nothing of one that lasts as long as its reason."""
    until = str(host.get("quarantine_until") or "")
    year = until[:4]
    if not year.isdigit() or int(year) > FOR_GOOD_YEARS + int(str(host.get("since") or until)[:4]):
        return ""
    return f", until {units.iso(until)}"


def _apart(host: dict[str, Any]) -> str:
    """What a person's word on the host means now: nothing more comes, and what is there stays, or until when."""
    running = host.get("units") or []
    jobs, instances = (sum(is_instance(str(unit)) is web for unit in running) for web in (False, True))
    there = [units.count(number, noun) for number, noun in ((jobs, "job"), (instances, "instance")) if number]
    left = f", {' and '.join(there)} still there" if there else ""
    word = "draining" if host.get("drain") and (running or host["state"] == "held") else "cordoned"
    until = f" until {units.iso(host['drain_until'])}" if word == "draining" and host.get("drain_until") else ""
    return f"{word}{until}{left}: {host['cordoned']}"


def _note(host: dict[str, Any]) -> str:
    notes = [_apart(host)] if host.get("cordoned") else []
    if host.get("quarantine"):
        notes.append(f"quarantined: {host['quarantine']}{_until(host)}")
    if host.get("probation"):
        notes.append(f"on probation: {host['probation']}")
    if host.get("vms_waiting"):
        notes.append(f"{host['vms_waiting']} VM{'s' if host['vms_waiting'] > 1 else ''} waiting for a job")
    if host.get("power_saving"):
        notes.append(f"could be switched off: empty since {units.iso(host.get('idle_since'))}")
    if host.get("lost"):
        notes.append(f"lost: {host['lost']}")
    return "; ".join(notes)
