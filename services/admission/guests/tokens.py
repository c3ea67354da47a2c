"""Guests' tokens: HMAC-SHA256 of PHOENIX_ID under the guest key, hex; one for each VM, nothing to store (GUEST contract).

Rules
  1. Comparison takes the same time whatever differs.
  2. Key and tokens are never logged.
  3. The job in a VM has a token of its own, made from the guest's, from which the guest's cannot be made.  It opens launches
     and checkpoints, and nothing of what the VM is given after that job.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from services.domain.exits import Exit, Stop


class GuestTokens:
    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def load(cls, path: Path) -> GuestTokens:
        """Raises `Stop` if there is no usable key."""
        try:
            key = path.read_bytes().strip()
        except OSError as error:
            raise Stop(Exit.USAGE, f"{path}: {error.strerror}; `phoenix up` makes the guests' key") from error
        if not key:
            raise Stop(Exit.USAGE, f"{path}: is empty; delete it and `phoenix up` makes a new one")
        return cls(key)

    def of(self, tag: str) -> str:
        """The token of a PHOENIX_ID."""
        return hmac.new(self._key, tag.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()

    def is_valid(self, tag: str, token: str, job: bool = False) -> bool:
        """True of the guest's token; with `job` of the job's too."""
        told, guests = token.encode(errors="surrogateescape"), self.of(tag)
        is_guests = hmac.compare_digest(guests.encode(), told)
        is_jobs = hmac.compare_digest(job_token(guests).encode(), told)
        return is_guests or (job and is_jobs)


def job_token(guests: str) -> str:
    """The token that a guest hands to its job: SHA-256 of "job:" and its own, hex (`sha256sum` can make it)."""
    return hashlib.sha256(f"job:{guests}".encode()).hexdigest()
