"""A new configuration for a running cloud (`phoenix config apply`).

The order is what matters: whoever is new can be authenticated before anything asks for it, the journal decides, and only then
those who are gone lose their processes and their keys.

    1  validate; nothing has changed if a problem is found
    2  credentials of new users and services, and anew those that somebody deleted; the broker knows old and new ones (SIGHUP)
    3  the provisioner adopts the configuration: a fact.  If it refuses, 2 is taken back
    4  schedulers and balancers of new departments start; those of removed ones stop
    5  the broker forgets who is gone (SIGHUP); their credential files are removed
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from phoenix.haproxy.configuration import ConfigurationError
from phoenix.local import stack, stack_config, stack_haproxy
from phoenix.local.programs import PartMissingError
from phoenix.local.stack_broker import BrokerError, adopt
from phoenix.local.supervisor import Supervisor
from schemas.config import CloudConfig
from services.runtime.config import secret_files
from services.runtime.config.file import Config, ConfigError, diff
from services.runtime.config.lending import beyond


async def apply(up: Supervisor, text: str, name: str, base: str) -> AsyncIterator[dict[str, Any]]:
    """Progress, then the answer with `ok`."""
    was = up.config
    try:
        wanted = stack_config.with_metrics(stack_config.applied(text, name, Path(base), was), up.ports)
    except ConfigError as error:
        yield {"ok": False, "error": str(error)}
        return
    for warning in [] if up.settings.external else beyond(wanted.cloud, up.settings.hosts):
        yield {"progress": warning}
    for problem in secret_files.problems(wanted.secrets.directory, wanted.cloud):
        yield {"progress": problem}
    changes = diff(was.cloud, wanted.cloud)
    if not changes:
        renewed = _publish(up, was)  # somebody may have deleted a secret to have another
        yield {"ok": True, "changes": [], "position": None, "renewed": renewed}
        return
    yield {"progress": "telling nats-server who is new"}
    renewed = _publish(up, replace(wanted, cloud=_both(was.cloud, wanted.cloud)))
    try:
        position = await adopt(was, wanted.cloud)
    except BrokerError as error:
        _publish(up, was)
        yield {"ok": False, "error": str(error)}
        return
    yield {"progress": f"adopted at journal position {position}"}
    up.config = wanted
    stack_config.write(wanted, up.layout)
    async for told in _processes(up, was, wanted):
        yield told
    _publish(up, wanted)
    up.ports.save()
    up.publish()
    yield {"ok": True, "changes": changes, "position": position, "renewed": renewed}


def _both(old: CloudConfig, new: CloudConfig) -> CloudConfig:
    """Everybody of either: the new entry where both have one."""
    departments = {d.name: d for d in (*old.departments, *new.departments)}
    users = {u.name: u for u in (*old.users, *new.users)}
    return replace(new, departments=tuple(departments.values()), users=tuple(users.values()))


def _publish(up: Supervisor, config: Config) -> list[str]:
    """Credentials on file and the broker's permissions as `config` says; the files that were made, of new users or anew."""
    made = stack.write_files(config, up.layout)
    broker = up.children.get(stack.NATS)
    if broker is not None:
        broker.signal(signal.SIGHUP)
    return made


async def _processes(up: Supervisor, was: Config, wanted: Config) -> AsyncIterator[dict[str, Any]]:
    old = {department.name: department for department in was.cloud.departments}
    new = {department.name: department for department in wanted.cloud.departments}
    gone = [name for name in old if name not in new or new[name].kind != old[name].kind]
    for name in sorted(old.keys() & new.keys()):
        if old[name].web and new[name].web and (told := stack_haproxy.outdated(up.layout, up.settings, new[name])):
            yield {"progress": f"{name}: {told}"}
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
