"""How the embedded cloud is shown: its endpoints, and a live line while `phoenix up` runs in the foreground."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import orjson

from phoenix.cli import tables
from phoenix.cli.units import count

if TYPE_CHECKING:
    from phoenix.local.supervisor import Supervisor

REFRESH_S: Final = 1.0
LINE_MAX: Final = 118


def endpoints(about: dict[str, Any]) -> str:
    """Where everything is, and what to type next."""
    whose = "external, " if is_external(about) else ""
    items = [
        ("cloud", about["cloud"] + ("" if is_external(about) else f", {machine_room(about)}")),
        ("data", about["data"]),
        ("nats", about["nats_url"]),
        ("http", about["http_url"] or "(no services)"),
        ("monitor", about["monitor_url"] or "(no services)"),
        ("opennebula", f"{about['opennebula_url']}  ({whose}{about['opennebula_auth_file']})"),
        *((name, f"{url}  ({_balancer(about)})") for name, url in sorted(about["balancers"].items())),
        ("credentials", about["credentials_dir"]),
    ]
    return tables.pairs(items)


def _balancer(about: dict[str, Any]) -> str:
    return "HAProxy" if about.get("balancer") == "haproxy" else "embedded load balancer"


def is_external(about: dict[str, Any]) -> bool:
    """True for a cloud on a site's own OpenNebula."""
    return about.get("opennebula") == "external"


def machine_room(about: dict[str, Any]) -> str:
    if is_external(about):
        return "those of the site's OpenNebula (phoenix hosts)"
    return f"{count(about['hosts'], 'host')} of {count(about['cores'], 'core')}"


def live(out: TextIO) -> Callable[[Supervisor], None]:
    """For `up.foreground`: print the endpoints, then, on a terminal, a line that keeps itself current."""

    def ready(supervisor: Supervisor) -> None:
        about = supervisor.status()
        print(endpoints(about), file=out)
        print(
            "\nready; Ctrl-C stops it.  In another terminal: phoenix submit --wrap 'hostname'; phoenix top",
            file=out,
            flush=True,
        )
        if out.isatty():
            supervisor.line = asyncio.create_task(_keep_line(supervisor, out), name="status line")

    return ready


async def _keep_line(supervisor: Supervisor, out: TextIO) -> None:
    while not supervisor.stopping:
        out.write("\r\x1b[2K" + (await _line(supervisor))[:LINE_MAX])
        out.flush()
        await asyncio.sleep(REFRESH_S)
    out.write("\r\x1b[2K")


async def _line(supervisor: Supervisor) -> str:
    """Who holds hosts, pending and running jobs, who is not well."""
    status = supervisor.status()
    ill = [f"{p['name']} {p['health']}" for p in status["processes"] if p["health"] != "ok"]
    overview = await _overview(status)
    owners = overview.get("owners") or {}
    words = [f"{name} {number}" for name, number in sorted(owners.items()) if isinstance(number, int)]
    held = f"hosts: {', '.join(words)}" if words else machine_room(status)
    return f"{held}  |  {', '.join(ill) if ill else 'all processes are well'}"


async def _overview(status: dict[str, Any]) -> dict[str, Any]:
    from phoenix.local.supervisor_probe import http_get

    operator = next((user for user in status["users"] if user["role"] == "operator"), None)
    if operator is None or not status["monitor_url"]:
        return {}
    host, _, port = status["monitor_url"].rpartition("/")[2].partition(":")
    try:
        token = Path(operator["token_file"]).read_text().strip()  # noqa: ASYNC240  # a few bytes of a local file
        code, body = await http_get(host, int(port), "/v1/overview", token=token)
        return dict(orjson.loads(body)) if code == 200 else {}
    except (OSError, TimeoutError, ValueError, EOFError):
        return {}
