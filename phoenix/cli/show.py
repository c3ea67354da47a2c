"""`phoenix show JOB`: one job and its attempts."""

from __future__ import annotations

import argparse
import time
from datetime import datetime
from typing import Any, Final

from phoenix.cli import cloud, printing, tables, units
from phoenix.cli.http import Client
from phoenix.cli.parser import job_id
from phoenix.cli.queue import shown, starts
from schemas import control_characters
from schemas.dimensions import DIMENSIONS
from services.domain import text as sentences
from services.domain.text import facts
from services.domain.text.starts import when_it_starts

_WHOLE_S: Final = 60.0  # below it hundredths of a CPU second are worth telling
UNITS_SHOWN: Final = 50  # elements of an array that the text lists; --json has all
HELP: Final = """examples:
  phoenix show 17             state, attempts, exit code, times
  phoenix show 18_3 --json    element 3 of array job 18, for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", type=job_id, metavar="JOB", help="a job (17), an array's element (18_3) or an instance (web.7)"
    )


def run(args: argparse.Namespace) -> int:
    client = cloud.find(args).operator()
    job = fetch(client, args.job)
    if job.get("state") == "pending" and (known := starts(client, job=args.job)):
        job["start"] = next(iter(known.values()))
    printing.answer(job, render, as_json=args.json)
    return 0


def fetch(client: Client, job: str) -> dict[str, Any]:
    """The job with `job`, `state`, `attempts` and `exit_code`."""
    answer = client.get(f"/v1/jobs/{job}")
    found: dict[str, Any] = answer if "state" in answer else answer.get("job") or answer
    return normal(found, job)


def normal(found: dict[str, Any], job: str) -> dict[str, Any]:
    """The same shape whatever the monitor leaves out."""
    result = dict(found)
    attempts = list(found.get("attempts") or [])
    members = [unit for unit in found.get("units") or [] if isinstance(unit, dict)]
    result["job"] = found.get("job") if isinstance(found.get("job"), str) else job
    result["attempts"] = attempts
    result["exit_code"] = _exit_code(found, attempts, members)
    if members:
        result["units"] = members
    return result


def _exit_code(found: dict[str, Any], attempts: list[dict[str, Any]], members: list[dict[str, Any]]) -> int | None:
    """Its own; else that of the last attempt; of an array the worst, once no element is without one."""
    for key in ("exit_code", "exit"):
        if found.get(key) is not None:
            return int(found[key])
    if len(members) > 1:
        codes = [unit.get("exit_code", unit.get("exit")) for unit in members]
        known = [int(code) for code in codes if code is not None]
        return max(known, key=abs) if len(known) == len(codes) else None
    last = attempts[-1] if attempts else {}
    return last.get("exit_code", last.get("exit"))


def render(job: dict[str, Any]) -> str:
    parts = [tables.pairs(_pairs(job))]
    if job["attempts"]:
        parts.append(_attempts(job["attempts"]))
    members = job.get("units") or []
    if len(members) > 1:
        parts.append(_units(members))
    return "\n\n".join(parts)


_LABELS: Final = (
    ("name", "name"),
    ("state", "state"),
    ("department", "department"),
    ("user", "user"),
    ("service", "service"),
    ("quality", "quality of service"),
    ("constraint", "constraint"),
    ("nodes", "nodes"),
    *((dimension.field, dimension.label) for dimension in DIMENSIONS),
    ("priority", "priority"),
    ("submitted_at", "submitted"),
    ("started_at", "started"),
    ("ended_at", "ended"),
    ("exit_code", "exit code"),
)


def _pairs(job: dict[str, Any]) -> list[tuple[str, str]]:
    found = [("job", str(job.get("unit") or job["job"]))]  # of an array's element its own name, not the array's
    unsaid = [dimension.field for dimension in DIMENSIONS if not dimension.is_shown(job.get(dimension.field))]
    words = job | {"state": shown(str(job["state"]))} | dict.fromkeys(unsaid)
    found += [(label, str(words[key])) for key, label in _LABELS if words.get(key) is not None]
    if job.get("elapsed_s") and job["attempts"]:
        found.append(("elapsed", units.span(job["elapsed_s"])))
    ran_s = _ran_s(job, time.time())
    if ran_s is not None:
        found.append(("run time", units.span(ran_s)))
    found += _used(job)
    if isinstance(job.get("walltime_s"), int | float):
        found.append(("time limit", units.span(job["walltime_s"])))
    if isinstance(job.get("grace_s"), int | float):
        found.append(("grace", f"{job['grace_s']:g}s from SIGTERM to SIGKILL"))
    if job.get("lease"):
        found.append(("lease", _lease(job["lease"])))
    elif job.get("best_effort"):
        found.append(("best-effort", "it is preempted for production"))
    if job.get("hosts"):
        found.append(("hosts", ", ".join(job["hosts"])))
    found += _checkpoint(job["attempts"])
    found += _notes(job["attempts"])
    if job.get("reason"):
        found.append(("reason", sentences.sentence(job["reason"])))
    if job.get("start"):
        found.append(("starts", when_it_starts(job["start"], time.time(), sentences.sentence)))
    return [
        (label, control_characters.shown(value)) for label, value in found
    ]  # one line each, whatever a guest has noted


def _used(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Of a job that has begun; until the figures are final, what its guests reported last."""
    if not any(attempt.get("began_at") for attempt in job["attempts"]) or "cpu_seconds" not in job:
        return []
    until = " so far" if job.get("so_far") else ""
    found = (("CPU time", _cpu(job["cpu_seconds"])), ("peak memory", _peak(job["max_rss_mb"])))
    return [(label, f"{value}{until}" if value else "unknown") for label, value in found]


def _cpu(seconds: float | None) -> str:
    return "" if seconds is None else units.span(seconds) if seconds >= _WHOLE_S else f"{seconds:.2f}s"


def _peak(mebibytes: float | None) -> str:
    return "" if mebibytes is None else f"{mebibytes:.1f} MiB"


def _ran_s(job: dict[str, Any], now: float) -> float | None:
    """What counts towards the time limit, of a job that runs or is suspended: its present life, without the pauses."""
    before_s = job.get("ran_before_s")
    if not isinstance(before_s, int | float):
        return None
    if job["state"] == "suspended":
        return before_s
    if job["state"] not in ("running", "completing") or not job.get("started_at"):
        return None
    return before_s + max(0.0, now - datetime.fromisoformat(str(job["started_at"])).timestamp())


def _notes(attempts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What guests had to say, such as that a directory could not be entered; of several attempts with its number."""
    told = [(a.get("attempt"), str(a["note"])) for a in attempts if a.get("note")]
    return [("note", note if len(attempts) == 1 else f"attempt {number}: {note}") for number, note in told]


def _checkpoint(attempts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The job's last word on what is safe."""
    last = next((a for a in reversed(attempts) if a.get("checkpoint")), None)
    if last is None:
        return []
    said = last["checkpoint"]
    parts = [f"{said['at']}, attempt {last.get('attempt')}"]
    if said.get("percent") is not None:
        parts.append(f"{said['percent']:g} %")
    if said.get("progress"):
        parts.append(str(said["progress"]))
    parts.append(units.count(int(said["files"]), "file") if said.get("files") else "it keeps its state itself")
    return [("checkpoint", "; ".join(parts))]


def _lease(lease: dict[str, Any]) -> str:
    if not lease.get("start_at"):
        return f"{lease['kind']}: it runs on idle capacity and can be preempted"
    deadline = f", deadline {lease['deadline_at']}" if lease.get("deadline_at") else ""
    return f"{lease['kind']}, from {lease['start_at']} to {lease['end_at']}{deadline}"


def _attempts(attempts: list[dict[str, Any]]) -> str:
    rows = [
        (
            str(attempt.get("attempt", "")),
            ",".join(attempt.get("hosts") or ()),
            attempt.get("placed_at") or "",
            attempt.get("began_at") or "",
            attempt.get("ended_at") or "",
            "ended early" if facts.ended_early(attempt) else attempt.get("disposal") or "",
            "" if (code := attempt.get("exit", attempt.get("exit_code"))) is None else str(code),
            *_own(attempt),
            sentences.sentence(attempt["why"]) if attempt.get("why") else "",
        )
        for attempt in attempts
    ]
    head = ("ATTEMPT", "HOSTS", "PLACED", "BEGAN", "ENDED", "THEN", "EXIT", "CPU", "MEMORY", "WHY")
    return tables.render(head, rows, right="ATTEMPT EXIT CPU MEMORY")


def _own(attempt: dict[str, Any]) -> tuple[str, str]:
    """What an attempt has used; nothing of one that has not begun."""
    if not attempt.get("began_at"):
        return "", ""
    return _cpu(attempt.get("cpu_seconds")) or "unknown", _peak(attempt.get("max_rss_mb")) or "unknown"


def _units(members: list[dict[str, Any]]) -> str:
    rows = [
        (
            str(unit.get("unit", "")),
            shown(str(unit.get("state", ""))),
            str(unit.get("attempt", "")),
            ",".join(unit.get("hosts") or ()),
        )
        for unit in members[:UNITS_SHOWN]
    ]
    text = tables.render(("ELEMENT", "STATE", "ATTEMPT", "HOSTS"), rows, right="ATTEMPT")
    return (
        text if len(members) <= UNITS_SHOWN else f"{text}\n… {UNITS_SHOWN} of {len(members)} shown (--json shows all)"
    )
