"""Who is calling: from a bearer token (HTTP) or a user name (NATS subject) to department and role.

What it decides: nothing but the mapping.  A name proves nothing by itself; it counts because the server lets only its owner
publish it (NATS) or because it was looked up by token (HTTP).

Rules
  1. Department and role come from the configuration, so a changed role holds at once; the token says only who it is.
  2. Tokens are compared by hash: the door holds no token, and the time of a lookup tells nothing about one.
  3. A user without entry in the configuration is nobody, even with a token that is still on file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.config import CloudConfig, Role
from services.runtime import credentials
from services.runtime.config import Config

_Stamp = tuple[int, int, int] | None


class Identity(msgspec.Struct, frozen=True):
    """An operator's department is ``operators``."""

    user: str
    department: str
    role: Role


class Identities:
    """The tokens on file, and the configuration that names their owners.

    `cloud` is the configuration used where none is passed: at first that of the file; a service sets it to the one of the
    latest `config.adopted`.
    """

    def __init__(self, tokens: Path, cloud: CloudConfig) -> None:
        self.cloud = cloud
        self._path = tokens
        self._stamp: _Stamp = None
        self._users: dict[str, str] = {}
        self.reload_if_changed()

    @classmethod
    def load(cls, config: Config) -> Identities:
        return cls(credentials.tokens_file(config), config.cloud)

    def by_token(self, token: str, cloud: CloudConfig | None = None) -> Identity | None:
        """The owner of a bearer token; None if it is nobody's."""
        user = self._users.get(credentials.digest(token))
        return None if user is None else self.by_user(user, cloud)

    def by_user(self, name: str, cloud: CloudConfig | None = None) -> Identity | None:
        """The user of that name; None if the configuration has none."""
        user = (cloud or self.cloud).user(name)
        return None if user is None else Identity(user.name, user.department, user.role)

    def reload_if_changed(self) -> bool:
        """Read the tokens again if the file is another one; True if it was.  Cheap: one `stat`."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._users = msgspec.json.decode(self._path.read_bytes(), type=dict[str, str]) if stamp else {}
        self._stamp = stamp
        return True

    def _look(self) -> _Stamp:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
