"""How a request is refused."""

from __future__ import annotations

from schemas.problems import Code, Problem, problem


class Fault(Exception):
    """A refused read: HTTP status, code, message, field; `oldest`, `retry_after_s`: as a problem has them.  `hides`: what is
    there all the same, and whose, which only the audit records."""

    hides: str = ""

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        field: str | None = None,
        oldest: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field, self.oldest = status, code, field, oldest
        self.retry_after_s = retry_after_s

    def problem(self) -> Problem:
        """As the caller reads it."""
        return problem(
            self.code,
            str(self),
            self.field,
            status=self.status,
            oldest=self.oldest,
            retry_after_s=self.retry_after_s,
        )
