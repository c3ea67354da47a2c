"""A finding of the doctor: how bad, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Level = Literal["ok", "warn", "fail"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Finding:
    """`check`: the subject, one word or two; `found`: a sentence without a full stop; `fix`: empty if nothing is to be done."""

    check: str
    level: Level
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def ok(check: str, found: str) -> Finding:
    return Finding(check, "ok", found)


def warn(check: str, found: str, fix: str) -> Finding:
    return Finding(check, "warn", found, fix)


def fail(check: str, found: str, fix: str) -> Finding:
    return Finding(check, "fail", found, fix)


def worst(findings: list[Finding]) -> Level:
    return max((x.level for x in findings), key=LEVELS.index, default="ok")


def table(findings: list[Finding]) -> str:
    """For people: a line for what was found, one below it for what to do."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<5} {finding.check:<12} {finding.found}")
        if finding.fix:
            lines.append(f"{'':<18} -> {finding.fix}")
    return "\n".join(lines)
