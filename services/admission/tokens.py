"""Guests' tokens: HMAC-SHA256 of PHOENIX_ID under the guest key, hex; one for each VM, nothing to store (GUEST contract).

Rules
  1. Comparison takes the same time whatever differs.
  2. Key and tokens are never logged.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from services.runtime.exits import Exit, Stop


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

    def is_valid(self, tag: str, token: str) -> bool:
        return hmac.compare_digest(self.of(tag).encode(), token.encode(errors="surrogateescape"))
