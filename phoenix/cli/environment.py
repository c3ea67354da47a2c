"""Which variables of the submitting shell a job gets (`--export`).

Rules
  1. ALL is the default, as with sbatch; NONE, and lists `NAME,NAME=VALUE`, are sbatch's too.
  2. What belongs to the submitting login (HOME, TMPDIR, …) is never taken by ALL: the job has its own.
  3. What looks like a secret is not taken by ALL: a job's environment is stored.  Naming it takes it.
  4. What is no text (UTF-8) cannot be sent: ALL leaves it out, and naming it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from phoenix.cli.errors import usage

_OWN: Final = frozenset(
    [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "MAIL",
        "PWD",
        "OLDPWD",
        "TMPDIR",
        "TEMP",
        "TMP",
        "TERM",
        "SHLVL",
        "DISPLAY",
        "HOSTNAME",
        "_",
        "PS1",
        "COLUMNS",
        "LINES",
    ]
)
_OWN_PREFIXES: Final = ("XDG_", "SSH_", "SUDO_", "DBUS_", "PHOENIX_", "SLURM_", "BASH_FUNC_", "TMUX", "PYTEST_")
_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|_KEY\Z|_AUTH\Z", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def exported(choice: str | None, shell: Mapping[str, str]) -> dict[str, str]:
    """The environment that is sent with the job."""
    words = [word for word in (choice if choice is not None else "ALL").split(",") if word]
    if words == ["NONE"]:
        return {}
    result: dict[str, str] = {}
    for word in words:
        if word == "ALL":
            result.update({name: value for name, value in shell.items() if _is_common(name) and _is_text(value)})
            continue
        name, separator, value = word.partition("=")
        if not _NAME.match(name):
            raise usage(f"--export: {name!r} is no name of a variable", "write ALL, NONE, or NAME,NAME=VALUE")
        if separator:
            result[name] = value
        elif name in shell:
            if not _is_text(shell[name]):
                raise usage(f"--export: what ${name} holds is no text (UTF-8)", "leave it out, or write NAME=VALUE")
            result[name] = shell[name]
    return result


def _is_text(value: str) -> bool:
    try:
        return value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_common(name: str) -> bool:
    return (
        bool(_NAME.match(name)) and name not in _OWN and not name.startswith(_OWN_PREFIXES) and not _SECRET.search(name)
    )
