"""Where everything of an embedded cloud lies, below one data directory (mode 0700).

DATA/phoenix.toml        the configuration in force, every setting with its value
DATA/settings.json       hosts, cores, hypervisor: the options of `up`, kept for the next `up`
DATA/ports.json          ports chosen once and kept
DATA/credentials/        keys and tokens, one file each (0600)
DATA/nats/               JetStream's files          DATA/opennebula/  the embedded OpenNebula's
DATA/log/<process>.log   each process's log     DATA/history.sqlite  the monitor's history
DATA/archive/            what was trimmed of the journal
DATA/sessions.json       users logged in at the page, as hashes
DATA/run/                only while it runs: lock, control.sock, cloud.json, processes.json, generated files
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONTENT: Final = (  # all that an embedded cloud makes in its directory, as patterns; `run` last: its lock says what is a cloud
    "phoenix.toml",
    "settings.json",
    "ports.json",
    "credentials",
    "nats",
    "opennebula",
    "archive",
    "log",
    "history.sqlite",
    "history.sqlite-journal",
    "history.sqlite-shm",
    "history.sqlite-wal",
    "history.broken",
    "history.rebuild-lock",
    "history.rebuilding",
    "history.rebuilding-shm",
    "history.rebuilding-wal",
    "history.rebuilt",
    "history.rebuilt-snapshot",
    ".phoenix.toml.*",  # what was being written when the supervisor was killed
    ".settings.json.*",
    ".ports.json.*",
    "sessions.json",
    ".sessions.json.*",  # one that was being written when the monitor was killed
    "refused.*.json",
    "run",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one data directory.  `data` is absolute."""

    data: Path

    @property
    def config(self) -> Path:
        return self.data / "phoenix.toml"

    @property
    def settings(self) -> Path:
        return self.data / "settings.json"

    @property
    def ports(self) -> Path:
        return self.data / "ports.json"

    @property
    def credentials(self) -> Path:
        return self.data / "credentials"

    @property
    def nats(self) -> Path:
        return self.data / "nats"

    @property
    def opennebula(self) -> Path:
        return self.data / "opennebula"

    @property
    def logs(self) -> Path:
        return self.data / "log"

    @property
    def run(self) -> Path:
        return self.data / "run"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def socket(self) -> Path:
        return self.run / "control.sock"

    @property
    def events(self) -> Path:
        """Where the embedded OpenNebula publishes its events: they hold guests' tokens, so only the owner may listen."""
        return self.run / "events.sock"

    @property
    def about(self) -> Path:
        """What a running cloud says about itself; read by the command line."""
        return self.run / "cloud.json"

    @property
    def processes(self) -> Path:
        """Process ids and instance names of the children, for the `up` after a crash."""
        return self.run / "processes.json"

    @property
    def nats_config(self) -> Path:
        return self.run / "nats-server.conf"

    @property
    def auth_file(self) -> Path:
        """OpenNebula's `user:password`."""
        return self.credentials / "one_auth"

    def make(self) -> None:
        """Create the directories; only their owner may enter."""
        for directory in (self.data, self.credentials, self.nats, self.opennebula, self.logs, self.run):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.data.chmod(0o700)


def layout(data: Path | str) -> Layout:
    return Layout(Path(data).absolute())


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once; only its owner may read it.  OSError: nothing is left of the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
