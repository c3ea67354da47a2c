"""Times, sizes and counts as people type them; as people read them: `domain.text.units`.

Rules
  1. A time is Slurm's (`90` minutes, `1:30` minutes:seconds, `2:00:00`, `1-12`, `1-12:30`, `1-12:30:15`), with minutes and
     seconds below 60 behind a colon, or a number with a unit: `90s`, `15m`, `2h`, `1d`, `1h30m`.
  2. Memory is Slurm's: a number is MiB; suffixes K, M, G, T; 0 of a node is all of it, and of a core nothing.
  3. Instants are read as they are shown (`domain.text.units`), with another offset if one is written.
     `14:30` is the next time that it is so late (UTC), `+10m` is in ten minutes.
  4. A signal is Slurm's: a name or a number, `@` seconds before the time limit, `B:` for the script alone.
"""

from __future__ import annotations

import re
import signal
from datetime import UTC, datetime, timedelta
from typing import Final

from schemas.units import UTC_S_MAX
from schemas.units import count as count
from schemas.units import exact as exact
from schemas.units import iso as iso
from schemas.units import seconds as seconds
from schemas.units import some as some
from schemas.units import span as span


def second(instant: str | None) -> str:
    """A time of an answer, to the second; empty without one."""
    return iso(seconds(instant)) or ""


def when(instant: float | None) -> str | None:
    """UTC seconds as a request has them; None stays None."""
    return None if instant is None else exact(instant)


_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SUFFIXED: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}\Z")
_SIGNAL: Final = re.compile(r"(?P<who>B:)?(?:(?P<number>\d+)|(?P<name>[A-Za-z][A-Za-z0-9+-]*))(?:@(?P<before>\d+))?\Z")
SIGNAL_BEFORE_S: Final = 60.0  # Slurm's
SIGNAL_BEFORE_MAX_S: Final = 65535.0  # Slurm's
TIME_MAX_S: Final = 100_000 * 86400.0  # 273 years: sums with it stay times that can be written
MEMORY_MAX_MB: Final = 1 << 26  # 64 TiB: no more can be asked for
_MEBIBYTES: Final = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024.0}
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)b?\Z", re.IGNORECASE)


class TooLongError(ValueError):
    """A time, but no such time is meant."""


def parse_time_s(text: str) -> float:
    """Seconds of a time limit.  ValueError says what would be right."""
    found = _time_s(text)
    if found > TIME_MAX_S:
        raise TooLongError(f"{text!r} is too long: at most {TIME_MAX_S / 86400:.0f}d")
    return found


def _time_s(text: str) -> float:
    word = text.strip().lower()
    if _SUFFIXED.match(word) and _SUFFIXED.sub("", word) == "":
        return sum(float(number) * _SECONDS[unit] for number, unit in _SUFFIXED.findall(word))
    days, dash, rest = word.partition("-")
    parts = (rest if dash else word).split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3 or (dash and not days.isdecimal()):
        raise ValueError(f"{text!r} is no time: write minutes, M:SS, H:MM:SS, D-HH:MM, or 90s, 15m, 2h, 1d")
    numbers = [float(part) for part in parts]
    if dash or len(numbers) == 3:  # [days-]hours[:minutes[:seconds]]
        hours, minutes, seconds = (*numbers, 0.0, 0.0)[:3]
    else:
        hours, minutes, seconds = 0.0, *(*numbers, 0.0)[:2]
    total = float(days if dash else 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    if any(number >= 60 for number in numbers[1:]):
        wrong = f"{text!r} is no time: minutes and seconds behind a colon are at most 59"
        raise ValueError(f"{wrong}: write {total:.0f}s, or M:SS, H:MM:SS, D-HH:MM")
    return total


def parse_instant(text: str, now: float) -> float:
    """UTC seconds of an instant (rule 3).  ValueError says what would be right."""
    word = text.strip()
    if word.startswith("+"):
        return now + parse_time_s(word[1:])
    if word.startswith("-"):
        raise ValueError(f"{text!r} has passed: write a time to come, such as +10m or 14:30 (UTC)")
    try:
        if _CLOCK.match(word):
            return _next(word, now)
        return date_s(word)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2026-02-03T04:05:06Z, 14:30 (UTC), or +10m") from None


def date_s(text: str) -> float:
    """UTC seconds of a date as ISO 8601 writes it.  ValueError also for one that has no year in UTC, or none once its second is
    rounded up."""
    found = datetime.fromisoformat(text)
    try:
        instant = (found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        raise ValueError(text) from None
    if instant > UTC_S_MAX:
        raise ValueError(text)
    return instant


def is_clock(text: str) -> bool:
    """True of a time of no day: 14:30."""
    return _CLOCK.match(text.strip()) is not None


def day(instant: float) -> str:
    """The day in UTC, as ISO 8601 writes it."""
    return datetime.fromtimestamp(instant, UTC).date().isoformat()


def _next(clock: str, now: float) -> float:
    """When it is next so late."""
    today = datetime.fromtimestamp(now, UTC)
    found = datetime.combine(today.date(), datetime.strptime(clock, "%H:%M").time(), UTC)
    return (found if found.timestamp() > now else found + timedelta(days=1)).timestamp()


def parse_signal(text: str) -> dict[str, int | float | bool]:
    """sbatch's --signal, as the door takes it.  ValueError says what would be right."""
    match = _SIGNAL.match(text.strip())
    name = (match["name"] or "").upper() if match else ""
    names = {each.name.removeprefix("SIG"): int(each) for each in signal.Signals}
    number = int(match["number"][:9]) if match and match["number"] else names.get(name.removeprefix("SIG"), 0)
    before_s = float(match["before"] or SIGNAL_BEFORE_S) if match else -1.0
    if match is None or not 1 <= number <= 64 or before_s > SIGNAL_BEFORE_MAX_S:
        raise ValueError(f"{text!r} is no signal: write USR1, USR1@120 (seconds before the time limit), or B:USR1@120")
    return {"number": number, "before_s": before_s, "script": match["who"] is not None}


def parse_memory_mb(text: str) -> int:
    """MiB, rounded up.  ValueError says what would be right."""
    match = _MEMORY.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no amount of memory: write MiB as a number, or 512M, 4G")
    exact = float(match.group(1)) * _MEBIBYTES[match.group(2).lower() or "m"]
    if exact > MEMORY_MAX_MB:
        raise ValueError(f"{text!r} is too much memory: at most {MEMORY_MAX_MB >> 20}T")
    return int(exact) + (exact > int(exact))
