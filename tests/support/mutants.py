"""Custody with one rule less, for tests that demand that it is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.domain.custody.fold import TABLE, Rule


def without_precondition(kind: type, instead: Callable[..., Any] | None = None) -> dict[type, Rule]:
    """The table, without the precondition of that fact, or with another one."""
    return {**TABLE, kind: TABLE[kind]._replace(valid=instead)}
