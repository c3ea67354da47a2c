"""Waiting for what nothing announces: asked again and again, with a deadline that a busy machine keeps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final

DEADLINE_S: Final = 30.0
ASK_S: Final = 0.01


async def until(true: Callable[[], Any], what: str = "", deadline_s: float = DEADLINE_S) -> Any:
    """What `true()` (which may be a coroutine) gives once it is true.  AssertionError that names `what`, else the function."""
    try:
        async with asyncio.timeout(deadline_s):
            while not (found := await _asked(true)):  # noqa: ASYNC110
                await asyncio.sleep(ASK_S)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {deadline_s:g} s: {what or true.__name__}") from None


async def _asked(true: Callable[[], Any]) -> Any:
    found = true()
    return await found if inspect.isawaitable(found) else found
