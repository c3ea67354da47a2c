"""Credentials: a key for NATS and a token for HTTP for each person and program, a key for each service.

What it decides: which credentials exist.  It must never show one: what it returns and logs are names.

    <credentials_dir>/            0700
      <user>.nk                   0600   nkey seed: authenticates to the server (the server knows the public key only)
      <user>.token                0600   bearer token for HTTP
      service-<process>.nk        0600   admission, provisioner, executor, monitor, scheduler.<department>, admin
      service-watch.nk            0600   the monitor's, for the refusals of the broker (`permissions.system`)
      tokens.json                 0600   sha256(token) -> user: what the doors read, so that they need not hold the tokens; and
                                         the tokens that were issued, with their end (`services.runtime.tokens`)
    <guest_key_file>              0600   key of the guests' tokens (HMAC)

Rules
  1. An existing credential is kept: to replace one, delete its file and call `ensure` again.
  2. A user or department that is gone from the configuration loses its files; a running server forgets the key when it reloads
     a configuration generated afterwards.  Files of other names are not touched.
  3. A file appears whole, with its final permissions, or not at all; two processes that create the same one agree on the first.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import nkeys

from schemas import subjects
from services.runtime import private_file, tokens
from services.runtime.broker import permissions
from services.runtime.config.tables import Config
from services.runtime.tokens import TOKEN_BYTES
from services.runtime.tokens import digest as digest

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class CredentialsError(Exception):
    """Credentials are missing or unreadable.  The message says which, and what to do."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What `ensure` did, by file name."""

    created: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()


def seed_file(config: Config, credential: str) -> Path:
    """The nkey seed of a user (by name) or of a service (``service-<process>``)."""
    return config.nats.credentials_dir / f"{credential}.nk"


def token_file(config: Config, user: str) -> Path:
    return config.nats.credentials_dir / f"{user}.token"


def tokens_file(config: Config) -> Path:
    return config.nats.credentials_dir / tokens.FILE


def ensure(config: Config) -> Changes:
    """Create what is missing, revoke what has no owner, keep the rest.  OSError if the directory cannot be written."""
    directory = config.nats.credentials_dir
    _private_directory(directory)
    wanted = {f"{name}.nk": _new_seed for name in (*permissions.table(config.cloud), *permissions.system())}
    wanted |= {f"{user.name}.token": _new_token for user in config.cloud.users}
    created = [name for name, make in wanted.items() if _create(directory / name, make())]
    if _create(config.guest_key_file, secrets.token_hex(TOKEN_BYTES).encode()):
        created.append(config.guest_key_file.name)
    stale = sorted(p.name for p in directory.iterdir() if p.suffix in (".nk", ".token") and p.name not in wanted)
    for name in stale:
        (directory / name).unlink(missing_ok=True)
    _write_tokens(config)
    return Changes(created=tuple(created), revoked=tuple(stale))


def public_keys(config: Config) -> dict[str, str]:
    """Public nkeys by credential.  Raises `CredentialsError`."""
    names = (*permissions.table(config.cloud), *permissions.system())
    return {name: _public_key(seed_file(config, name)) for name in names}


def user_options(config: Config, user: str) -> dict[str, Any]:
    """Arguments of `nats.connect` for a person or program: servers, key, inbox prefix, name.  Raises `CredentialsError`."""
    entry = config.cloud.user(user)
    if entry is None:
        raise CredentialsError(f"there is no user {user!r} in the configuration")
    return _options(config, user, subjects.inbox(entry.department, user), user)


def service_options(config: Config, process: str) -> dict[str, Any]:
    """Arguments of `nats.connect` for a service process (``scheduler.hpc``) or ``admin``.  Raises `CredentialsError`."""
    credential = permissions.service_credential(process)
    return _options(config, credential, permissions.service_inbox(process), process)


def _options(config: Config, credential: str, inbox: str, name: str) -> dict[str, Any]:
    path = seed_file(config, credential)
    if not os.access(path, os.R_OK):
        raise CredentialsError(f"{path}: no readable key of {name!r}; `phoenix up` makes it, its owner may read it")
    return {"servers": [config.nats.url], "nkeys_seed": str(path), "inbox_prefix": inbox, "name": name}


def _private_directory(directory: Path) -> None:
    directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(_DIRECTORY_MODE)


def _new_seed() -> bytes:
    return bytes(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER))


def _new_token() -> bytes:
    return tokens.new().encode()


def _create(path: Path, content: bytes) -> bool:
    """Write a new file; False if it exists already.  A link, not a rename: of two creators the first wins."""
    if path.exists():
        if path.stat().st_mode & 0o077:
            path.chmod(_FILE_MODE)
        return False
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    temporary = private_file.beside(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _write_tokens(config: Config) -> None:
    own = {digest(_token(token_file(config, u.name))): u.name for u in config.cloud.users}
    try:
        tokens.keep(tokens_file(config), own, set(own.values()), time.time())
    except tokens.TokenError as error:
        raise CredentialsError(str(error)) from error


def _token(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except UnicodeDecodeError as error:
        raise CredentialsError(f"{path}: this is no token; delete it, and a new one is made") from error


def _public_key(path: Path) -> str:
    try:
        pair = nkeys.from_seed(bytearray(path.read_bytes().strip()))
        key = bytes(pair.public_key).decode()
        pair.wipe()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}; `phoenix up` makes missing keys") from error
    except nkeys.NkeysError as error:
        raise CredentialsError(f"{path}: not an nkey seed; delete it, and a new one is made") from error
    return key
