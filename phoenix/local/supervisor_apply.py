"""A new configuration for a running cloud (`phoenix config apply`).

The order is what matters: a new user can be authenticated before anything asks for it, the journal decides, and only then
those who were removed lose their processes and their keys.

    1  validate; nothing has changed if a problem is found.  A dry run asks the provisioner which accepted leases would not be
       kept, and ends here
    2  credentials of new users and services, and new ones for those that were deleted; the broker knows old and new ones
    3  the provisioner adopts the configuration: a fact.  If it refuses, 2 is taken back
    4  schedulers and balancers of new departments start; those of removed ones stop
    5  the broker forgets removed users; their credential files are removed

The broker gets SIGHUP only if its file has changed, and nothing continues until it has read it: while it does, it refuses
new connections, and the audit would record a user whom it does not know.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from phoenix.haproxy.configuration import ConfigurationError
from phoenix.local import stack, stack_config
from phoenix.local.programs import PartMissingError
from phoenix.local.stack_broker import BrokerError, adopt, reload
from phoenix.local.supervisor import Supervisor
from schemas.config import CloudConfig
from services.runtime.config import secret_files
from services.runtime.config.file import ConfigError
from services.runtime.config.lending import beyond
from services.runtime.config.tables import Config
from services.runtime.config.text import diff


async def apply(up: Supervisor, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Progress, then the answer with `ok`.  `request`: as `control` has it."""
    was, dry_run, accepts = up.config, bool(request.get("dry_run")), bool(request.get("accept_late_leases"))
    try:
        file = stack_config.applied(str(request["text"]), str(request["name"]), Path(str(request["base"])), was)
        wanted = stack.with_agents(stack_config.with_metrics(file, up.ports), up.settings, up.ports)
    except ConfigError as error:
        yield {"ok": False, "error": str(error)}
        return
    changes = diff(was.cloud, wanted.cloud)
    if dry_run:
        yield await _tried(was, wanted, changes)
        return
    for warning in [] if up.settings.external else beyond(wanted.cloud, up.settings.hosts):
        yield {"progress": warning}
    for problem in secret_files.problems(wanted.secrets.directory, wanted.cloud):
        yield {"progress": problem}
    if not changes:
        renewed, _ = await _publish(up, was)  # a person may have deleted a secret to have another
        yield {"ok": True, "changes": [], "position": None, "renewed": renewed}
        return
    renewed, told = await _publish(up, replace(wanted, cloud=_both(was.cloud, wanted.cloud)))
    if told:
        yield {"progress": "nats-server knows who is new, and who may do what"}
    try:
        adopted = await adopt(was, wanted.cloud, accept_late_leases=accepts)
    except BrokerError as error:
        await _publish(up, was)
        yield {"ok": False, "error": str(error)}
        return
    yield {"progress": f"adopted at journal position {adopted.position}"}
    up.config = wanted
    stack_config.write(wanted, up.layout)
    async for step in _processes(up, was, wanted):
        yield step
    await _publish(up, wanted)
    up.ports.save()
    up.publish()
    answer = {"ok": True, "changes": changes, "position": adopted.position, "renewed": renewed}
    yield answer | {"late_leases": list(adopted.late_leases)}


async def _tried(was: Config, wanted: Config, changes: list[str]) -> dict[str, Any]:
    """The answer of a dry run: what would change, and the accepted leases that would not be kept."""
    try:
        late = list((await adopt(was, wanted.cloud, dry_run=True)).late_leases) if changes else []
    except BrokerError as error:
        return {"ok": False, "error": str(error)}
    return {"ok": True, "changes": changes, "late_leases": late}


def _both(old: CloudConfig, new: CloudConfig) -> CloudConfig:
    """All of either: the new entry where both have one."""
    departments = {d.name: d for d in (*old.departments, *new.departments)}
    users = {u.name: u for u in (*old.users, *new.users)}
    return replace(new, departments=tuple(departments.values()), users=tuple(users.values()))


async def _publish(up: Supervisor, config: Config) -> tuple[list[str], bool]:
    """Credentials on file and the broker's permissions as `config` says.  The files that were made, of new users or again; and
    whether there was anything to tell the broker."""
    before = up.layout.nats_config.read_bytes()
    made = stack.write_files(config, up.layout)
    broker = up.children.get(stack.NATS)
    if broker is None or up.layout.nats_config.read_bytes() == before:
        return made, False
    await reload(lambda: broker.signal(signal.SIGHUP), broker.log)
    return made, True


async def _processes(up: Supervisor, was: Config, wanted: Config) -> AsyncIterator[dict[str, Any]]:
    old = {department.name: department for department in was.cloud.departments}
    new = {department.name: department for department in wanted.cloud.departments}
    gone = [name for name in old if name not in new or new[name].kind != old[name].kind]
    come = [name for name in new if name not in old or new[name].kind != old[name].kind]
    if gone:
        yield {"progress": f"stopping the processes of {', '.join(gone)}"}
        await up.stop_children([f"{part}.{name}" for name in gone for part in (*stack.BALANCERS, "scheduler")])
    if come:
        yield {"progress": f"starting the processes of {', '.join(come)}"}
        specs = [stack.service(wanted, up.layout, f"scheduler.{name}") for name in come]
        for name in come:
            try:
                specs += stack.balancers(wanted, up.layout, up.settings, up.ports, new[name])
            except (PartMissingError, ConfigurationError) as error:
                yield {"progress": f"{name} has no load balancer: {error}"}
        try:
            await up.add(specs)
        except TimeoutError:
            yield {"progress": f"the processes of {', '.join(come)} are slow to come up; `phoenix status` shows them"}
        except OSError as error:
            yield {"progress": f"not all processes of {', '.join(come)} have started: {error}"}
