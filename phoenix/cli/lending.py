"""`phoenix lending`: which hosts are lent to whom, and on what terms, and until when."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any, Final

from phoenix.cli import cloud, printing, tables, units

HELP: Final = """examples:
  phoenix lending           own, held, lent and borrowed hosts; the contracts and what is lent by each
  phoenix lending --json    for a program
What contracts and windows are: docs/reference/lending.md"""
HEAD: Final = ("DEPARTMENT", "OWN", "HELD", "LENT", "BORROWED", "GUARANTEE", "MAXIMUM", "BONUS", "WINDOW")
CONTRACTS: Final = ("LENDER", "BORROWER", "LENT", "AT MOST", "NOTICE", "GRACE", "DEADLINE", "CREDIT", "HOURS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    answer = cloud.find(args).operator().get("/v1/lending")
    printing.answer(answer, render, as_json=args.json)
    return 0


def render(answer: dict[str, Any]) -> str:
    parts = [
        tables.render(HEAD, [_department(one) for one in answer["departments"]], right=" ".join(HEAD[1:-1])),
        _contracts(answer["contracts"]),
        *_sentences(answer),
    ]
    return "\n\n".join(part for part in parts if part)


def _department(one: dict[str, Any]) -> tuple[str, ...]:
    numbers = (str(one[key]) for key in ("own", "held", "lent", "borrowed", "guarantee"))
    maximum = "-" if one["maximum"] is None else str(one["maximum"])
    bonus = f"+{one['bonus'] * 100:.1f} %" if one["bonus"] else "-"
    until = f" (until {_when(one['until'])})" if one["window"] else ""
    return (str(one["department"]), *numbers, maximum, bonus, f"{one['window'] or '-'}{until}")


def _contracts(contracts: list[dict[str, Any]]) -> str:
    if not contracts:
        return "no contracts: idle hosts are lent to any department that can use them, and come back at once"
    rows = [
        (
            str(one["lender"]),
            str(one["borrower"]),
            f"{one['lent']} ({one['over']} over)" if one["over"] else str(one["lent"]),
            "all" if one["hosts"] is None else str(one["hosts"]),
            _span(one["notice_s"]),
            _span(one["grace_s"]),
            "when idle" if one["deadline_s"] is None else _span(one["deadline_s"]),
            f"{one['credit']:g}",
            _hours(one),
        )
        for one in contracts
    ]
    return tables.render(CONTRACTS, rows, right="LENT")


def _span(seconds: float) -> str:
    return units.span(seconds) if seconds >= 60 else f"{seconds:g}s"


def _hours(one: dict[str, Any]) -> str:
    if not one["windows"]:
        return "always"
    zone = "" if one["windows_zone"] == "UTC" else f" {one['windows_zone']}"
    return f"{', '.join(one['windows'])}{zone} ({'now' if one['holds'] else 'not now'})"


def _sentences(answer: dict[str, Any]) -> list[str]:
    told = [
        f"{one['borrower']} has {units.count(one['hosts'], 'host')} of {one['lender'] or 'no department'}'s"
        for one in answer["loans"]
    ]
    lines = ["; ".join(told) + "."] if told else []
    if answer["changes_at"] is not None:
        lines.append(f"Hours change at {_when(answer['changes_at'])} UTC.")
    return lines


def _when(at: str) -> str:
    return datetime.fromisoformat(at).strftime("%a %H:%M")
