"""`phoenix hosts`: who holds which, and taking one out of use or back in."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, emit, suggest, tables, units
from phoenix.cli.errors import USAGE, CliError, usage
from phoenix.cli.http import Client, quote

STATES: Final = ("free", "held", "draining", "lost", "absent")
VERBS: Final = {"cordon": "cordoned", "drain": "draining", "uncordon": "back in use"}
FOR_GOOD_YEARS: Final = 5  # longer is no time but "until that is over"
HELP: Final = """examples:
  phoenix hosts                                      who holds which host
  phoenix hosts cordon host03 --reason "bad disk"    grant it to nobody any more
  phoenix hosts drain host03 --reason "bad disk"     also ask its department to give it back
  phoenix hosts uncordon host03                      use it again"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb", nargs="?", metavar="cordon|drain|uncordon", help="what to do; without it: list the hosts"
    )
    parser.add_argument("host", nargs="*", metavar="HOST", help="the hosts to do it to")
    parser.add_argument("--reason", default="", help="why; people see it in `phoenix hosts`")
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
        raise usage("say why, for the people who will wonder", f"phoenix hosts {args.verb} {args.host[0]} --reason WHY")
    client = cloud.find(args).operator()
    done = [_act(client, args.verb, host, args.reason) for host in args.host]
    if args.json:
        emit.json({"hosts": done})
    else:
        print("\n".join(f"{host}: {VERBS[args.verb]}" for host in args.host))
    return 0


def _act(client: Client, verb: str, host: str, reason: str) -> dict[str, Any]:
    try:
        answer = client.post(f"/v1/hosts/{quote(host)}/{verb}", {"host": host, "reason": reason})
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
        raise usage(f"{args.state!r} is no state of a host", suggest.hint(args.state, STATES))
    answer = where.operator().get("/v1/hosts", department=args.department, state=args.state)
    hosts = [
        host
        for host in answer["hosts"]
        if (not args.department or host.get("department") == args.department)
        and (not args.state or host["state"] == args.state)
    ]
    if args.json:
        emit.json({**answer, "hosts": hosts})
    else:
        print(render(hosts))
    return 0


def render(hosts: list[dict[str, Any]]) -> str:
    if not hosts:
        return "no hosts"
    rows = [
        (
            host["host"],
            host["state"],
            host.get("department") or "-",
            _owner(host),
            f"{host.get('cores_used', 0)}/{host.get('cores', 0)}",
            str(host.get("memory_mb", "")),
            _work(host.get("units") or []),
            units.iso(host.get("since")) or "",
            _note(host),
        )
        for host in hosts
    ]
    head = ("HOST", "STATE", "DEPARTMENT", "OWNER", "CORES", "MEMORY", "UNITS", "SINCE", "NOTE")
    return tables.render(head, rows, right="CORES MEMORY")


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


def _note(host: dict[str, Any]) -> str:
    notes = [f"cordoned: {host['cordoned']}"] if host.get("cordoned") else []
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
