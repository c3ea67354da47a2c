"""Secrets of web departments: files that only admission reads, named in the configuration, never held in it.

    <[secrets] directory>/<department>/<name>       0600, its directories 0700; default <data>/credentials/secrets

A web department lists which of its instances' environment variables are secrets, and what each is called:
`secrets = { DB_PASSWORD = "db-password" }`.  The value goes from the file to the guest of an instance that boots, over its
authenticated call, and nowhere else: no fact, snapshot, template, log, argument list or answer to a person holds it.

Rules
  1. A file counts that is a regular one (no link), belongs to this process's user or to root, and is open to no other user.
     Whatever others could have written or read is no secret.
  2. A value is UTF-8 text of at most `VALUE_MAX_BYTES` without NUL: it becomes an environment variable.  One line feed at its
     end is cut, since editors and `echo` write one.
  3. A problem is reported by the secret's name and never by its value, or a part of it.
  4. A value is replaced whole or not at all.
  5. All of an instance together are at most TOTAL_MAX_BYTES: more is no environment, and admission sends it with each boot.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.config import CloudConfig
from schemas.ids import is_department
from services.runtime import private_file

VALUE_MAX_BYTES: Final = 64 << 10  # half of what one environment variable may have (Linux: MAX_ARG_STRLEN)
# half of what arguments and environment of a process may have together (Linux: ARG_MAX)
TOTAL_MAX_BYTES: Final = 1 << 20
NAMES_MAX: Final = 1000  # of one department, as of a release's environment
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")  # as `schemas.releases.SecretName`
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SecretError(Exception):
    """A secret cannot be used.  The message names it, and what would be right."""


def read(directory: Path, dept: str, name: str) -> str:
    """The value.  Raises `SecretError`."""
    path = _path(directory, dept, name)
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise SecretError(f"secret {name} of {dept} is missing: phoenix secret set {dept} {name}") from None
    except OSError as error:
        raise SecretError(f"secret {name} of {dept} cannot be read ({error.strerror}): {path}") from None
    with open(descriptor, "rb") as file:
        wrong = _wrong(os.fstat(descriptor))
        data = b"" if wrong else file.read(VALUE_MAX_BYTES + 1)
    if wrong:
        raise SecretError(f"secret {name} of {dept}: {path} {wrong}")
    return _text(dept, name, data)


def values(directory: Path, dept: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Variable -> value of `wanted` (variable -> name).  Raises `SecretError` with all that is missing."""
    known: dict[str, str] = {}
    problems = []
    for name in dict.fromkeys(wanted.values()):
        try:
            known[name] = read(directory, dept, name)
        except SecretError as error:
            problems.append(str(error))
    if problems:
        raise SecretError("; ".join(problems))
    size = sum(len(variable) + len(known[name].encode()) for variable, name in wanted.items())
    if size > TOTAL_MAX_BYTES:
        raise SecretError(f"the secrets of {dept} have {size} bytes together; an environment holds {TOTAL_MAX_BYTES}")
    return {variable: known[name] for variable, name in wanted.items()}


def problems(directory: Path, cloud: CloudConfig) -> list[str]:
    """What stands in the way of the secrets that the configuration names; empty: all are there."""
    found = []
    for department in cloud.departments:
        if department.web is not None and department.web.secrets:
            try:
                values(directory, department.name, department.web.secrets)
            except SecretError as error:
                found.append(f"{error}; until then its instances do not come into service")
    return found


def write(directory: Path, dept: str, name: str, data: bytes) -> None:
    """Set a value (rule 4).  Raises `SecretError`, OSError."""
    path = _path(directory, dept, name)
    _text(dept, name, data)
    for parent in (directory, path.parent):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if parent.stat().st_mode & 0o077:
            parent.chmod(0o700)
    if not path.exists() and len(names(directory, dept)) >= NAMES_MAX:
        raise SecretError(f"{dept} has {NAMES_MAX} secrets: remove some first")
    private_file.replace(path, data)


def names(directory: Path, dept: str) -> list[str]:
    """What there is, by name.  Raises `SecretError`."""
    try:
        return sorted(entry.name for entry in _path(directory, dept, "any").parent.iterdir() if NAME.match(entry.name))
    except FileNotFoundError:
        return []


def remove(directory: Path, dept: str, name: str) -> bool:
    """False if there was none.  Raises `SecretError`, OSError."""
    try:
        _path(directory, dept, name).unlink()
    except FileNotFoundError:
        return False
    return True


def _path(directory: Path, dept: str, name: str) -> Path:
    if NAME.match(name) is None:
        raise SecretError(f"{name[:64]!r} is no name of a secret: small letters, digits, '.', '_' and '-', at most 64")
    if not is_department(dept):
        raise SecretError(f"{dept[:64]!r} is no name of a department")
    return directory / dept / name


def _wrong(found: os.stat_result) -> str:
    """Rule 1; empty if it is kept."""
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}: chown it to the user that the cloud runs as"
    if found.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(found.st_mode):o}): chmod 600"
    return ""


def _text(dept: str, name: str, data: bytes) -> str:
    """Rule 2."""
    if len(data) > VALUE_MAX_BYTES:
        raise SecretError(f"secret {name} of {dept} is larger than {VALUE_MAX_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SecretError(f"secret {name} of {dept} is no UTF-8 text") from None
    if "\0" in text:
        raise SecretError(f"secret {name} of {dept} holds a NUL character: no environment variable can")
    return text.removesuffix("\n")
