"""The NATS server's configuration, generated: one account and the system account, users by public key, permissions, JetStream.

What it decides: nothing; it writes down what `permissions` and the configuration say.  It must never contain a secret: users
are known by their public nkeys, so the file may be read by anybody.

After a change of users or departments: `credentials.ensure`, write this text anew, SIGHUP.  The server then drops
the connections of users who are gone, or whose permissions have changed; clients reconnect by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from services.runtime.broker import credentials, permissions
from services.runtime.config.file import Config

CONFIG_FILE: Final = "nats-server.conf"
PID_FILE: Final = "nats-server.pid"
AUTH_TIMEOUT_S: Final = 5  # the server's default of 2 s is short for a loaded machine that starts ten processes at once


def nats_server_config(
    config: Config, keys: Mapping[str, str] | None = None, *, listen: str | None = None, log_file: Path | None = None
) -> str:
    """The text of the server's configuration file.

    `keys`: public nkey by credential (default: of the files in `credentials_dir`; raises `CredentialsError`).  `listen`:
    HOST:PORT instead of that of `nats.url`; port -1 lets the server choose, and it writes its choice to a ``*.ports`` file in
    `store_dir`, which must exist.
    """
    nats = config.nats
    keys = credentials.public_keys(config) if keys is None else keys
    users = [_user(name, keys[name], allowed) for name, allowed in permissions.table(config.cloud).items()]
    system = [_user(name, keys[name], allowed) for name, allowed in permissions.system().items()]
    lines = [
        "# Generated from the Phoenix configuration: changes here are lost.",
        f"server_name: {_quoted(f'{config.cloud.name}-nats')}",
        f"listen: {_quoted(listen or f'{nats.host}:{nats.port}')}",
        f"pid_file: {_quoted(nats.store_dir / PID_FILE)}",
        f"ports_file_dir: {_quoted(nats.store_dir)}",
        f"max_payload: {nats.payload_max_bytes}",
        *([f"log_file: {_quoted(log_file)}"] if log_file else []),
        "jetstream {",
        f"  store_dir: {_quoted(nats.store_dir)}",
        f"  max_memory_store: {nats.memory_max_mb << 20}",
        f"  max_file_store: {nats.file_max_mb << 20}",
        *(["  sync_interval: always"] if nats.sync_always else []),
        "}",
        "authorization {",
        f"  timeout: {AUTH_TIMEOUT_S}",
        "  users: [",
        *users,
        "  ]",
        "}",
        "accounts { $SYS {",
        "  users: [",
        *system,
        "  ]",
        "} }",
    ]
    return "\n".join(lines) + "\n"


def _user(name: str, key: str, allowed: permissions.Permissions) -> str:
    publish = (
        f"allow: {_list(allowed.publish)}" if allowed.publish else 'deny: [">"]'
    )  # an empty list allows everything
    return (
        f"    # {name}\n"
        f"    {{ nkey: {key}, permissions: {{\n"
        f"      publish: {{ {publish} }}\n"
        f"      subscribe: {{ allow: {_list(allowed.subscribe)} }}\n"
        "    } }"
    )


def _list(subjects: Sequence[str]) -> str:
    return "[" + ", ".join(_quoted(s) for s in subjects) + "]"


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)
