"""HAProxy's state, read: a backend's slots, its counters, the process.

A slot is a server that `server-template` has prepared (`phoenix1`, `phoenix2`, …): it has no instance until the agent gives it
an address.  Three answers make one reading: `show servers state` has addresses and what was ordered, `show stat` has health,
sessions and counters, `show map` the path at which each is checked.  Pure.

Rules
  1. Columns are found by their names in the answer's head: HAProxy adds new ones with each version.
  2. What was ordered is read from bits, not from the status text, which shows a drained server that is down as just down.
  3. An answer that cannot be read is an error that names what was missed; it is never taken for an empty backend.
  4. A configuration without the map of health paths is one that can be read: `has_map` is false.
  5. Numbers have bounds: one that is negative, not finite, or above COUNT_MAX is none.
  6. Slots are the prefix and a number.  Servers of other names are the department's own: they are not looked at.
"""

from __future__ import annotations

import csv
import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Ordered: TypeAlias = Literal["ready", "drain", "maint"]
Address: TypeAlias = tuple[str, int]  # an IP address in its usual form, and a port

# Bits of srv_admin_state that keep a server out of service altogether: forced, by a tracked one, no address, not resolved.
MAINT: Final = 0x01 | 0x02 | 0x20 | 0x40
DRAIN: Final = 0x08 | 0x10  # forced, by a tracked one
COUNT_MAX: Final = 1 << 53  # what a float still counts by ones; a thousand years of a million requests/s are less
_NO_MAP: Final = "Unknown map identifier"
_STOPPED: Final = 0  # srv_op_state: 0 stopped, 1 starting, 2 running, 3 stopping
_CHECK_RUNS: Final = 0x01  # of srv_check_state
_CHECK_ENABLED: Final = 0x04
_ANSWERS: Final = ("hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx", "hrsp_other")


class AnswerError(Exception):
    """HAProxy's answer cannot be read; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One server.  `sessions`: requests that it is working on now; `queued`: those that wait for it.  `for_s`: how long it has
    been up or down; `why`: what its last health check found; `is_checking`: one is under way.  `path`: where health checks ask,
    "" for what haproxy.cfg says; `limit`: how many requests it is given at once, 0 for any number.  `answered`: requests since
    HAProxy's start; `errors`: those of them with 5xx, or that the server broke off or did not answer in time, but for tries
    that HAProxy has repeated."""

    name: str
    address: Address
    ordered: Ordered
    is_up: bool
    is_checked: bool
    weight: int
    sessions: int = 0
    queued: int = 0
    for_s: float = 0.0
    why: str = ""
    is_checking: bool = False
    path: str = ""
    limit: int = 0
    answered: int = 0
    errors: int = 0

    @property
    def serves(self) -> bool:
        return self.ordered == "ready" and self.is_up

    @property
    def key(self) -> tuple[str, int]:
        """By name, 2 before 10."""
        digits = re.search(r"[0-9]*\Z", self.name)
        number = digits[0] if digits else ""
        return (self.name.removesuffix(number), int(number or 0))


@dataclass(frozen=True, slots=True)
class Counters:
    """Of the whole backend, since HAProxy's start.  `response_ms`: from the request to the head of its answer, the mean over
    its last 1024 requests; None if there was none yet."""

    requests: int
    errors: int  # each once: answered with 5xx, by an instance or by HAProxy for it, or the answer was broken off
    queued: int  # now
    response_ms: float | None
    retries: int
    redispatches: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A backend at a moment.  `uptime_s`: of the process `pid`.  `has_map`: each slot may have a health path of its own."""

    pid: int
    uptime_s: float
    slots: tuple[Slot, ...]
    counters: Counters
    has_map: bool = False


def address_of(text: str) -> Address | None:
    """The address in HOST:PORT, with an IP for a host; None if it is none that a server can be given.  A guest has chosen the
    text: what comes out holds nothing but the digits, dots and colons of an address."""
    host, _, port = text.rpartition(":")
    if "%" in host:  # a scope may be any text, and this goes into a command
        return None
    try:
        return (str(ipaddress.ip_address(host.strip("[]"))), _port(port))
    except ValueError:
        return None


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65_535:
        raise ValueError(text)
    return port


def paths_of(text: str) -> dict[str, str] | None:
    """The answer to `show map NAME`, by key; None if there is no such map (rule 4).  Raises `AnswerError`."""
    if text.startswith(_NO_MAP):
        return None
    rows = [line.split(" ", 2) for line in text.splitlines() if line]
    if not all(len(row) == 3 for row in rows):
        raise AnswerError(f"no map of health paths: {text.strip()[:200]!r}")
    return {name: path for _, name, path in rows}


def reading(
    info: str, state: str, stat: str, backend: str, prefix: str, paths: Mapping[str, str] | None = None
) -> Reading:
    """The answers to `show info`, `show servers state BACKEND` and `show stat -1 6 -1`: all backends and their servers, for the
    name of one may find a frontend that is called the same.  `paths`: of the health checks.  Raises `AnswerError`."""
    try:
        told = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
        ordered = {row["srv_name"]: row for row in _states(state, backend)}
        measured = {row["svname"]: row for row in _stats(stat, backend)}
        known = paths or {}
        slots = [
            _slot(row, measured[name], known.get(name, "")) for name, row in ordered.items() if _is_slot(name, prefix)
        ]
        return Reading(
            pid=_count(told["Pid"]),
            uptime_s=_seconds(told["Uptime_sec"]),
            slots=tuple(sorted(slots, key=lambda slot: slot.key)),
            counters=_counters(measured["BACKEND"]),
            has_map=paths is not None,
        )
    except KeyError as error:
        raise AnswerError(f"the answer has no {error.args[0]}") from error
    except ValueError as error:
        raise AnswerError(f"the answer has no number where one belongs: {error}") from error


def _is_slot(name: str, prefix: str) -> bool:
    """Rule 6."""
    number = name.removeprefix(prefix)
    return number != name and number.isdecimal()


def _states(text: str, backend: str) -> list[dict[str, str]]:
    """Rule 1 for a format version, a head that begins with `#`, and a line for each server."""
    lines = text.split("\n")
    if len(lines) < 2 or not lines[1].startswith("# "):
        raise AnswerError(f"no state of backend {backend}: {text.strip()[:200]!r}")
    names = lines[1][2:].split()
    rows = [dict(zip(names, line.split(), strict=False)) for line in lines[2:] if line]
    return [row for row in rows if row["be_name"] == backend]


def _stats(text: str, backend: str) -> list[dict[str, str]]:
    if not text.startswith("# "):
        raise AnswerError(f"no statistics of backend {backend}: {text.strip()[:200]!r}")
    try:
        rows = [row for row in csv.DictReader(text[2:].strip().splitlines()) if row["pxname"] == backend]
    except csv.Error as error:
        raise AnswerError(f"no statistics of backend {backend}: {error}") from error
    for row in rows:
        if None in row.values():
            raise AnswerError(f"the statistics of {row['svname']} are cut short")
    return rows


def _slot(state: dict[str, str], stat: dict[str, str], path: str) -> Slot:
    admin, check = _count(state["srv_admin_state"]), _count(state["srv_check_state"])
    host, (answered, errors) = state["srv_addr"], _answers(stat)
    return Slot(
        name=state["srv_name"],
        address=("" if host == "-" else str(ipaddress.ip_address(host)), _count(state["srv_port"])),
        ordered="maint" if admin & MAINT else "drain" if admin & DRAIN else "ready",
        is_up=_count(state["srv_op_state"]) != _STOPPED,
        is_checked=bool(check & _CHECK_ENABLED),
        is_checking=bool(check & _CHECK_RUNS),
        weight=_count(state["srv_uweight"]),
        sessions=_count(stat["scur"]),
        queued=_count(stat["qcur"]),
        for_s=_seconds(stat["lastchg"]),
        why=_why(stat),
        path=path,
        limit=_count(stat["slim"]),
        answered=answered,
        errors=errors,
    )


def _answers(stat: dict[str, str]) -> tuple[int, int]:
    """All, and errors.  eresp: what was broken off; srv_abrt: those of them whose answer had begun, so that it is in hrsp_*."""
    broken = _count(stat["eresp"])
    answered = sum(_count(stat[name]) for name in _ANSWERS)
    return answered + broken - _count(stat["srv_abrt"]), _count(stat["hrsp_5xx"]) + broken


def _why(stat: dict[str, str]) -> str:
    """``L4CON: Connection refused``, ``L7STS 503: Service Unavailable``."""
    status = stat["check_status"].removeprefix("* ")
    code, told = stat["check_code"], stat["last_chk"]
    head = f"{status} {code}" if code and code != "0" else status
    return f"{head}: {told}" if told else head


def _counters(stat: dict[str, str]) -> Counters:
    served = _count(stat["stot"])
    phases = sum(_count(stat[name]) for name in ("qtime", "ctime", "rtime"))
    return Counters(
        requests=served,
        # Not econ and eresp: they count tries, and those that ended a request are among the 5xx or the broken off.
        errors=_count(stat["hrsp_5xx"]) + _count(stat["srv_abrt"]),
        queued=_count(stat["qcur"]),
        response_ms=float(phases) if served else None,
        retries=_count(stat["wretr"]),
        redispatches=_count(stat["wredis"]),
    )


def _count(text: str) -> int:
    """Rule 5; nothing is 0."""
    number = int(text or 0)
    if not 0 <= number <= COUNT_MAX:
        raise ValueError(text[:200])
    return number


def _seconds(text: str) -> float:
    """The same."""
    number = float(text or 0)
    if not math.isfinite(number):
        raise ValueError(text[:200])
    return number
