"""What VMs of other users of the same OpenNebula take of hosts, as an explanation: no decision reads it.

The executor takes it from what a host offers (`host.described`), so that decisions go by what is left; the fact also says how
much that was."""

from __future__ import annotations

from collections.abc import Iterable

from schemas import reasons as because
from schemas.reasons import Reason
from schemas.size import total
from services.domain.custody.state import Host


def used_by_others(hosts: Iterable[Host]) -> list[Reason]:
    """One reason for those of these hosts on which others have VMs; none if there are none."""
    shared = [host for host in hosts if any(host.others)]
    if not shared:
        return []
    names = sorted(host.name for host in shared)
    size = total(host.others for host in shared)
    return [because.UsedByOthers(hosts=names[: because.HOSTS_SHOWN], shared=len(names), **size.fields())]
