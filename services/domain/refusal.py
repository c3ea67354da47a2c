"""A request that is not granted: what is raised wherever a request is judged, in pure modules as well."""

from __future__ import annotations

from typing import Literal, TypeAlias

from schemas.requests import LeaseRefusal

RefusalCode: TypeAlias = Literal["invalid", "unknown", "denied", "conflict", "limit", "unavailable"]


class Refused(Exception):
    """A request that is not granted.  `field`: the part of the request that is wrong, if one is; `lease`: of a lease that
    collides, with what and what would be granted instead."""

    def __init__(
        self, code: RefusalCode, message: str, field: str | None = None, lease: LeaseRefusal | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.lease = lease
