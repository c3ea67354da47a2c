"""Waiting for a job, and fetching what it wrote into files."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from phoenix.cli import tail
from phoenix.cli.errors import FAILED, UNREACHABLE, CliError, usage
from phoenix.cli.http import Client, query
from phoenix.client.states import FINAL, GOOD
from schemas import control_characters

POLL_FIRST_S: Final = 0.05
POLL_MAX_S: Final = 1.0  # a waiting person does not notice; ten thousand waiting scripts are still few requests
_ENDED: Final = {
    "ended_early": "has ended early",
    "failed": "failed",
    "cancelled": "was cancelled",
    "timeout": "was ended",
    "killed": "was killed",
}
LOST_MAX_S: Final = 30.0  # a cloud that does not answer for longer is gone, not restarting


def wait(reader: Client, owner: Client, job: str, stdout: str | None, stderr: str | None) -> int:
    """Wait for the end of `job`, write its files, return its exit code."""
    from phoenix.cli import show

    found = until_final(reader, job)
    normal = show.normal(found, job)
    save(owner, normal, stdout, stderr)
    code = normal["exit_code"]
    if found["state"] != "completed":
        print(f"phoenix: job {job} {control_characters.shown(how_it_ended(normal))}", file=sys.stderr)
    if isinstance(code, int):
        return code & 0xFF if found["state"] in GOOD or code else FAILED
    return 0 if found["state"] in GOOD else FAILED


def how_it_ended(job: dict[str, Any]) -> str:
    """What follows the name of a job that is over and not simply completed: with its exit code or signal, or the reason why its
    last attempt was closed; of an array how many elements ended how."""
    from schemas.words import by_code
    from services.domain import text as sentences

    state, counts = str(job["state"]), job.get("counts") or {}
    if counts:
        return f"has ended: {', '.join(f'{counts[name]} {name}' for name in sorted(counts)).replace('_', ' ')}"
    last = (job.get("attempts") or [{}])[-1]
    ended, why = _ENDED.get(state, f"is {state}"), last.get("why")
    if why and why["code"] != state:
        return f"{ended}: {sentences.sentence(why)}"
    if state == "failed":
        ended += by_code(job.get("exit_code"), last.get("signal"))
    return f"{ended} at its time limit" if state == "timeout" else ended


def until_final(client: Client, job: str) -> dict[str, Any]:
    """Ask until the job is final; on a terminal the state is shown while it changes."""
    pause_s, shown, lost_since = POLL_FIRST_S, "", None
    while True:
        try:
            answer = client.get(f"/v1/jobs/{job}")
            found: dict[str, Any] = answer if "state" in answer else answer["job"]
            lost_since = None
        except CliError as error:
            lost_since = lost_since or time.monotonic()
            if error.code != UNREACHABLE or time.monotonic() - lost_since > LOST_MAX_S:
                raise
            found = {"state": "not reachable, retrying"}
        if found["state"] in FINAL:
            return found
        shown = _progress(job, found["state"], shown)
        time.sleep(pause_s)
        pause_s = min(POLL_MAX_S, pause_s * 1.3)


def _progress(job: str, state: str, shown: str) -> str:
    if state != shown and sys.stderr.isatty():
        print(f"job {job}: {state}", file=sys.stderr)
    return state


STDOUT: Final = "-"  # in place of a file, as everywhere


def save(
    client: Client, job: dict[str, Any], stdout: str | None, stderr: str | None, *, keeps: bool = False
) -> list[Path]:
    """Write the output of the job, or of each element of an array, where the patterns say; to stdout where one says "-".
    `keeps`: what was saved before is not replaced by nothing, since the cloud may have removed the output meanwhile."""
    written = []
    for unit in [str(u["unit"]) for u in job.get("units") or [] if u.get("unit")] or [_unit(job)]:
        for stream, pattern in (("stdout", stdout), ("stderr", stderr)):
            if pattern:
                answer = client.fetch("GET", query(f"/v1/jobs/{unit}/output", stream=stream))
                tail.tell_removed(answer)
                body = answer.body
                if pattern == STDOUT:
                    tail.write(body)
                    continue
                alone = job if unit == _unit(job) or "N" not in pattern else client.get(f"/v1/jobs/{unit}")
                path = Path(expand(pattern, unit, alone))
                _write(path, body, keeps=keeps)
                written.append(path)
    return written


def _unit(job: dict[str, Any]) -> str:
    """The element that was named; `job` is the number of its array."""
    return str(job.get("unit") or job["job"])


def _first_host(job: dict[str, Any]) -> str:
    """Where rank 0 of the last attempt was; `none` if there was none."""
    last = (job.get("attempts") or [{}])[-1]
    hosts = job.get("hosts") or last.get("hosts") or ["none"]
    return str(hosts[0])


def _write(path: Path, data: bytes, *, keeps: bool) -> None:
    try:
        if keeps and not data and path.is_file() and path.stat().st_size:
            raise usage(
                f"{path} is left as it is: there is no output, or none any more", "remove the file if it may be empty"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise usage(f"{path}: {error.strerror}") from error


def expand(pattern: str, unit: str, job: dict[str, Any]) -> str:
    """sbatch's patterns: %j and %J the job (of an element: with its index), %A the array job, %a the index, %x the name, %u the
    user, %N the host of rank 0, %n and %t its number and that of its first task."""
    array, _, index = unit.partition("_")
    values = {"j": unit, "J": unit, "A": array, "a": index or "0", "x": str(job.get("name") or ""), "%": "%"}
    values |= {"u": str(job.get("user") or ""), "N": _first_host(job), "n": "0", "t": "0"}
    result, rest = "", pattern
    while rest:
        head, percent, rest = rest.partition("%")
        result += head
        if percent:
            key = rest.lstrip("0123456789")[:1]
            width = rest[: rest.index(key)] if key else ""
            value = values.get(key)
            result += (
                (value.zfill(int(width)) if width and value.isdecimal() else value)
                if value is not None
                else f"%{width}{key}"
            )
            rest = rest[len(width) + len(key) :]
    return result
