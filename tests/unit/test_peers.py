"""From where a request comes: a proxy's word counts, anybody else's does not."""

from __future__ import annotations

import pytest

from services.runtime.callers.peers import Peers

PROXIES = ("10.0.0.5", "192.168.7.0/24", "fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # it is no proxy: anybody can write that
        ("10.0.0.5", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.5", [], "10.0.0.5"),
        ("10.0.0.5", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # what stands before it the caller wrote
        ("10.0.0.5", ["198.51.100.1, 192.168.7.8"], "198.51.100.1"),  # two proxies
        ("10.0.0.5", ["198.51.100.1", "192.168.7.8"], "198.51.100.1"),  # … each with a line of its own
        ("10.0.0.5", ["192.168.7.8"], "192.168.7.8"),
        ("10.0.0.5", ["unknown"], "10.0.0.5"),
        ("10.0.0.5", ["198.51.100.1, unknown"], "10.0.0.5"),
        ("10.0.0.5", ["198.51.100.1\n"], "198.51.100.1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("", ["198.51.100.1"], ""),  # a socket of this machine
    ],
)
def test_the_callers_address(peer: str, forwarded: list[str], caller: str) -> None:
    assert Peers(PROXIES).told(peer, forwarded) == caller


def test_without_proxies_nobodys_word_counts() -> None:
    assert Peers().told("127.0.0.1", ["198.51.100.1"]) == "127.0.0.1"
