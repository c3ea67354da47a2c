"""Which files of the services a call enters: what a reader of that path has to read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


def entered(call: Callable[[], T]) -> tuple[T, list[str]]:
    """What the call returns, and the files by name."""
    files: dict[str, None] = {}

    def enter(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and "/services/" in frame.f_code.co_filename:
            files[frame.f_code.co_filename.rpartition("/services/")[2]] = None

    sys.setprofile(enter)
    try:
        found = call()
    finally:
        sys.setprofile(None)
    return found, sorted(files)
