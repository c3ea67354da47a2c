"""A department whose scheduler is not well looks like one where jobs wait: a user who asks about its jobs gets a note.

The supervisor of an embedded cloud knows it; of a remote cloud nothing is known here, and nothing is said.  It goes to the
error output, so that tables stay tables.  The supervisor is asked without `phoenix.local.control`, whose imports cost more
than the whole command.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

import orjson

from phoenix.cli.cloud import Cloud

SCHEDULER: Final = "scheduler."
ANSWER_S: Final = 2.0  # it is asked in passing: a supervisor that is busy must not hold up an answer that is there
POLICY: Final = 7  # services.domain.exits.Exit.POLICY, without what that imports


def tell(where: Cloud, department: str | None = None) -> None:
    """Name the schedulers that do not answer; `department`: of this one only."""
    if where.data is None:
        return
    try:
        found = lines(_processes(where.data), department)
    except (OSError, ValueError, LookupError):  # the question itself has been answered
        return
    for line in found:
        print(line, file=sys.stderr)


def _processes(data: Path) -> list[dict[str, Any]]:
    """What the supervisor says of each process (`phoenix.local.control`, rules 2 and 3)."""
    run = os.open(data / "run", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(f"/proc/self/fd/{run}/control.sock")
            connection.sendall(b'{"op": "status"}\n')
            with connection.makefile("rb") as stream:
                return list(orjson.loads(stream.readline())["processes"])
    finally:
        os.close(run)


def lines(processes: list[dict[str, Any]], department: str | None = None) -> list[str]:
    return [
        _line(one, name)
        for one in processes
        for name in [str(one["name"]).removeprefix(SCHEDULER)]
        if str(one["name"]).startswith(SCHEDULER) and one["health"] != "ok" and department in (None, name)
    ]


def _line(one: dict[str, Any], name: str) -> str:
    restarts, code = one["restarts"], one["exit_code"]
    times = f", {restarts} restart{'' if restarts == 1 else 's'}" if restarts else ""
    ended = f", it ended with code {code}" if code else ""
    policy = ": a policy is missing or has failed" if code == POLICY else ""
    return (
        f"phoenix: the scheduler of {name} does not answer ({one['health']}{times}{ended}{policy}); until it does, nothing "
        f"starts there.  Why is at the end of {one['log']}; see also `phoenix status`"
    )
