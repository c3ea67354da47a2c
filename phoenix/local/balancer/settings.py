"""The balancer's configuration file: JSON, readable by its owner only, because it names a key file."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec

from phoenix.balance.account import Account
from phoenix.local.balancer.line import WAIT_S
from schemas.releases import CONNECTIONS_COMMAND


class SettingsError(Exception):
    """The configuration cannot be used; the message names file and field."""


class Settings(Account, frozen=True, forbid_unknown_fields=True):
    """All settings.

    `listen`: HOST:PORT, port 0 for any; the real one is written to `port_file` as HOST:PORT. `health_path`,
    `drain_s` and `connections` (requests that an instance is given at a time) hold until the door has told the
    department's own.
    """

    listen: str = "127.0.0.1:0"
    port_file: str | None = None
    signal_interval_s: float = 0.25
    health_path: str | None = "/healthz"
    health_interval_s: float = 0.5
    drain_s: float = 5.0
    connections: int = CONNECTIONS_COMMAND
    wait_s: float = WAIT_S  # for an instance that has room

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])


def load(path: Path) -> Settings:
    """Read and check the file. Raises `SettingsError`."""
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{path} can be read by others: chmod 600 {path}")
        settings = msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise SettingsError(f"{path}: {error}") from error
    if not settings.host or not settings.listen.rpartition(":")[2].isdigit():
        raise SettingsError(f"{path}: listen is {settings.listen!r}; it must be HOST:PORT")
    for name in ("signal_interval_s", "health_interval_s", "wait_s"):
        if not getattr(settings, name) > 0:
            raise SettingsError(f"{path}: {name} must be more than 0")
    if settings.drain_s < 0:
        raise SettingsError(f"{path}: drain_s must not be negative")
    if settings.connections < 1:
        raise SettingsError(f"{path}: connections must be at least 1")
    return settings
