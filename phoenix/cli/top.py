"""`phoenix top`: a live screen of hosts by owner, the queue and what happens.

What is drawn comes from the monitor once a second; `screen` is also what the demo shows while it plays.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from phoenix.cli import cloud, events, queue, tables
from phoenix.cli import departments as departments_of
from phoenix.cli.errors import OK, UNREACHABLE, CliError
from phoenix.cli.http import Client
from phoenix.cli.parser import amount

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY_S: Final = 1.0
JOBS_SHOWN: Final = 12
EVENTS_SHOWN: Final = 10
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red")
HELP: Final = """examples:
  phoenix top               until Ctrl-C
  phoenix top --once        draw it once, for a log"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="draw it once and end")
    parser.add_argument(
        "--every", type=amount, default=EVERY_S, metavar="S", help="seconds between two pictures (default 1)"
    )


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    client = cloud.find(args).operator()
    view = View(client)
    console = Console()
    if args.once or not sys.stdout.isatty():
        console.print(view.draw())
        return OK
    with Live(view.draw(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(max(0.1, args.every))
            live.update(view.draw(), refresh=True)


class View:
    """What is on the screen.  A cloud that does not answer is said on the screen, not raised."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)

    def draw(self) -> RenderableType:
        from rich.text import Text

        try:
            hosts = self._client.get("/v1/hosts")["hosts"]
            departments = self._client.get("/v1/departments")["departments"]
            jobs = self._client.get("/v1/queue", limit=JOBS_SHOWN * 4, form="lines")
            self._read_events()
        except CliError as error:
            if error.code != UNREACHABLE:
                raise
            return Text(f"{error.message}\n(asking again)", style="bold red")
        return screen(hosts, departments, jobs, list(self._events))

    def _read_events(self) -> None:
        """The newest are all that there is room for."""
        fresh = events.read(self._client, events.Chosen(), EVENTS_SHOWN)
        self._events = deque((events.render(event) for event in fresh), maxlen=EVENTS_SHOWN)


def screen(
    hosts: Sequence[dict[str, Any]],
    departments: Sequence[dict[str, Any]],
    jobs: dict[str, Any],
    lines: Sequence[str],
) -> RenderableType:
    """Hosts by owner, departments, the queue, the last events."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text  # what is no text of its own would be read as rich's markup

    names = sorted({str(d.get("department")) for d in departments})
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    rows = sorted(jobs["lines"], key=lambda line: line[queue.STATE] not in ("running", "starting"))[:JOBS_SHOWN]
    return Group(
        Panel(_rack(hosts, colours), title=f"{len(hosts)} hosts", title_align="left"),
        _departments(departments, colours),
        Panel(Text(queue.render(rows, len(rows))), title=f"queue: {jobs.get('total', len(rows))}", title_align="left"),
        Panel(Text(tables.lines_shown("\n".join(lines)) or "nothing yet"), title="events", title_align="left"),
    )


def _rack(hosts: Sequence[dict[str, Any]], colours: dict[str, str]) -> RenderableType:
    """One block a host, in the colour of who holds it, filled where work runs; a legend below."""
    from rich.text import Text

    text, counts = Text(), dict.fromkeys([*colours, "free", "draining", "lost"], 0)
    for host in hosts:
        owner = host.get("department") if host["state"] == "held" else host["state"]
        counts[str(owner)] = counts.get(str(owner), 0) + 1
        style = colours.get(str(owner), "bright_black" if owner == "free" else "red")
        text.append("■ " if host.get("units") else "□ ", style=style)
    text.append("\n")
    for owner, number in counts.items():
        if number:
            text.append(f"{owner} {number}   ", style=colours.get(owner, "bright_black" if owner == "free" else "red"))
    return text


def _departments(departments: Sequence[dict[str, Any]], colours: dict[str, str]) -> RenderableType:
    from rich.table import Table

    table = Table(expand=True, show_edge=False)
    for head in ("department", "kind", "held", "quota", "demand", "work", "utilisation"):
        table.add_column(head, justify="left" if head in ("department", "kind", "work") else "right")
    for one in departments:
        name = str(one.get("department"))
        table.add_row(
            f"[{colours.get(name, 'white')}]{name}[/]",
            str(one.get("kind") or ""),
            str(one.get("hosts_held", "")),
            str(one.get("hosts_quota", "")),
            str(one.get("hosts_demanded", "")),
            departments_of.work(one),
            departments_of.load(one) + (" [red]no signal[/]" if one.get("signal_missing_since") else ""),
        )
    return table
