"""From where a browser asks: what keeps another site's page from reading here with a user's cookie.

Rules
  1. The `Host` that a request names is an address (which no other site's name can be), a name of this machine, or the name in
     `[monitor] url`.  Anything else is refused: a site whose name is made to lead here is not us (DNS rebinding).
  2. A cookie counts only for a page of ours.  Browsers report that (`Sec-Fetch-Site`, which a page cannot forge), where the
     connection is theirs to trust; else an `Origin` must be ours.  The cookie itself is `SameSite=Strict`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from services.monitor.http.http_error import Fault

_OWN: Final = ("localhost", "ip6-localhost")


class Hosts:
    """The names that this server goes by.  `url`: `[monitor] url`."""

    def __init__(self, url: str) -> None:
        self.name = (urlsplit(url).hostname or "").lower()

    def knows(self, host: str) -> bool:
        """Rule 1.  `host`: of the header, perhaps with a port."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower().rstrip(".")
        except ValueError:
            return False
        if name in (*_OWN, self.name) or name.endswith(".localhost"):
            return bool(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    @web.middleware
    async def guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        host = request.headers.get("Host", "")
        if host and not self.knows(host):  # without one: no browser
            right = "name it in [monitor] url, or use the address"
            raise Fault(421, "denied", f"Host: this server does not go by the name {host[:100]!r}; {right}")
        return await handler(request)


def is_own_page(request: web.Request) -> bool:
    """Rule 2."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("Host")
