"""What a running cloud publishes about itself: DATA/run/cloud.json for the command line, and `phoenix status --json`.

It names files that hold secrets, never what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from phoenix.local import stack
from phoenix.local.stack_layout import Layout
from phoenix.local.stack_settings import Settings
from phoenix.local.supervisor_child import Child
from schemas.units import exact
from services.runtime.broker import credentials
from services.runtime.config.tables import Config


def about(
    config: Config, layout: Layout, settings: Settings, children: Iterable[Child], job_network: tuple[str | None, str]
) -> dict[str, Any]:
    """Endpoints and credentials' files; without services the door and the monitor have no address.  Of a
    site's own OpenNebula nothing is known here but its address: `phoenix hosts` shows its hosts.  `job_network`: `own` or
    `machine`, None where no jobs run, and why not better."""
    running = {child.spec.name: child for child in children}
    isolation, why = stack.isolation(layout, settings)
    return {
        "cloud": config.cloud.name,
        "data": str(layout.data),
        "config": str(layout.config),
        "nats_url": config.nats.url,
        "http_url": config.http.url if "admission" in running else "",
        "monitor_url": config.monitor.url if "monitor" in running else "",
        "opennebula": settings.opennebula,
        "opennebula_url": config.opennebula.endpoint,
        "opennebula_auth_file": str(config.opennebula.auth_file),
        "balancers": {n.partition(".")[2]: c.spec.url for n, c in running.items() if n.startswith("balancer.")},
        "agents": {n.partition(".")[2]: c.spec.url for n, c in running.items() if n.startswith("agent.")},
        "balancer": settings.balancer if settings.balances else None,
        "metrics": {name: child.spec.url for name, child in running.items() if child.spec.service},
        "credentials_dir": str(config.nats.credentials_dir),
        "credentials": _credentials(config),
        "users": _users(config),
        "departments": {department.name: department.kind for department in config.cloud.departments},
        "hypervisor": None if settings.external else settings.hypervisor,
        "hosts": None if settings.external else settings.hosts,
        "cores": None if settings.external else settings.size.cores,
        "core_share": None if settings.external else settings.core_share,
        "isolation": isolation,
        "isolation_reason": why,
        "job_network": job_network[0],
        "job_network_reason": job_network[1],
    }


def _users(config: Config) -> list[dict[str, str]]:
    return [
        {
            "name": user.name,
            "department": user.department,
            "role": user.role,
            "nkey_file": str(credentials.seed_file(config, user.name)),
            "token_file": str(credentials.token_file(config, user.name)),
        }
        for user in config.cloud.users
    ]


def _credentials(config: Config) -> dict[str, dict[str, str]]:
    """By user: `nkey` (a file with the seed) for NATS, `token` (a file) for HTTP, and the inbox prefix to connect with."""
    return {
        user["name"]: {
            "department": user["department"],
            "role": user["role"],
            "nkey": user["nkey_file"],
            "token": user["token_file"],
            "inbox_prefix": f"_INBOX_{user['department']}.{user['name']}",
        }
        for user in _users(config)
    }


def process(child: Child) -> dict[str, Any]:
    return {
        "name": child.spec.name,
        "pid": child.pid,
        "health": child.health,
        "restarts": child.restarts,
        "since": exact(child.since) if child.since else None,
        "exit_code": child.exit_code,
        "ailing": child.ailing,
        "instance": child.instance or None,
        "url": child.spec.url or None,
        "log": str(child.log),
    }
