"""Which cloud a program talks to, and with which token: the same rules for the command line and for the library.

Rules
  1. The cloud is, in this order: the data directory that is named; `$PHOENIX_URL` (a remote one, with the token in the file
     `$PHOENIX_TOKEN_FILE`); `$PHOENIX_DATA`; `./.phoenix`.
  2. A running embedded cloud describes itself in DATA/run/cloud.json (mode 0600): addresses, departments, and the file with the
     credential of each user.  It is gone when the cloud is down.
  3. In an embedded cloud a program may act as each user whose credential it can read.  A remote cloud knows its caller from the
     token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from phoenix.client.errors import Denied, Invalid, Unavailable

DATA_DEFAULT: Final = ".phoenix"
TOKEN_BYTES_MAX: Final = 4096  # ours have 43; what does not fit into a header is none


class User(NamedTuple):
    name: str
    department: str
    role: str
    token_file: Path


class Site(NamedTuple):
    """A cloud, as far as it is known without a request.  `data`: of an embedded one; `kinds`: department -> batch or web;
    `token_file`: of a remote cloud, None if none is named."""

    url: str
    data: Path | None = None
    kinds: Mapping[str, str] = {}
    users: tuple[User, ...] = ()
    token_file: Path | None = None

    def operator(self) -> User | None:
        return next((user for user in self.users if user.role == "operator"), None)

    def user(self, name: str) -> User:
        """Raises `Invalid` with the names that there are."""
        for user in self.users:
            if user.name == name:
                return user
        raise Invalid(f"there is no user {name!r}", hint=f"users: {', '.join(user.name for user in self.users)}")


def data_dir(named: str | Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the embedded cloud is (rule 1)."""
    return Path(named or environ.get("PHOENIX_DATA") or DATA_DEFAULT)


def find(named: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Site:
    """The cloud of rule 1; `named`: its data directory.  Raises `Unavailable` if none is running there, `Denied`, `Invalid`."""
    url = environ.get("PHOENIX_URL")
    if url and not named:
        file = environ.get("PHOENIX_TOKEN_FILE")
        return Site(url, token_file=Path(file) if file else None)
    data = data_dir(named, environ)
    about = describe(data)
    try:
        users = tuple(User(u["name"], u["department"], u["role"], Path(u["token_file"])) for u in about["users"])
        kinds = dict(about["departments"])
    except (TypeError, KeyError, ValueError) as error:
        raise damaged(data) from error
    if not about.get("http_url"):
        raise Unavailable(
            f"the cloud in {data} runs without services", hint="start them: phoenix down, then phoenix up"
        )
    return Site(about["http_url"], data, kinds, users)


def describe(data: Path) -> dict[str, Any]:
    """What the cloud in `data` says about itself (rule 2)."""
    try:
        about = json.loads((data / "run" / "cloud.json").read_bytes())
    except FileNotFoundError:
        another = "or name another with --data, $PHOENIX_DATA, $PHOENIX_URL"
        hint = f"start one: phoenix up --detach --data {data}   ({another})"
        raise Unavailable(f"no cloud is running in {data}", hint=hint) from None
    except NotADirectoryError as error:
        hint = "name the cloud's directory with --data or $PHOENIX_DATA"
        raise Invalid(f"{data} is no directory", hint=hint) from error
    except PermissionError as error:
        raise Denied(f"{error.filename}: you may not read it; the cloud belongs to another user") from error
    except ValueError as error:
        raise damaged(data) from error
    if not isinstance(about, dict):
        raise damaged(data)
    return about


def damaged(data: Path) -> Unavailable:
    """For a caller that cannot read what `describe` gave."""
    return Unavailable(f"{data / 'run' / 'cloud.json'} is damaged", hint="phoenix down, then phoenix up")


def token_of(site: Site, user: User | None) -> Path:
    """The file with the token of `user`, of a remote cloud the one that is named.  Raises `Denied` if there is none."""
    if site.data is None:
        if site.token_file is None:
            hint = "put it into a file and name that in $PHOENIX_TOKEN_FILE"
            raise Denied("$PHOENIX_URL is set, but no token", hint=hint)
        return site.token_file
    if not site.users:
        hint = "add a [[user]] to its file, then phoenix up"
        raise Denied("this cloud has no users, so it answers no requests", hint=hint)
    if user is None:
        raise Denied("no credential fits", hint="choose a user")
    return user.token_file


def read_token(path: Path) -> str:
    """Raises `Denied` if there is none.  What the file holds instead is not repeated: it may still be a secret."""
    try:
        with path.open("rb") as file:
            found = file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise Denied(f"{path}: cannot read the token: {error.strerror}") from error
    if not 0 < len(found) <= TOKEN_BYTES_MAX or any(not 33 <= byte < 127 for byte in found):
        hint = "one line as `phoenix token create` wrote it: letters, digits and signs, without spaces or line breaks"
        raise Denied(f"{path}: this is no token", hint=hint)
    return found.decode("ascii")
