"""The caller: from a bearer token (HTTP) or a user name (NATS subject) to department and role.

What it decides: nothing but the mapping.  A name proves nothing by itself; it counts because the server lets only its owner
publish it (NATS) or because it was looked up by token (HTTP).

Rules
  1. Department and role come from the configuration, so a changed role holds at once; the token only identifies the user.
  2. Tokens are compared by hash: admission holds no token, and the time of a lookup reveals nothing about one.
  3. A user without entry in the configuration is refused, even with a token that is still on file.
  4. While the file of tokens cannot be read all callers are refused: `unavailable`, not `denied`.  The log says which file it
     is and what is wrong with it, once; the caller learns neither.
  5. A token that has ended opens nothing from that moment on; its holder learns whose it was, and that it has ended.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.config import CloudConfig, Role
from schemas.units import iso
from services.domain.exits import Exit, Stop
from services.domain.refusal import Refused
from services.runtime import tokens
from services.runtime.broker import credentials
from services.runtime.clock import Clock, system_clock
from services.runtime.config.tables import Config
from services.runtime.log import get_log
from services.runtime.tokens import Issued, TokenError

_Stamp = tuple[int, int, int] | None
_log = get_log()


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

    def __init__(self, path: Path, cloud: CloudConfig, clock: Clock = system_clock) -> None:
        self.cloud, self.clock = cloud, clock
        self._path = path
        self._stamp: _Stamp = None
        self._tokens: dict[str, str | Issued] = {}
        self._wrong = ""  # with the file, as it was logged last
        self.reload_if_changed()

    @classmethod
    def load(cls, config: Config) -> Identities:
        """Raises `Stop` if the file cannot be read."""
        try:
            return cls(credentials.tokens_file(config), config.cloud)
        except (OSError, TokenError) as error:
            raise Stop(Exit.FAILED, f"the owners of tokens cannot be read: {error}") from error

    def by_token(self, token: str, cloud: CloudConfig | None = None) -> Identity | None:
        """The owner of a bearer token; None if it has none, or has ended."""
        return self.by_digest(credentials.digest(token), cloud)

    def by_digest(self, digest: str, cloud: CloudConfig | None = None) -> Identity | None:
        """The owner of the token of this hash; None if it has none (any longer), or has ended."""
        found = self._tokens.get(digest)
        if found is None or (isinstance(found, Issued) and found.ends <= self.clock()):
            return None
        return self.by_user(tokens.user_of(found), cloud)

    def ended(self, token: str) -> str:
        """That this token has ended, and what to do, as a sentence; empty if that is not what is wrong with it (rule 5)."""
        found = self._tokens.get(credentials.digest(token))
        if not isinstance(found, Issued) or found.ends > self.clock():
            return ""
        another = "the cloud's operator creates another (phoenix token create)"
        return f"this token of {found.user} ended at {iso(found.ends)}: {another}"

    def ends(self, for_s: float) -> dict[str, float]:
        """User -> when the first of their tokens ends, of those that were issued for `for_s` or longer and have not ended."""
        found: dict[str, float] = {}
        now = self.clock()
        for entry in self._tokens.values():
            if isinstance(entry, Issued) and entry.ends > now and entry.ends - entry.made >= for_s:
                found[entry.user] = min(entry.ends, found.get(entry.user, entry.ends))
        return found

    def by_user(self, name: str, cloud: CloudConfig | None = None) -> Identity | None:
        """The user of that name; None if the configuration has none."""
        user = (cloud or self.cloud).user(name)
        return None if user is None else Identity(user.name, user.department, user.role)

    def refresh(self) -> bool:
        """`reload_if_changed`, for a door.  Raises `Refused` (rule 4)."""
        try:
            found, wrong = self.reload_if_changed(), ""
        except (OSError, TokenError) as error:
            found, wrong = False, str(error)
        if wrong and wrong != self._wrong:
            _log.error("tokens cannot be read", error=wrong)
        self._wrong = wrong
        if wrong:
            raise Refused("unavailable", "the token's owner cannot be read; the log has the reason")
        return found

    def reload_if_changed(self) -> bool:
        """Read the tokens again if the file is another one; True if it was.  Cheap: one `stat`.  Raises OSError and
        `TokenError`."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._tokens = tokens.read(self._path)
        self._stamp = stamp
        return True

    def _look(self) -> _Stamp:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
