"""`phoenix departments`: what each wants, may keep and holds."""

from __future__ import annotations

import argparse
from typing import Any, Final

from phoenix.cli import cloud, health_notes, printing, tables, units
from schemas.words import have_time_to_save
from services.domain import text as sentences
from services.domain.text import shares

HELP: Final = """examples:
  phoenix departments           demand, quota and hosts held
  phoenix departments --json    for a program"""
OF_JOURNAL: Final = ("not_ready", "signal_missing")  # told by their own rows
HEAD: Final = ("DEPARTMENT", "KIND", "HELD", "QUOTA", "DEMAND", "WORK", "UTILISATION")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    where = cloud.find(args)
    answer = where.operator().get("/v1/departments")
    if args.json:
        printing.json(answer)
    else:
        printing.text(render(answer["departments"]))
        health_notes.tell(where)
    return 0


def render(departments: list[dict[str, Any]]) -> str:
    table = tables.render(HEAD, [_row(one) for one in departments], right="HELD QUOTA DEMAND UTILISATION")
    told = [line for one in departments for line in (_short(one), _savers(one))]
    told += [line for one in departments for line in (_ill(one), _release(one), _silence(one), *_troubles(one))]
    return "\n".join([table, *filter(None, told)])


def _ill(one: dict[str, Any]) -> str:
    """Of a web department of which some instances fail their health check."""
    ill, name = int(one.get("instances_not_ready") or 0), one["department"]
    if not ill:
        return ""
    serve = f"{one.get('instances_serving') or 0} of {units.count(int(one.get('instances_wanted') or 0), 'instance')}"
    since = f"since {one['not_ready_since']}: {one['not_ready_answer']}"
    return f"{name}: {serve} serve; {ill} {'is' if ill == 1 else 'are'} not ready {since}; see phoenix why {name}"


def _silence(one: dict[str, Any]) -> str:
    """Of a web department whose number of instances is held because no signal tells its load."""
    if not one.get("signal_missing_since"):
        return ""
    name, since = one["department"], one["signal_missing_since"]
    return (
        f"{name}: no load has been reported since {since}: the number of its instances is held; see phoenix why {name}"
    )


def _troubles(one: dict[str, Any]) -> list[str]:
    """What its scheduler reports for an operator's attention and the journal does not contain."""
    name = one["department"]
    return [
        f"{name}: {told['sentence']}; see phoenix why {name}"
        for told in one.get("troubles") or ()
        if told["reason"]["code"] not in OF_JOURNAL
    ]


def _release(one: dict[str, Any]) -> str:
    """Of a web department whose release is on its way, or was given up with none to go back to."""
    release = one.get("release") or {}
    if release.get("state") in ("requested", "rolling"):
        others = f"{release['others']} another one"
        here = units.count(int(release["instances"]), "instance")
        return f"{one['department']} rolls release {release['release']} out: {here} of it, {others}"
    if release.get("state") == "stopped":
        told = sentences.sentence(release["reason"])
        return f"{one['department']} has stopped: {told}; {sentences.remedy(release['reason'])}"
    return ""


def _short(one: dict[str, Any]) -> str:
    """Of a department that may keep fewer hosts than it wants, since others keep or have them."""
    why, demand = shares.of_row(one), units.count(int(one.get("hosts_demanded") or 0), "host")
    return f"{one['department']} wants {demand} and may keep {one['hosts_quota']}: {why}" if why else ""


def _savers(one: dict[str, Any]) -> str:
    """Of a department whose hosts are on their way, and jobs there have time to save."""
    found = one.get("waits_for_savers") or []
    if not found:
        return ""
    hosts, by = units.count(len(found), "host"), found[-1]["by"]
    return (
        f"{one['department']} waits for {hosts} until {by} at the latest: {have_time_to_save(x['job'] for x in found)}"
    )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    numbers = (str(one.get(key, "-")) for key in ("hosts_held", "hosts_quota", "hosts_demanded"))
    return (str(one["department"]), str(one.get("kind") or "-"), *numbers, work(one), load(one) or "-")


def load(one: dict[str, Any]) -> str:
    """How busy its instances are, or what they are asked, as last observed."""
    utilisation, rate = one.get("utilisation"), one.get("requests_per_s")
    if isinstance(utilisation, int | float):
        return f"{utilisation * 100:.0f} %"
    return f"{rate:.4g}/s" if isinstance(rate, int | float) else ""


def work(one: dict[str, Any]) -> str:
    """What it does: instances of a web department, jobs of a batch one."""
    if one.get("kind") == "web":
        running = units.count(int(one.get("instances_running") or 0), "instance")
        ill = int(one.get("instances_not_ready") or 0)
        return f"{running}, {one.get('instances_wanted') or 0} wanted{f', {ill} not ready' if ill else ''}"
    jobs = one.get("jobs") or {}
    return ", ".join(f"{count} {state}" for state, count in jobs.items() if count) or "no jobs"
