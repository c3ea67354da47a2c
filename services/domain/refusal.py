"""A request that is not granted: what is raised wherever a request is judged, in pure modules as well."""

from __future__ import annotations

from typing import Final, Literal, Self, TypeAlias, cast, get_args

from schemas.problems import TOO_LARGE, LeaseRefusal, Problem, problem

RefusalCode: TypeAlias = Literal["invalid", "unknown", "denied", "conflict", "limit", "unavailable"]

_SIZES: Final = ("script", "inputs", "config")  # a limit on these is one of size: waiting does not help


class Refused(Exception):
    """A request that is not granted.  `field`: the part of the request that is wrong, if one is; `lease`: of a lease that
    collides, with what and what would be granted instead; `retry_after_s`: when the same request may be granted, if that is
    known."""

    def __init__(
        self,
        code: RefusalCode,
        message: str,
        field: str | None = None,
        lease: LeaseRefusal | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.lease = lease
        self.retry_after_s = retry_after_s

    @classmethod
    def of(cls, refusal: Problem) -> Self:
        """Of a part that was refused, raised for the whole."""
        code = refusal.code if refusal.code in get_args(RefusalCode) else "unavailable"
        return cls(cast("RefusalCode", code), refusal.detail, refusal.field, refusal.lease, refusal.retry_after_s)

    def problem(self, status: int | None = None) -> Problem:
        """As the caller reads it.  `status`: of HTTP, where it is not the usual one of the code."""
        if status is None and self.code == "limit" and self.field in _SIZES:
            status = TOO_LARGE
        return problem(
            self.code, self.message, self.field, status=status, lease=self.lease, retry_after_s=self.retry_after_s
        )
