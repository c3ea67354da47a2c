"""The boot document, and commands, as lines for a guest that has a shell and curl alone (deploy/opennebula/phoenix-guest).

Theory of operation
  A shell cannot read JSON, and whatever it cannot read as data it is tempted to evaluate.  So the document is also there as
  lines `NAME=VALUE`, in a form that `read -r` and `printf %b` give back byte for byte.

Rules
  1. One value a line.  In it a backslash is written ``\\\\`` and a line feed ``\\n``; nothing else is changed.  No value holds
     NUL: it could be no argument and no variable of a process.
  2. Names are ours, from a fixed list; a line's name is what stands before the first ``=``.
  3. What a guest puts into an address (`input`, `saved`: a percent-encoded name, a space, the name; `health`) comes encoded.
  4. What needs arithmetic is computed here: which inputs the checkpoint replaces, after how long to warn.
  5. `env` lines are in order: defaults, the user's, ours.  The last one of a name counts.  A `secret` line counts before all
     of them, and is kept apart: its value must be in no list of processes, as arguments of env(1) are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from schemas.dimensions import variables
from schemas.size import size_of
from schemas.slurm_names import of_job, with_slurm_names
from services.admission.guests.boot import Boot
from services.admission.guests.launch import Command

_PATH_SAFE: Final = "/?=&;,@"  # of a health path: its query stays one


def lines(boot: Boot) -> bytes:
    """The document."""
    return "".join(f"{name}={encoded(value)}\n" for name, value in _pairs(boot)).encode()


def command_lines(commands: Sequence[Command]) -> bytes:
    """Commands of `phoenix launch`, each from `n` to `end`; empty without commands."""
    return "".join(f"{name}={encoded(value)}\n" for one in commands for name, value in _pairs_of(one)).encode()


def encoded(value: str) -> str:
    """Rule 1."""
    return value.replace("\0", "").replace("\\", "\\\\").replace("\n", "\\n")


def _pairs(boot: Boot) -> Iterator[tuple[str, str]]:
    yield "kind", boot.kind
    yield "user", boot.user
    yield "rank", str(boot.rank)
    yield "ranks", str(boot.ranks)
    yield "script", "no" if boot.script is None else "yes"
    yield "grace_s", f"{boot.grace_s:.3f}"
    for name, value in (("directory", boot.directory), ("stdin", boot.stdin)):
        if value is not None:
            yield name, value
    if boot.health_path is not None:
        yield "health", quote("/" + boot.health_path.lstrip("/"), safe=_PATH_SAFE)
    if boot.signal is not None:
        yield "signal", str(boot.signal.number)
        yield "signal_to", "script" if boot.signal.script else "others"
        if boot.walltime_s is not None:
            yield "warn_after_s", f"{max(0.0, boot.walltime_s - boot.signal.before_s):.3f}"
    if boot.usage_interval_s:
        yield "usage_interval_s", f"{boot.usage_interval_s:.3f}"
    saved = [file.name for file in boot.checkpoint.files] if boot.checkpoint is not None else []
    for name in saved:
        yield "saved", f"{quote(name)} {name}"
    for file in boot.inputs:
        if not any(_collide(file.name, name) for name in saved):
            yield "input", f"{quote(file.name)} {file.name}"
    for pattern in boot.keep:
        yield "keep", pattern
    for name, value in environment(boot).items():
        yield "env", f"{name}={value}"
    for name, value in boot.secrets.items():
        yield "secret", f"{name}={value}"
    if boot.port is not None:
        yield "port", str(boot.port)
    for argument in boot.argv:
        yield "arg", argument


def _pairs_of(one: Command) -> Iterator[tuple[str, str]]:
    yield "n", str(one.n)
    yield "kind", one.kind
    yield "id", one.id
    if one.kind == "signal":
        yield "signal", str(one.signal)
    else:
        yield "first", str(one.first)
        yield "tasks", str(one.tasks)
        if one.directory is not None:
            yield "directory", one.directory
        for name, value in one.environment.items():
            if name:  # as in the boot document: env(1) could not set it
                yield "env", f"{name}={value}"
        for argument in one.argv:
            yield "arg", argument
    yield "end", ""


def environment(boot: Boot) -> dict[str, str]:
    """What the script receives, except what only its machine knows.  A variable without a name cannot be set by env(1)."""
    users = {name: value for name, value in boot.environment.items() if name}
    ground = {"LANG": "C.UTF-8", "SHELL": "/bin/sh", "USER": boot.user, "LOGNAME": boot.user}
    ours = {
        "PHOENIX_DEPARTMENT": boot.department,
        "PHOENIX_USER": boot.user,
        "PHOENIX_ATTEMPT": str(boot.attempt),
        "PHOENIX_CORE_SHARE": "1",
        **variables(size_of(boot)),
    }
    if boot.gpus:  # the devices of its machine are its own
        ours["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(boot.gpus)))
    own = _of_instance(boot) if boot.kind == "instance" else of_job(boot)
    return {**ground, **users, **with_slurm_names({**ours, **own})}


def _of_instance(boot: Boot) -> dict[str, str]:
    return {"PHOENIX_INSTANCE": boot.unit, "PHOENIX_CORES": str(boot.cores), "PHOENIX_SELF_LIMIT": "0"}


def _collide(one: str, other: str) -> bool:
    """True if two relative names cannot both be files: they are the same, or one is the other's directory."""
    mine, theirs = PurePosixPath(one).parts, PurePosixPath(other).parts
    shorter = min(len(mine), len(theirs))
    return mine[:shorter] == theirs[:shorter]
