"""The balancer's configuration file: JSON, readable by its owner only, because it names a key file."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec


class SettingsError(Exception):
    """The configuration cannot be used; the message names file and field."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. `nkey`: path of the NATS seed file, None for a broker without authentication.

    `listen`: HOST:PORT, port 0 for any; the real one is written to `port_file` as HOST:PORT. `instance_cores`: virtual
    cores of an instance whose listing does not say; `core_share`: real cores per virtual core.
    """

    department: str
    user: str
    nats_url: str
    inbox_prefix: str
    nkey: str | None = None
    listen: str = "127.0.0.1:0"
    port_file: str | None = None
    signal_interval_s: float = 0.25
    core_share: float = 0.05
    instance_cores: float = 1.0
    health_path: str | None = "/healthz"
    health_interval_s: float = 0.5
    drain_s: float = 5.0

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def probe_interval_s(self) -> float:
        """Probes carry the CPU times, so they come at least as often as the signal."""
        return min(self.health_interval_s, self.signal_interval_s)


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
    for name in ("signal_interval_s", "core_share", "instance_cores", "health_interval_s"):
        if not getattr(settings, name) > 0:
            raise SettingsError(f"{path}: {name} must be more than 0")
    if settings.drain_s < 0:
        raise SettingsError(f"{path}: drain_s must not be negative")
    return settings
