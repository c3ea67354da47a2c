"""HTTP tokens: whose each is, and when it ends.

    tokens.json    sha256(token) -> user                     a user's own token, in <user>.token; it has no end
                                 -> {user, made, ends}       one that was issued: `phoenix token create USER --for 30d`

What it decides: what is on file.  It must never store a token: of one that was issued only its owner has it.

Rules
  1. An issued token is identified by the first figures of its hash (`ID_CHARS`), which reveal nothing about it.
  2. Holders of an ended token get that reason: an ended token stays on file for `KEPT_S`, and opens nothing.  Then it is
     unknown.
  3. Every writer of the file holds its directory's lock: it is read, changed and replaced as one.
  4. A user who is removed from the configuration loses the tokens that were issued to them, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from services.runtime import private_file

FILE: Final = "tokens.json"
TOKEN_BYTES: Final = 32  # 256 bits: not to be guessed however many tries
ID_CHARS: Final = 12  # 48 bits: no two of a cloud have the same
KEPT_S: Final = 30 * 86400.0  # after its end: a user who comes back from holidays gets the reason
ISSUED_MAX: Final = 100  # of one user: each is looked for in a file that every change rewrites
FOR_MIN_S: Final = 60.0
FOR_MAX_S: Final = 3650 * 86400.0  # ten years: what shall not end is a user's own token
LOCK_S: Final = 5.0  # others hold it for milliseconds


class TokenError(Exception):
    """A token cannot be issued or revoked.  The message says why, and what would be right."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """Times in UTC seconds."""

    user: str
    made: float
    ends: float


Tokens = Mapping[str, str | Issued]


def digest(token: str) -> str:
    """What is stored of a token.  Also of what is not text, as a header may have it: that belongs to no user."""
    return hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()


def new() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def user_of(entry: str | Issued) -> str:
    return entry if isinstance(entry, str) else entry.user


def read(path: Path) -> dict[str, str | Issued]:
    """What is on file; nothing if there is none.  Raises OSError, `TokenError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str | Issued])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TokenError(
            f"{path}: {error}; delete it: `phoenix up` creates a new one, without the tokens issued"
        ) from None


def write(path: Path, found: Tokens) -> None:
    """Replace the file, if it changes; the lock is the caller's."""
    content = msgspec.json.format(msgspec.json.encode(found, order="sorted"))
    if not path.exists() or path.read_bytes() != content:
        private_file.replace(path, content)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Rule 3.  Raises `TokenError` if another process keeps the lock."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TokenError(f"{directory}: another process has held its lock for {LOCK_S:g} s") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def keep(path: Path, own: Mapping[str, str], users: Collection[str], now: float) -> None:
    """Write the users' `own` tokens (hash -> user), and what was issued to `users` and has not long ended."""
    with locked(path.parent):
        issued = {h: e for h, e in read(path).items() if isinstance(e, Issued)}
        kept = {h: e for h, e in issued.items() if e.user in users and now < e.ends + KEPT_S}
        write(path, {**kept, **own})


def issue(path: Path, user: str, for_s: float, now: float) -> tuple[str, Issued]:
    """A new token of `user`, which the caller hands over: it is not kept.  Raises `TokenError`, OSError."""
    if not FOR_MIN_S <= for_s <= FOR_MAX_S:
        raise TokenError("a token is for at least a minute and at most ten years")
    token, entry = new(), Issued(user=user, made=now, ends=now + for_s)
    with locked(path.parent):
        found = read(path)
        if sum(isinstance(e, Issued) and e.user == user and e.ends > now for e in found.values()) >= ISSUED_MAX:
            raise TokenError(f"{user} has {ISSUED_MAX} tokens that have not ended: revoke some first")
        write(path, {**found, digest(token): entry})
    return token, entry


def issued(path: Path) -> dict[str, Issued]:
    """What was issued, by id, the first to end first."""
    found = [(e.ends, h[:ID_CHARS], e) for h, e in read(path).items() if isinstance(e, Issued)]
    return {name: entry for _, name, entry in sorted(found, key=lambda x: x[:2])}


def revoke(path: Path, name: str) -> Issued | None:
    """Forget the issued token of that id; None if there is none.  The doors know within a second."""
    with locked(path.parent):
        found = read(path)
        for hashed, entry in found.items():
            if isinstance(entry, Issued) and hashed[:ID_CHARS] == name:
                write(path, {h: e for h, e in found.items() if h != hashed})
                return entry
    return None
