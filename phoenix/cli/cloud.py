"""Which cloud a command talks to, and as whom.

Rules
  1. The cloud is, in this order: `--data DIR`; `$PHOENIX_URL` (a remote one, with the token in the file `$PHOENIX_TOKEN_FILE`);
     `$PHOENIX_DATA`; `./.phoenix`.
  2. A running embedded cloud describes itself in DATA/run/cloud.json (mode 0600): addresses, departments, and where the
     credential of each user lies.  It is gone when the cloud is down.
  3. In an embedded cloud one may act as anybody whose credential one can read: `--as USER` or `$PHOENIX_USER`.  Otherwise
     reads and administrative commands use the operator, `submit` and `signal` a user of the department.
  4. A remote cloud knows who one is from the token: `--as` is refused there.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from phoenix.cli import suggest
from phoenix.cli.errors import DENIED, UNREACHABLE, CliError, usage
from phoenix.cli.http import Client

DATA_DEFAULT: Final = ".phoenix"
TOKEN_BYTES_MAX: Final = 4096  # ours have 43; what does not fit into a header is none
OPERATORS: Final = "operators"


class User(NamedTuple):
    name: str
    department: str
    role: str
    token_file: Path


class Cloud:
    """A cloud that answers, as far as is known without asking it."""

    def __init__(self, url: str, *, data: Path | None, kinds: dict[str, str], users: list[User], chosen: str) -> None:
        self.url = url
        self.data = data
        self.kinds = kinds  # department -> batch | web; empty for a remote cloud
        self.users = users
        self._chosen = chosen

    def operator(self) -> Client:
        """For reads and administrative commands (rule 3)."""
        return self._client(next((user for user in self.users if user.role == "operator"), None))

    def member(self, department: str) -> Client:
        """For what a department does itself: its least mighty user that is no operator."""
        ranks = {"user": 0, "manager": 1}
        own = [user for user in self.users if user.department == department and user.role in ranks]
        return self._client(min(own, key=lambda user: (ranks[user.role], user.name), default=None) or self._first())

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

    def _first(self) -> User | None:
        return next((user for user in self.users if user.role == "operator"), None)

    def _client(self, default: User | None) -> Client:
        if not self.users and self.data is not None:
            raise CliError(
                DENIED,
                "this cloud has no users, so it answers no requests",
                "add a [[user]] to its file, then phoenix up",
            )
        if not self.users:
            return Client(self.url, _remote_token())
        user = default
        if self._chosen:
            self.check_user(self._chosen)
            user = next(user for user in self.users if user.name == self._chosen)
        if user is None:
            raise CliError(DENIED, "no credential fits this command", "choose one with --as USER")
        return Client(self.url, _read_token(user.token_file), user=user.name)


def data_dir(args: Namespace) -> Path:
    """Where the embedded cloud lives (rule 1)."""
    return Path(args.data or os.environ.get("PHOENIX_DATA") or DATA_DEFAULT)


def find(args: Namespace) -> Cloud:
    """The cloud of this command line.  CliError if none is running there."""
    chosen = args.as_user or os.environ.get("PHOENIX_USER") or ""
    url = os.environ.get("PHOENIX_URL")
    if url and not args.data:
        if args.as_user:
            raise usage("--as is for an embedded cloud", "a remote cloud knows you by the token in $PHOENIX_TOKEN_FILE")
        return Cloud(url, data=None, kinds={}, users=[], chosen="")
    data = data_dir(args)
    about = describe(data)
    try:
        users = [User(u["name"], u["department"], u["role"], Path(u["token_file"])) for u in about["users"]]
    except (TypeError, KeyError) as error:
        raise damaged(data) from error
    if not about.get("http_url"):
        raise CliError(
            UNREACHABLE, f"the cloud in {data} runs without services", "start them: phoenix down, then phoenix up"
        )
    return Cloud(about["http_url"], data=data, kinds=about["departments"], users=users, chosen=chosen)


def describe(data: Path) -> dict[str, Any]:
    """What the cloud in `data` says about itself (rule 2)."""
    try:
        about = orjson.loads((data / "run" / "cloud.json").read_bytes())
        if not isinstance(about, dict):
            raise ValueError("it should be an object")
        return about
    except FileNotFoundError:
        hint = (
            f"start one: phoenix up --detach --data {data}   (or name another with --data, $PHOENIX_DATA, $PHOENIX_URL)"
        )
        raise CliError(UNREACHABLE, f"no cloud is running in {data}", hint) from None
    except NotADirectoryError as error:
        raise usage(f"{data} is no directory", "name the cloud's directory with --data or $PHOENIX_DATA") from error
    except PermissionError as error:
        raise CliError(DENIED, f"{error.filename}: you may not read it; the cloud belongs to another user") from error
    except ValueError as error:
        raise damaged(data) from error


def damaged(data: Path) -> CliError:
    """For a caller that cannot read what `describe` gave."""
    return CliError(UNREACHABLE, f"{data / 'run' / 'cloud.json'} is damaged", "phoenix down, then phoenix up")


def _remote_token() -> str:
    path = os.environ.get("PHOENIX_TOKEN_FILE")
    if not path:
        raise CliError(
            DENIED, "$PHOENIX_URL is set, but no token", "put it into a file and name that in $PHOENIX_TOKEN_FILE"
        )
    return _read_token(Path(path))


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise CliError(DENIED, f"{path}: cannot read the token: {error.strerror}") from error
    if not 0 < len(found) <= TOKEN_BYTES_MAX or any(
        not 33 <= byte < 127 for byte in found
    ):  # what is there is not repeated: it may be a token still
        hint = "one line as `phoenix token create` wrote it: letters, digits and signs, without spaces or line breaks"
        raise CliError(DENIED, f"{path}: this is no token", hint)
    return found.decode("ascii")
