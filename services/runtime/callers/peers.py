"""The address of an HTTP request, also behind trusted proxies (`[http] proxies`).

Rules
  1. What a peer reports of others counts only if the peer is a configured proxy: any client can write `X-Forwarded-For`.
  2. Read from its end, the first address that is no proxy is the caller: what stands before it, the caller wrote.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

from aiohttp import web

FORWARDED: Final = "X-Forwarded-For"
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Peers:
    """`proxies`: addresses and networks (10.0.0.0/24)."""

    def __init__(self, proxies: Sequence[str] = ()) -> None:
        self._proxies: tuple[_Network, ...] = tuple(ipaddress.ip_network(text, strict=False) for text in proxies)

    def of(self, request: web.Request) -> str:
        """The caller's address; empty if it has none (a socket of this machine)."""
        return self.told(request.remote or "", request.headers.getall(FORWARDED, []))

    def told(self, peer: str, forwarded: Sequence[str]) -> str:
        chain = [part.strip() for line in forwarded for part in line.split(",")]
        while chain and self.is_proxy(peer):
            told = chain.pop()
            if not _is_address(told):
                break
            peer = told
        return peer

    def is_proxy(self, text: str) -> bool:
        """Whether that address is a configured proxy's."""
        if not _is_address(text):
            return False
        address = ipaddress.ip_address(text)
        return any(address in network for network in self._proxies)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
