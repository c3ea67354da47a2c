"""How a request is refused."""

from __future__ import annotations


class Fault(Exception):
    """A refused read: HTTP status, code, message, field; `more`: what else the error says, for programs.  `hides`: what is
    there all the same, and whose, which only the audit records."""

    hides: str = ""

    def __init__(self, status: int, code: str, message: str, field: str | None = None, **more: int) -> None:
        super().__init__(message)
        self.status, self.code, self.field, self.more = status, code, field, more
