"""`phoenix status`: endpoints, credentials' files, processes and their health."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from phoenix.cli import cloud, local, printing, tables, units
from phoenix.cli.errors import FAILED, OK, UNREACHABLE, CliError

HELP: Final = """examples:
  phoenix status           what runs, where, and how it is
  phoenix status --json    nats_url, http_url, opennebula_url, credentials, processes, isolation, …

exit code: 0 everything is up, 1 something is not, 3 no cloud is running"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    data = cloud.data_dir(args)
    try:
        told = ask(data)
    except CliError as error:
        if args.json and error.code == UNREACHABLE:
            printing.json(
                {"running": False, "ready": False, "healthy": False, "data": str(data.absolute()), "processes": []}
            )
            return UNREACHABLE
        raise
    printing.answer(told, render, as_json=args.json)
    return OK if told["healthy"] else FAILED


def ask(data: Path) -> dict[str, Any]:
    """The supervisor's own account.  CliError if there is none."""
    from phoenix.local.control import NotRunningError, call
    from phoenix.local.stack_layout import layout

    where = layout(data)
    try:
        told = call(where, {"op": "status"})
    except NotRunningError as error:
        hint = f"start one: phoenix up --detach --data {data}"
        raise CliError(UNREACHABLE, f"no cloud is running in {where.data}", hint) from error
    told.pop("ok", None)
    return told


def render(told: dict[str, Any]) -> str:
    rows = [
        (p["name"], str(p["pid"] or "-"), p["health"], str(p["restarts"]), units.second(p["since"]), p["url"] or "")
        for p in told["processes"]
    ]
    head = ("PROCESS", "PID", "HEALTH", "RESTARTS", "SINCE", "WHERE")
    told_of = [f"{p['name']}: {sentence}" for p in told["processes"] for sentence in p.get("ailing", ())]
    reason = f" ({told['isolation_reason']})" if told["isolation_reason"] else ""
    machine = [
        ("hosts", local.machine_room(told) + (f", hypervisor {told['hypervisor']}" if told["hypervisor"] else "")),
        ("isolation", f"{told['isolation']}{reason}"),
    ]
    if told["job_network"]:
        why = f" ({told['job_network_reason']})" if told["job_network_reason"] else ""
        machine.append(("job network", f"{told['job_network']}{why}"))
    parts = [local.endpoints(told), tables.pairs(machine), tables.render(head, rows, right="PID RESTARTS")]
    return "\n\n".join([*parts, *(["\n".join(told_of)] if told_of else [])])
