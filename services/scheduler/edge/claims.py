"""Which users may report the load, and claim how many instances, and the audit of those who did.  The clock is given.

Rules
  1. To claim is to scale.  How many instances a user may claim is a matter of the role (`schemas.signals.claim_max`), which the
     adopted configuration gives to the user that the broker has authenticated; one that is not in it, or in another department,
     has that of a user.
  2. A user's claim of more than that is refused.  Others' claims count for as many as there may be: a plan for more must not
     end when `instances_max` is lowered.
  3. The audit has a claim when it begins, and when its number changes; one that is repeated is the same one.  It has refused
     claims as well.  Both at a bounded rate for each user.
  4. To report the load is to scale as well.  Where the department names its `balancers`, reports of other users do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from schemas.audit import MESSAGE_MAX, TEXT_MAX, AuditRecord, Outcome
from schemas.config import CloudConfig, Role, WebPolicy
from schemas.signals import ClaimSignal, balancers_of, claim_max, may_tell
from schemas.subjects import OPERATORS
from services.runtime.callers.audit import Sparingly

KNOWN_MAX: Final = 4096  # claims in force; as many as 64 users may make


class Claims:
    """Of one department.  `note`: writes a record."""

    def __init__(self, department: str, note: Callable[[AuditRecord], None], now: Callable[[], float]) -> None:
        self._department, self._now = department, now
        self._sparingly = Sparingly(note, now)
        self._known: dict[
            tuple[str, str], tuple[int, float]
        ] = {}  # by user and source: instances, and when that was last claimed

    def untold(self, user: str, config: CloudConfig, policy: WebPolicy) -> str:
        """Why this user's reports of the load do not count; empty if they do (rule 4)."""
        if may_tell(policy, user, "user") or may_tell(policy, user, self._role(user, config)):
            return ""
        return balancers_of(self._department, policy)

    def judged(self, claim: ClaimSignal, user: str, config: CloudConfig, policy: WebPolicy) -> ClaimSignal | str:
        """The claim as it counts, or why it does not (rules 1 and 2)."""
        role = self._role(user, config)
        most = claim_max(policy, role)
        if claim.instances <= most:
            return claim
        if role != "user":
            return msgspec.structs.replace(claim, instances=most)
        return f"it claims {claim.instances} instances; claim_max_user of {self._department} is {most}"

    def granted(self, claim: ClaimSignal, user: str, config: CloudConfig, timeout_s: float) -> None:
        """It counts (rule 3)."""
        key, now = (user, claim.source), self._now()
        known = self._known.get(key)
        if len(self._known) >= KNOWN_MAX:
            self._known = {name: one for name, one in self._known.items() if now < one[1] + timeout_s}
        self._known[key] = claim.instances, now
        if known is None or known[0] != claim.instances or now >= known[1] + timeout_s:
            self._note(claim, user, config, "granted")

    def refused(self, claim: ClaimSignal, user: str, config: CloudConfig, why: str) -> None:
        self._note(claim, user, config, "refused", why)

    def _note(self, claim: ClaimSignal, user: str, config: CloudConfig, outcome: Outcome, why: str = "") -> None:
        def record() -> AuditRecord:
            known = config.user(user)
            return AuditRecord(
                at=self._now(),
                kind="signal.claim",
                outcome=outcome,
                via="nats",
                user=user,
                department=known.department if known is not None else self._department,
                role=known.role if known is not None else "",
                names=(self._department, f"{claim.instances} instances"),
                peer=claim.source[:TEXT_MAX],
                code="denied" if why else "",
                field="instances" if why else None,
                message=why[:MESSAGE_MAX],
            )

        self._sparingly.note(user, record)

    def _role(self, user: str, config: CloudConfig) -> Role:
        known = config.user(user)
        return known.role if known is not None and known.department in (self._department, OPERATORS) else "user"
