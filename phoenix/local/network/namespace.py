"""A network namespace for the jobs of this machine: what listens on the machine they do not reach, nor does anybody on the
machine reach what they listen to.

Theory of operation
  A socket belongs for ever to the namespace in which it was made.  So a process that may enter the jobs' namespace for a moment
  can bring back a listening socket from there, and serve jobs without leaving the machine's network: that is how they reach the
  doors (`beside`), at the addresses that these have on the machine.
  One namespace serves all jobs of a cloud, as one machine would: VMs of a job talk over 127.0.0.1, and a start pays for no new
  one.  It has a user namespace of its own, so that what gives it a way out (`pasta`) has rights over it, and none over the
  machine.

Rules
  1. It is there while a process is in it or a descriptor is held: it needs no name, and no clearing up.
  2. A process that enters comes back before anything else happens: nothing is awaited inside.  Only root may enter, so no job
     can leave.
  3. An address that a door has on the machine is one of the namespace's loopback: it is reached whatever the way out is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from phoenix.local.process.network import CLONE_NEWNET, enter

CLONE_NEWUSER: Final = 0x10000000
NOBODY: Final = 65534  # outside, who is root inside
PING: Final = Path("/proc/sys/net/ipv4/ping_group_range")  # of the namespace of who reads it
ROUTES: Final = Path("/proc/thread-self/net")
_LOOPBACK: Final = "lo"
_NEW_LINK, _NEW_ADDRESS = 16, 20  # rtnetlink(7)
_REQUEST, _ACKNOWLEDGE, _CREATE, _EXCLUSIVE = 1, 4, 0x400, 0x200
_UP: Final = 1
_LOCAL: Final = 2  # an attribute: the address
_AT_ONCE: Final = 2  # no other interface there could have it: it need not be looked for (IFA_F_NODAD)
_FULL: Final = {errno.ENOSPC: "user.max_user_namespaces and user.max_net_namespaces leave none"}
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """There is no such network to be had here; the message says why."""


class JobsNetwork:
    """The namespace, from now until `close`.  Raises `NetworkError`."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as held:
            try:
                self._machine = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                held.callback(os.close, self._machine)
                enter(self._machine)  # who may not come back must not go
                self.user, self.net = _made()
                held.callback(os.close, self.user)
                held.callback(os.close, self.net)
                self._begin()
            except OSError as error:
                raise NetworkError(f"the kernel refuses one ({_FULL.get(error.errno or 0, error.strerror)})") from error
            self._held = held.pop_all()

    def _begin(self) -> None:
        """Who may ping on the machine may here; the loopback is up."""
        with contextlib.suppress(OSError):  # not every machine has that file, or lets it be written
            ping = PING.read_text()
            with self.inside():
                PING.write_text(ping)
        with self.inside():
            _up()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Rule 2: for this thread alone, for as long as the block."""
        enter(self.net)
        try:
            yield
        finally:
            enter(self._machine)

    def beside(self, listener: socket.socket, backlog: int) -> socket.socket:
        """A second socket that listens where `listener` does, for jobs.  Raises OSError."""
        address = listener.getsockname()
        self.have(address[0])
        with self.inside():
            second = socket.socket(listener.family, socket.SOCK_STREAM)
            try:
                second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if listener.family == socket.AF_INET6:
                    alone = listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
                    second.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
                second.bind(address)
                second.listen(backlog)
            except OSError:
                second.close()
                raise
        return second

    def have(self, host: str) -> None:
        """Rule 3; nothing happens if it is a name, or an address that is not this machine's.  Raises OSError."""
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(host.partition("%")[0])
            if not address.is_loopback and not address.is_unspecified and _is_ours(host):
                with self.inside():
                    _have(address)

    def has_way_out(self) -> bool:
        """Whether there is a default route, of either kind."""
        with self.inside():
            routes, routes_v6 = (_lines(ROUTES / name) for name in ("route", "ipv6_route"))
        default_v6 = any(line[:2] == ["0" * 32, "00"] and line[-1] != _LOOPBACK for line in routes_v6)
        return default_v6 or any(line[1] == "0" * 8 for line in routes)

    def close(self) -> None:
        """What is in it keeps it (rule 1)."""
        self._held.close()


def _made() -> tuple[int, int]:
    """A new user namespace and a new network namespace that belongs to it.  Raises OSError.  Who makes a user namespace cannot
    come back, so a process does that has nothing else to do."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            _unshare(theirs)
        try:
            if code := ours.recv(1)[0]:
                raise OSError(code, os.strerror(code))
            for kind in ("uid", "gid"):
                Path(f"/proc/{pid}/{kind}_map").write_text(f"0 {NOBODY} 1")
            user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            return user, os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            ours.send(b".")
            os.waitpid(pid, 0)


def _unshare(told: socket.socket) -> None:
    """In the child, which ends when it hears of it."""
    try:
        failed = _libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0
        told.send(bytes([ctypes.get_errno() if failed else 0]))
        told.recv(1)
    finally:
        os._exit(0)


def _is_ours(host: str) -> bool:
    """Whether a process could listen there."""
    for family, kind, protocol, _, place in socket.getaddrinfo(
        host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    ):
        with socket.socket(family, kind, protocol) as probe, contextlib.suppress(OSError):
            probe.bind(place)
            return True
    return False


def _up() -> None:
    index = socket.if_nametoindex(_LOOPBACK)
    _ask_kernel(_NEW_LINK, 0, struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, _UP, _UP))


def _have(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    family, flags = (socket.AF_INET, 0) if address.version == 4 else (socket.AF_INET6, _AT_ONCE)
    body = struct.pack("=BBBBI", family, address.max_prefixlen, flags, 0, socket.if_nametoindex(_LOOPBACK))
    body += struct.pack("=HH", 4 + len(address.packed), _LOCAL) + address.packed
    try:
        _ask_kernel(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body)
    except FileExistsError:  # of another door
        return


def _ask_kernel(kind: int, flags: int, body: bytes) -> None:
    """rtnetlink(7), of the namespace that this thread is in.  Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        size = struct.calcsize("=IHHII") + len(body)
        kernel.send(struct.pack("=IHHII", size, kind, _REQUEST | _ACKNOWLEDGE | flags, 1, 0) + body)
        (code,) = struct.unpack_from("=i", kernel.recv(4096), struct.calcsize("=IHHII"))
    if code:
        raise OSError(-code, os.strerror(-code))


def _lines(file: Path) -> list[list[str]]:
    try:
        return [line.split() for line in file.read_text().splitlines()]
    except FileNotFoundError:  # a kernel without IPv6
        return []
