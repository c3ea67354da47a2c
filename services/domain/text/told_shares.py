"""Why a department may keep fewer hosts than it wants (`shortage`, `withheld`): `phoenix why` and `phoenix departments`.

4 of the 16 hosts are kept from web by the guarantees of hpc; news goes first and may keep 6; blog may keep 2 by its
guarantee; the rest is shared by weight (2 here): mail 2 (weight 1)
by contract hpc lends it 2 hosts at most, which keeps 4 from it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.units import count
from services.domain.text.params import Params

Share = tuple[str, str, str, str]  # department, hosts, rule, weight


def of_reason(p: Params) -> str:
    """`: …`, or nothing if it is something other that is short."""
    kept = (p["kept"], p["usable"], p.names("kept_by")) if "kept" in p else None
    listed = p.get("shares")
    texts = [str(text).split(":") for text in listed] if isinstance(listed, list | tuple) else []
    shares = [(t[0], t[1], t[2], t[3]) for t in texts if len(t) == 4]
    if kept is None and not shares and "usable" in p:
        return _on_the_way(p)
    weight = p.get("weight", 1.0)
    told = _told(kept, shares, f"{weight:g}" if isinstance(weight, int | float) else str(weight), _contracts(p))
    return f": {told}" if told else ""


def _on_the_way(p: Params) -> str:
    """Neither guarantees nor other web departments have them: the cluster has no more, or they are still to be given."""
    usable, held = p.number("usable"), p.number("held")
    if held >= usable:
        return f": it has all {usable} that can be used"
    return f": {usable - held} of the {usable} hosts that can be used are not its own yet"


def of_row(row: Mapping[str, Any]) -> str:
    """The same of a department's row; empty if it is something other that is short."""
    known, others = row.get("kept_by_guarantees"), row.get("shares_of_others") or ()
    kept = (known["hosts"], known["usable"], ", ".join(known["departments"])) if known else None
    shares = [(one["department"], str(one["hosts"]), one["rule"], f"{one['weight']:g}") for one in others]
    contracts = [
        by_contract(one["lender"], one["hosts"], one["most"], one["closed"])
        for one in row.get("withheld_by_contracts") or ()
    ]
    return _told(kept, shares, f"{row.get('weight') or 1:g}", contracts)


def by_contract(lender: str, hosts: int, most: int, closed: bool) -> str:
    """What a contract does not lend (`sharing.withheld`)."""
    lends = f"{count(most, 'host')} at most" if most else f"no host{' at this hour' if closed else ''}"
    return f"by contract {lender} lends it {lends}, which keeps {hosts} from it"


def withheld(p: Params) -> str:
    """`; by contract …` of a reason of a job that waits, or nothing."""
    return "".join(f"; {text}" for text in _contracts(p))


def lenders(p: Params) -> list[str]:
    """Who keeps hosts from it by contract."""
    listed = p.get("contracts")
    return [str(text).split(":")[0] for text in listed] if isinstance(listed, list | tuple) else []


def _contracts(p: Params) -> list[str]:
    listed = p.get("contracts")
    texts = [str(text).split(":") for text in listed] if isinstance(listed, list | tuple) else []
    return [by_contract(t[0], int(t[1]), int(t[2]), t[3] == "1") for t in texts if len(t) == 4]


def _told(
    kept: tuple[object, object, str] | None, shares: Sequence[Share], weight: str, contracts: Sequence[str]
) -> str:
    words = [f"{kept[0]} of the {kept[1]} hosts are kept from web by the guarantees of {kept[2]}"] if kept else []
    words += [f"{name} goes first and may keep {hosts}" for name, hosts, rule, _ in shares if rule == "priority"]
    words += [f"{name} may keep {hosts} by its guarantee" for name, hosts, rule, _ in shares if rule == "guarantee"]
    equals = ", ".join(f"{name} {hosts} (weight {its})" for name, hosts, rule, its in shares if rule == "weight")
    words += [f"the rest is shared by weight ({weight} here): {equals}"] if equals else []
    return "; ".join([*words, *contracts])
