"""The replay's side of `phoenix whatif`: options, the record, and what is shown.

Rules
  1. Operators only: the record shows the work of all users.
  2. The difference is between the two replays; what happened stands beside, and how far the model is from it comes first.
     Where a plug-in was in force that is not installed here any more, only the new configuration is played: the difference is
     from what happened then, and said to be.
  3. What cannot be compared, and what was assumed, is reported as notes on stderr, and in JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from phoenix.cli import cloud, config, files, printing, tables, units
from phoenix.cli.errors import FAILED, OK, CliError, usage
from phoenix.cli.http import Client
from phoenix.cli.parser import count
from phoenix.cli.period import instant

if TYPE_CHECKING:  # the simulator is imported when something is replayed
    from phoenix.whatif.lives import Unknown
    from phoenix.whatif.past import Past, Played
    from schemas.config import CloudConfig
    from services.scheduler.edge.plugins import Lack

SINCE_DEFAULT: Final = "24h"
_LABELS: Final = {  # metric -> (as it is shown, kind of number)
    "submitted": ("jobs", "count"),
    "completed": ("completed", "count"),
    "unfinished": ("unfinished", "count"),
    "killed": ("killed", "count"),
    "timeout": ("over their time", "count"),
    "cancelled": ("cancelled", "count"),
    "failed": ("failed", "count"),
    "refused": ("refused", "count"),
    "mean_wait_s": ("wait, mean", "time"),
    "median_wait_s": ("wait, median", "time"),
    "p95_wait_s": ("wait, 95 %", "time"),
    "mean_wait_of_all_s": ("wait so far, of all", "time"),
    "mean_turnaround_s": ("turnaround, mean", "time"),
    "median_turnaround_s": ("turnaround, median", "time"),
    "p95_turnaround_s": ("turnaround, 95 %", "time"),
    "preempted": ("preempted", "count"),
    "lost_node_h": ("lost to that, node-hours", "hours"),
    "in_service_instance_h": ("in service, instance-hours", "hours"),
    "peak_in_service": ("in service at the most", "count"),
    "shortfall_instance_s": ("shortfall, instance-seconds", "number"),
    "longest_shortfall_s": ("shortfall, longest", "time"),
    "overload_instance_s": ("overload, instance-seconds", "number"),
    "held_host_h": ("held, host-hours", "hours"),
    "lent_host_h": ("lent, host-hours", "hours"),
    "borrowed_host_h": ("borrowed, host-hours", "hours"),
    "hosts_moved": ("moves of hosts", "count"),
    "held_utilisation": ("hosts held", "share"),
    "useful_utilisation": ("useful work of batch", "share"),
}
_ALWAYS: Final = ("submitted", "completed", "mean_wait_s", "mean_turnaround_s")


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config", type=files.named, metavar="FILE", help="the configuration that would have been in force"
    )
    group.add_argument("--hosts", type=count, metavar="N", help="replay on N hosts instead")
    group.add_argument("--since", metavar="WHEN", help="24h, 7d, or a date (default: 24h)")
    group.add_argument("--until", metavar="WHEN", help="likewise (default: now)")
    group.add_argument("--by", choices=("department", "user"), help="group by (default: department)")
    group.add_argument(
        "--unknown",
        choices=("longest", "shortest"),
        help="jobs that did not end by themselves: until their time limit (default), or as long as they were seen",
    )
    group.add_argument("--plot", type=files.named, metavar="FILE", help="hosts by owner in both replays, SVG or PNG")


def asked(args: argparse.Namespace) -> str | None:
    """The option that asks for a replay, if one does."""
    names = ("config", "hosts", "since", "until", "by", "unknown", "plot")
    return next((f"--{name}" for name in names if getattr(args, name) is not None), None)


def run(args: argparse.Namespace) -> int:
    new = _config(args)
    now = time.time()
    since = instant("--since", args.since or SINCE_DEFAULT, now)
    until = now if args.until is None else instant("--until", args.until, now)
    if until > now:
        raise usage("--until is to come: what has not happened cannot be played again", "leave it out: until now")
    if until <= since:
        raise usage("--until is not after --since")
    _check_plot(args.plot)
    past, present, other = _played(cloud.find(args).operator(), since, until, new, args)
    told = compared(past, present, other, new, until, args)
    if args.plot is not None:
        from phoenix.whatif.plot import draw

        first = (
            ("what happened", past.what_happened()) if present is None else ("present configuration", present.outcome)
        )
        draw(args.plot, [first, *([("new", other.outcome)] if other else [])])
    for note in told["notes"] if not args.json else ():
        print(f"phoenix: {note}", file=sys.stderr)
    if args.json:
        printing.json(told)
    else:
        print(render(told, by=args.by or "department", seconds=until - past.since))
    return OK


def compared(
    past: Past,
    present: Played | None,
    other: Played | None,
    new: CloudConfig | None,
    until: float,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """The answer, as `--json` has it.  `present` None: what was in force cannot be played again (rule 2)."""
    from phoenix.whatif.compare import by_user, differences, fidelity, values

    happened = values(past.what_happened(), past.config, past.since)
    one = values(present.outcome, past.config, past.since) if present is not None else None
    two = values(other.outcome, new or past.config, past.since) if other is not None else None
    before = happened if one is None else one
    return {
        "since": units.exact(past.since),
        "until": units.exact(until),
        "config": None if args.config is None else str(args.config),
        "hosts": {"present": past.hosts, "new": args.hosts or past.hosts},
        "paces": _paces(past),
        "notes": notes(past, present, other, new),
        "fidelity": None if one is None else fidelity(happened, one),
        "departments": {"happened": happened, "present": one, "new": two},
        "users": {
            "happened": by_user(past.what_happened()),
            "present": None if present is None else by_user(present.outcome),
            "new": None if other is None else by_user(other.outcome),
        },
        "compared_with": "happened" if one is None else "present",
        "differences": None if two is None else differences(before, two),
    }


def _config(args: argparse.Namespace) -> CloudConfig | None:
    """The same errors as `phoenix config check`."""
    if args.config is None:
        return None
    if not args.config.is_file():
        raise usage(f"{args.config}: there is no such file")
    found: CloudConfig = config.load_file(args.config).cloud
    return found


def _check_plot(path: Path | None) -> None:
    if path is not None:
        from phoenix.simulate import places

        if path.suffix not in (".svg", ".png"):
            raise usage(f"--plot {path}: a plot is an .svg or a .png")
        places.check_file("--plot", path)


def _played(
    client: Client, since: float, until: float, new: CloudConfig | None, args: argparse.Namespace
) -> tuple[Past, Played | None, Played | None]:
    """The past, and both replays: of what was in force, unless a plug-in is not here any more, and of what would have been."""
    from phoenix.simulate.engine import Restless
    from phoenix.whatif.past import TooMuch
    from services.domain.exits import Stop
    from services.scheduler.core.policies.registry import Missing

    unknown: Unknown = "shortest" if args.unknown == "shortest" else "longest"
    past = past_of(client, since, until)
    try:
        present = other = None
        try:
            present = past.play("present", unknown=unknown)
        except Missing as error:
            if new is None:
                hint = "install the package here, or name another configuration: --config FILE"
                raise CliError(FAILED, "; ".join(map(_was_in_force, past.lacking())), hint) from error
        if new is not None or args.hosts is not None:
            other = past.play("new", new, args.hosts, unknown=unknown)
        return past, present, other
    except TooMuch as error:
        raise CliError(FAILED, str(error)) from error
    except Restless as error:
        raise CliError(FAILED, str(error), "that is a bug in a policy") from error
    except Stop as error:
        raise CliError(FAILED, error.why) from error


def past_of(client: Client, since: float, until: float) -> Past:
    """What was asked of the cloud in that period, read from its journal.  Raises CliError."""
    from phoenix.whatif.past import Past, TooMuch
    from phoenix.whatif.record import CutShort, Record
    from services.domain.custody.rules import Incompatible
    from services.domain.exits import Stop

    try:
        past = Past(Record(_lines(client, since)), since, until, _progress if sys.stderr.isatty() else None)
    except (TooMuch, CutShort, Incompatible) as error:
        raise CliError(FAILED, str(error)) from error
    except Stop as error:
        raise CliError(FAILED, error.why) from error
    if past.since >= until:  # it begins where there is a cloud (`Past.late`)
        raise usage(
            f"--until is before the cloud's beginning: what is known of it begins at {units.iso(past.since)}",
            "name a later moment, or leave it out: until now",
        )
    return past


def _was_in_force(lack: Lack) -> str:
    return f'{lack.department}: {lack.kind} "{lack.name}" was in force, and {lack.why}'


def _progress(envelopes: int) -> None:
    print(f"\rphoenix: {envelopes:,} envelopes read", end="\r", file=sys.stderr, flush=True)


def _lines(client: Client, since: float) -> Iterator[bytes]:
    """To the present: jobs that ran at the period's end may have ended since, and told how long they take."""
    yield from client.lines("/v1/record", since=units.when(since))


# ---------------------------------------------------------------------------------------------------------------- notes


def _paces(past: Past) -> dict[str, float]:
    return {name: getattr(past.pace, name) for name in past.paces.samples}


def notes(past: Past, present: Played | None, other: Played | None, new: CloudConfig | None) -> list[str]:
    """Rule 3."""
    without = "what was in force was not played again; install the package here to have that, too"
    missed = [f"{_was_in_force(lack)}: {without}" for lack in past.lacking()] if present is None else []
    found = [*missed, *of_period(past, replaced=new is not None), *_of_replays(present, other)]
    return found + (_of_config(past, new) if new is not None else [])


def of_period(past: Past, *, replaced: bool) -> list[str]:
    """What the replays lack of the period, in words."""
    found = []
    if past.late:
        found.append(
            f"the cloud was not there before {units.iso(past.since)}: the period begins then; that its hosts were given to "
            "departments for the first time are moves of what happened, not of the replays"
        )
    if past.configs and replaced:
        found.append(
            f"{units.count(past.configs, 'change')} of the configuration in the period left out: one is in force"
        )
    for dept, seconds in sorted(past.saturated_s.items()):
        found.append(
            f"{dept}: its instances were fully busy for {units.span(seconds)}: there was more load than was seen, "
            "and the replays have what was seen"
        )
    if past.stage.journal.void:
        found.append(
            f"{units.count(past.stage.journal.void, 'fact')} of the journal could not be followed without VMs, which the "
            "replays do not have: what happened is not told in full"
        )
    if past.vms_failed:
        found.append(f"{units.count(past.vms_failed, 'attempt')} lost their VM: in the replays no VM fails")
    if past.unready:
        found.append(
            f"{units.count(len(past.unready), 'instance')} had times of not being ready: in the replays all are"
        )
    return found


def _of_replays(present: Played | None, other: Played | None) -> list[str]:
    found = []
    assumed = max(each.assumed if each is not None else 0 for each in (present, other))
    if assumed:
        found.append(
            f"{units.count(assumed, 'job')} ran that did not end by themselves in the period: how long they take is "
            "assumed (--unknown), so what depends on them is a bound, not a forecast"
        )
    for label, played in (("present", present), ("new", other)):
        for why, jobs in sorted((played.refusals if played is not None else {}).items()):
            found.append(f"refused in the {label} replay, {units.count(jobs, 'job')}: {why}")
    return found


def _of_config(past: Past, new: CloudConfig) -> list[str]:
    known = {department.name: department for department in past.config.departments} if past.config else {}
    named = {department.name: department for department in new.departments}
    found = [f"{name} is new: nothing was asked of it in the period" for name in named if name not in known]
    found += [f"{name} is not in the new configuration: its jobs end" for name in known if name not in named]
    for name, department in named.items():
        if department.web is not None and department.web.forecast_days:
            found.append(f"{name}: its forecast knows the load from an hour before the period on only")
        if department.batch is not None and department.batch.balance.enabled:
            found.append(f"{name}: what hosts really use is not replayed, so jobs are not moved to balance them")
    return found


# ---------------------------------------------------------------------------------------------------------------- shown


def render(told: dict[str, Any], *, by: str, seconds: float) -> str:
    hosts = told["hosts"]
    size = (
        units.count(hosts["present"], "host")
        if hosts["new"] == hosts["present"]
        else f"{units.count(hosts['present'], 'host')}, NEW: {hosts['new']}"
    )
    head = f"{units.second(told['since'])} to {units.second(told['until'])} ({units.span(seconds)}), {size}."
    return "\n\n".join([head, _told_fidelity(told), _users(told) if by == "user" else _departments(told)])


def _told_fidelity(told: dict[str, Any]) -> str:
    """How far the model is from what happened, before anything is said about what would have."""
    took = ", ".join(f"{name.removesuffix('_s')} {value:.2f} s" for name, value in told["paces"].items() if value)
    model = f" (in the replay {took})" if took else ""
    rows = told["fidelity"]
    if rows is None:
        return f"CHANGE is from what happened, and has in it what the replay lacks{model}."
    if not rows:
        return f"The replay under the present configuration is what happened{model}."
    parts = [
        f"{row['department']} {_LABELS[row['metric']][0]} {_signed(row['metric'], row['difference'])}" for row in rows
    ]
    return f"The replay under the present configuration differs from what happened by{model}:\n  " + "\n  ".join(parts)


def _departments(told: dict[str, Any]) -> str:
    sides = {side: values for side, values in told["departments"].items() if values is not None}
    shown = [*map(str.upper, sides), *(["CHANGE"] if "new" in sides else [])]
    known = sides[told["compared_with"]]
    rows = []
    for dept in known:
        first = True
        for name, (label, _) in _LABELS.items():
            cells = [side.get(dept, {}).get(name) for side in sides.values()]
            if name in known[dept] and (name in _ALWAYS or any(cells)):
                rows.append([dept if first else "", label, *_row(name, cells, changed="new" in sides)])
                first = False
    return tables.render(["", "", *shown], rows, right=" ".join(shown))


def _users(told: dict[str, Any]) -> str:
    sides = {side: values for side, values in told["users"].items() if values is not None}
    named = (
        "submitted",
        "completed",
        "mean_wait_s",
        "p95_wait_s",
        "mean_wait_of_all_s",
        "mean_turnaround_s",
        "p95_turnaround_s",
    )
    shown = [*map(str.upper, sides), *(["CHANGE"] if "new" in sides else [])]
    rows = []
    for dept, users in sides[told["compared_with"]].items():
        for user in users:
            for name in named:
                cells = [side.get(dept, {}).get(user, {}).get(name) for side in sides.values()]
                first = name == named[0]
                whose = [dept if first else "", user if first else ""]
                rows.append([*whose, _LABELS[name][0], *_row(name, cells, changed="new" in sides)])
    return tables.render(["DEPARTMENT", "USER", "", *shown], rows, right=" ".join(shown))


def _row(name: str, cells: list[float | None], *, changed: bool) -> list[str]:
    shown = [_shown(name, cell) for cell in cells]
    if not changed:
        return shown
    before, after = cells[-2:]
    same = before is None or after is None or shown[-2] == shown[-1]
    return [*shown, "" if same else _signed(name, (after or 0.0) - (before or 0.0))]


def _shown(name: str, value: float | None) -> str:
    from phoenix.simulate.tables import duration

    if value is None:
        return "-"
    kind = _LABELS[name][1]
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "time":
        return duration(value)
    if kind == "share":
        return f"{100 * value:.1f} %"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _signed(name: str, value: float) -> str:
    sign = "-" if value < 0 else "+"
    return f"{sign}{_shown(name, abs(value))}"
