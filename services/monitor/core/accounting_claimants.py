"""For whom a department has to give hosts back, as far as the notice tells (`accounting`, rule 5)."""

from __future__ import annotations

from typing import Final

from schemas.config import CloudConfig
from schemas.reasons import Code, Reason
from services.domain.custody.fold import Custody

_NAMED: Final = {Code.WEB_DEMAND: "department", Code.WEB_SHARE: "department", Code.LENDING: "lender"}


def claimant(custody: Custody, config: CloudConfig | None, dept: str, reason: Reason) -> str:
    """The department that claims them; where several may, or none is named, the reason in brackets."""
    named = reason.params.get(_NAMED.get(reason.code, ""))
    if named:
        return str(named)
    short = _short(custody, config, dept) if reason.code is Code.BATCH_SHARE else []
    return short[0] if len(short) == 1 else f"({reason.code.value})"


def _short(custody: Custody, config: CloudConfig | None, dept: str) -> list[str]:
    """The other batch departments that want more than they hold: if it is one, it is who has the share."""
    demands, known = custody.state.demands, config.departments if config is not None else ()
    others = [d.name for d in known if d.kind == "batch" and d.name != dept]
    return [name for name in others if demands.get(name, 0) > custody.held(name)]
