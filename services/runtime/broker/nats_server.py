"""The NATS server's configuration, generated: accounts, users by public key, permissions, JetStream.

What it decides: nothing; it writes down what `accounts`, `permissions` and the configuration contain.  It must never contain a
secret: users are known by their public nkeys, so the file may be read by anybody.

After a change of users or departments: `credentials.ensure`, write this text again, SIGHUP.  The server then drops
the connections of users who were removed, or whose permissions have changed; clients reconnect by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from services.runtime.broker import accounts, credentials, permissions
from services.runtime.broker.accounts import Account, Export, Import
from services.runtime.config.tables import Config, Nats

CONFIG_FILE: Final = "nats-server.conf"
PID_FILE: Final = "nats-server.pid"
CONTROL_LINE_MAX: Final = 4096  # bytes; the server's default, below which `objects` and subjects of ours are bounded
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
    lines = [
        "# Generated from the Phoenix configuration: changes here are lost.",
        f"server_name: {_quoted(f'{config.cloud.name}-nats')}",
        f"listen: {_quoted(listen or f'{nats.host}:{nats.port}')}",
        f"pid_file: {_quoted(nats.store_dir / PID_FILE)}",
        f"ports_file_dir: {_quoted(nats.store_dir)}",
        f"max_payload: {nats.payload_max_bytes}",
        f"max_control_line: {CONTROL_LINE_MAX}",
        f"max_connections: {nats.connections_max}",
        *([f"log_file: {_quoted(log_file)}"] if log_file else []),
        "jetstream {",
        f"  store_dir: {_quoted(nats.store_dir)}",
        f"  max_memory_store: {nats.memory_max_mb << 20}",
        f"  max_file_store: {nats.file_max_mb << 20}",
        *(["  sync_interval: always"] if nats.sync_always else []),
        "}",
        f"authorization {{ timeout: {AUTH_TIMEOUT_S} }}",
        "accounts {",
        *(line for account in accounts.accounts(config.cloud) for line in _account(account, keys, nats)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _account(account: Account, keys: Mapping[str, str], nats: Nats) -> list[str]:
    limits = (
        f"max_connections: {nats.department_connections_max}, max_subscriptions: {nats.subscriptions_max}"
        if account.is_bounded
        else ""
    )
    return [
        f"  {_quoted(account.name)} {{",
        *([f"    limits {{ {limits} }}"] if limits else []),
        *(["    jetstream: enabled"] if account.has_jetstream else []),
        "    users: [",
        *(_user(name, keys[name], allowed) for name, allowed in account.users.items()),
        "    ]",
        "    exports: [",
        *(_export(one) for one in account.exports),
        "    ]",
        "    imports: [",
        *(_import(one) for one in account.imports),
        "    ]",
        "  }",
    ]


def _export(one: Export) -> str:
    ends = f", response_threshold: {_quoted(f'{accounts.ANSWER_S}s')}" if one.kind == "service" else ""
    return f"      {{ {one.kind}: {_quoted(one.subject)}, accounts: {_list([one.to])}{ends} }}"


def _import(one: Import) -> str:
    shares = ", share: true" if one.shares else ""
    return f"      {{ {one.kind}: {{ account: {_quoted(one.of)}, subject: {_quoted(one.subject)} }}{shares} }}"


def _user(name: str, key: str, allowed: permissions.Permissions) -> str:
    publish = (
        f"allow: {_list(allowed.publish)}" if allowed.publish else 'deny: [">"]'
    )  # an empty list allows everything
    return (
        f"      # {name}\n"
        f"      {{ nkey: {key}, permissions: {{\n"
        f"        publish: {{ {publish} }}\n"
        f"        subscribe: {{ allow: {_list(allowed.subscribe)} }}\n"
        "      } }"
    )


def _list(subjects: Sequence[str]) -> str:
    return "[" + ", ".join(_quoted(s) for s in subjects) + "]"


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)
