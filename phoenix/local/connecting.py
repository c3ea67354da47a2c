"""Connections to programs that may answer anything: the instances of a web department.

Rule: one that sends `100 Continue` (or another word before its answer) without end is broken off.  aiohttp would read it for
ever, and its process do nothing else.  Headers, first lines and chunks' heads have aiohttp's own limits.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage

BEFORE_MAX: Final = 16  # words before an answer: programs send one or two


class _Handler(ResponseHandler):
    """Of aiohttp 3.14: what it has parsed goes through `feed_data`."""

    _before = 0

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        is_before = 100 <= data[0].code < 200 and data[0].code != 101
        self._before = self._before + 1 if is_before else 0
        if self._before <= BEFORE_MAX:
            super().feed_data(data, size)
        elif self.transport is not None:
            self.transport.abort()


def connector(**options: Any) -> aiohttp.TCPConnector:
    """As many connections as are asked for."""
    found = aiohttp.TCPConnector(limit=0, **options)
    found._factory = partial(_Handler, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    return found
