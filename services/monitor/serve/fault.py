"""How a request is refused."""

from __future__ import annotations


class Fault(Exception):
    """A refused read: HTTP status, code, message, field."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field
