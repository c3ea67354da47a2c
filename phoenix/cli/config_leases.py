"""Accepted leases that another configuration would not keep: what `phoenix config check`, `diff` and `apply` say of them.

Theory of operation
  Admission says yes to a lease by the configuration of that moment: an order that keeps its time, hosts that the department may
  hold, hosts that nobody else may claim.  A configuration that takes one of these away breaks a promise, so each lease that it
  concerns is named, and `apply` refuses unless a person accepts that with `--accept-late-leases`.

Rules
  1. Concerned are local leases that have not ended, of departments that now have the order `leases`.
  2. One line for each, with the first of these that is so: its department is gone; its order keeps no times (a lease that runs
     keeps its hosts: it is not concerned); at its time the leases have more hosts together than the department may then hold,
     or than are guaranteed to it, and had not before.
  3. Hosts that leases have together are counted as if no two shared one: that may name a lease that would still begin on time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phoenix.cli import cloud, units
from phoenix.cli.errors import FAILED, CliError
from schemas.config import CloudConfig, Department
from services.admission.leases import ORDER, certain

Lease = Mapping[str, Any]


def concerned(old: CloudConfig, new: CloudConfig, leases: Sequence[Lease]) -> list[str]:
    """A line for each lease that `new` would not keep as `old` does.  `leases`: as the monitor has them (`GET /v1/leases`)."""
    found = []
    for department in _keeping(old):
        mine = [each for each in leases if each["department"] == department.name and each["kind"] != "best-effort"]
        wanted = new.department(department.name)
        found += [
            f"lease {each['lease']} of {each['user']}, {_when(each)}: {why}"
            for each, why in _broken(department, wanted, mine)
        ]
    return found


def _keeping(config: CloudConfig) -> list[Department]:
    """Rule 1."""
    return [d for d in config.departments if d.batch is not None and str(d.batch.order) == ORDER]


def _when(lease: Lease) -> str:
    start, end = units.seconds(lease["start_at"]), units.seconds(lease["end_at"])
    return f"from {units.iso(start)} to {units.iso(end)}"


def _broken(old: Department, new: Department | None, leases: Sequence[Lease]) -> Iterator[tuple[Lease, str]]:
    """Rule 2."""
    for lease in leases:
        waits = not lease["hosts"]
        if new is None or new.batch is None:
            yield lease, f"{old.name} would be gone, and the lease with it"
        elif str(new.batch.order) != ORDER and waits:
            yield lease, f'order = "{new.batch.order}" keeps no time for it: it would begin when there is room'
        elif waits and (short := _short(old, new, _hosts_at(lease, leases))):
            yield lease, short


def _hosts_at(lease: Lease, leases: Sequence[Lease]) -> int:
    """Hosts of all leases at the begin of this one (rule 3)."""
    at = units.seconds(lease["start_at"]) or 0.0
    there = [e for e in leases if (units.seconds(e["start_at"]) or 0.0) <= at < (units.seconds(e["end_at"]) or 0.0)]
    return sum(each["nodes"] for each in there)


def _short(old: Department, new: Department, hosts: int) -> str:
    (guaranteed, most), (guarantees, maximum) = certain(old), certain(new)
    if maximum is not None and hosts > maximum and (most is None or hosts <= most):
        return f"{new.name} may then hold {maximum} hosts, and leases have {hosts} at that time"
    if guarantees < hosts <= guaranteed:
        return (
            f"{guarantees} hosts are then guaranteed to {new.name}, and leases have {hosts}: web may claim the others"
        )
    return ""


def of_running(args: argparse.Namespace, old: CloudConfig, new: CloudConfig) -> list[str]:
    """The same of the running cloud.  CliError if its leases have to be known, and its monitor does not tell them."""
    if not any(_differs(department, new.department(department.name)) for department in _keeping(old)):
        return []
    return concerned(old, new, cloud.find(args).operator().get("/v1/leases")["leases"])


def _differs(old: Department, new: Department | None) -> bool:
    if new is None or new.batch is None or str(new.batch.order) != ORDER:
        return True
    return certain(old) != certain(new)


def refusal(found: Sequence[str]) -> CliError:
    return CliError(
        FAILED,
        "leases that were accepted would not be kept:\n" + "\n".join(f"  {line}" for line in found),
        "apply it after them, move or cancel them, or accept it: --accept-late-leases",
    )
