"""The agent's configuration file: TOML; its keys are explained in `deploy/haproxy/phoenix-haproxy.toml`.

A mistyped key is an error, not a setting that people rely on.  What the department says of its load balancers (drain
time, health path) is not in it: it comes from admission with each list of instances.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from phoenix.balance.account import Account
from schemas import subjects
from schemas.facts_base import DepartmentName

HEALTH_MAP: Final = "/var/lib/haproxy/phoenix-health.map"  # of a site; Debian's package makes the directory
_FILE: Final = re.compile(r"[A-Za-z0-9/._~-]+\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+\Z")  # as HAProxy has it for backends and servers
INTERVAL_MIN_S: Final = 0.05  # the scheduler condenses signals once a second: more often is of no use
INTERVAL_MAX_S: Final = 10.0  # the least signal_timeout_s that is of use is above it


class SettingsError(Exception):
    """The configuration cannot be used; the message names file and key, and says what would be right."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings.  Times are seconds.

    `socket`: HAProxy's stats socket, level admin.  `slots`: how the names of the servers begin that are the agent's own.
    `health_map`: the map of their health paths, as haproxy.cfg names it.
    `metrics`: HOST:PORT of `/metrics` and `/healthz`, "" for none.  `source`: who signs the signals; "" is USER@HOST.
    """

    department: DepartmentName
    user: str
    nats_url: str = "nats://127.0.0.1:4222"
    nkey: str | None = None
    socket: str = "/run/haproxy/phoenix.sock"
    backend: str = "web"
    slots: str = "phoenix"
    health_map: str = HEALTH_MAP
    signal_interval_s: float = 1.0
    look_interval_s: float = 0.25
    old_process_s: float = 30.0
    tells_drained: bool = True
    metrics: str = "127.0.0.1:9131"
    source: str = ""

    def account(self) -> Account:
        """As whom the agent speaks to the broker."""
        return Account(
            department=self.department,
            user=self.user,
            nats_url=self.nats_url,
            inbox_prefix=subjects.inbox(self.department, self.user),
            nkey=self.nkey,
        )


def load(path: Path) -> Settings:
    """Read and check the file.  Raises `SettingsError`."""
    try:
        text = path.read_text(encoding="utf-8")
        settings = msgspec.convert(tomllib.loads(text), Settings)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{path}: {error}") from error
    problem = _problem(settings)
    if problem is not None:
        raise SettingsError(f"{path}: {problem}")
    return _beside(settings, path.parent)


def _beside(settings: Settings, directory: Path) -> Settings:
    """Relative paths are relative to the file."""
    nkey = None if settings.nkey is None else str(directory / settings.nkey)
    return msgspec.structs.replace(settings, socket=str(directory / settings.socket), nkey=nkey)


def _problem(settings: Settings) -> str | None:
    """The first value that no agent could run with."""
    for key in ("backend", "slots"):
        value = getattr(settings, key)
        if not _NAME.match(value):
            return f"{key} is {value!r}; HAProxy's names have letters, digits and . : _ - only"
    if not _FILE.match(settings.health_map):
        return f"health_map is {settings.health_map!r}; it is a file as haproxy.cfg names it, of letters, digits and / . _ ~ -"
    for key in ("signal_interval_s", "look_interval_s"):
        value = getattr(settings, key)
        if not INTERVAL_MIN_S <= value <= INTERVAL_MAX_S:
            return f"{key} is {value:g}; it must be from {INTERVAL_MIN_S:g} to {INTERVAL_MAX_S:g} seconds"
    if not settings.old_process_s >= 0:
        return f"old_process_s is {settings.old_process_s:g}; it is hard-stop-after of haproxy.cfg, 0 or more seconds"
    if settings.metrics and not re.fullmatch(r".+:[0-9]{1,5}", settings.metrics):
        return f"metrics is {settings.metrics!r}; it must be HOST:PORT, or empty for none"
    return None
