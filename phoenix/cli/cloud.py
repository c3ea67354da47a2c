"""Which cloud a command talks to, and as whom.

Rules
  1. The cloud is found as the client library finds it (`phoenix.client.where`); `--data DIR` names its data directory.
  2. In an embedded cloud one may act as each user whose credential one can read: `--as USER` or `$PHOENIX_USER`.  Otherwise
     reads and administrative commands use the operator, `submit` and `signal` a user of the department.
  3. A remote cloud knows who one is from the token: `--as` is refused there.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from phoenix.cli import suggest
from phoenix.cli.errors import DENIED, CliError, of_client, usage
from phoenix.cli.http import Client
from phoenix.client import where
from phoenix.client.errors import PhoenixError
from phoenix.client.where import User

OPERATORS: Final = "operators"


class Cloud:
    """A cloud that answers, as far as is known without asking it."""

    def __init__(self, site: where.Site, *, chosen: str) -> None:
        self._site = site
        self.url, self.data, self.users = site.url, site.data, site.users
        self.kinds = site.kinds  # department -> batch | web; empty for a remote cloud
        self._chosen = chosen

    def operator(self) -> Client:
        """For reads and administrative commands (rule 2)."""
        return self._client(self._site.operator())

    def member(self, department: str) -> Client:
        """For what a department does itself: its least mighty user that is no operator."""
        ranks = {"user": 0, "manager": 1}
        own = [user for user in self.users if user.department == department and user.role in ranks]
        return self._client(
            min(own, key=lambda user: (ranks[user.role], user.name), default=None) or self._site.operator()
        )

    def department(self, given: str | None, kind: str) -> str | None:
        """The one named, that of `--as`, or the only one of this kind.  None: a remote cloud, and none was named."""
        named = given or os.environ.get("PHOENIX_DEPARTMENT") or None
        if named is not None:
            self.check_department(named)
            return named
        if not self.users:
            return None
        own = next((user.department for user in self.users if user.name == self._chosen), OPERATORS)
        if own != OPERATORS:
            return own
        some = [name for name, of in self.kinds.items() if of == kind]
        if len(some) == 1:
            return some[0]
        raise usage(f"which department? there is {', '.join(sorted(some)) or 'none'}", "name it with --department NAME")

    def check_department(self, name: str) -> None:
        """CliError for a department that an embedded cloud does not have."""
        if self.kinds and name not in self.kinds:
            raise usage(f"there is no department {name!r}", suggest.hint(name, self.kinds))

    def check_web(self, name: str, why: str) -> None:
        """Likewise for one that is no web department; `why`: what only those have."""
        self.check_department(name)
        if self.kinds.get(name) == "batch":
            raise usage(f"{name} is a batch department", why)

    def check_user(self, name: str) -> None:
        """Likewise for a user."""
        names = [user.name for user in self.users]
        if names and name not in names:
            raise usage(f"there is no user {name!r}", suggest.hint(name, names))

    def check_host(self, name: str) -> None:
        """Likewise for a host, of any cloud."""
        known = [host["host"] for host in self.operator().get("/v1/hosts")["hosts"]]
        if name not in known:
            raise usage(f"there is no host {name!r}", suggest.hint(name, known))

    def _client(self, default: User | None) -> Client:
        user = default
        if self._chosen and self.users:
            self.check_user(self._chosen)
            user = self._site.user(self._chosen)
        if self.users and user is None:
            raise CliError(DENIED, "no credential fits this command", "choose one with --as USER")
        try:
            token = where.read_token(where.token_of(self._site, user))
        except PhoenixError as error:
            raise of_client(error) from error
        return Client(self.url, token, user=user.name if user is not None else "")


def data_dir(args: Namespace) -> Path:
    """Where the embedded cloud lives (`where`, rule 1)."""
    return where.data_dir(args.data)


def find(args: Namespace) -> Cloud:
    """The cloud of this command line.  CliError if none is running there."""
    chosen = args.as_user or os.environ.get("PHOENIX_USER") or ""
    try:
        site = where.find(args.data)
    except PhoenixError as error:
        raise of_client(error) from error
    if site.data is None and args.as_user:
        raise usage("--as is for an embedded cloud", "a remote cloud knows you by the token in $PHOENIX_TOKEN_FILE")
    return Cloud(site, chosen=chosen if site.data is not None else "")


def describe(data: Path) -> dict[str, Any]:
    """What the cloud in `data` says about itself."""
    try:
        return where.describe(data)
    except PhoenixError as error:
        raise of_client(error) from error


def damaged(data: Path) -> CliError:
    """For a caller that cannot read what `describe` gave."""
    return of_client(where.damaged(data))
