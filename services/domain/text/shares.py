"""Why a department may keep fewer hosts than it wants, of its row in `phoenix departments`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.words import by_contract, shares


def of_row(row: Mapping[str, Any]) -> str:
    """Empty if it is something other that is short."""
    known, others = row.get("kept_by_guarantees"), row.get("shares_of_others") or ()
    kept = (known["hosts"], known["usable"], ", ".join(known["departments"])) if known else None
    parts = [(one["department"], str(one["hosts"]), one["rule"], f"{one['weight']:g}") for one in others]
    contracts = [
        by_contract(one["lender"], one["hosts"], one["most"], one["closed"])
        for one in row.get("withheld_by_contracts") or ()
    ]
    return shares(kept, parts, f"{row.get('weight') or 1:g}", contracts)
