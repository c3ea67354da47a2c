"""Where the nursery is, and so whatever it starts: in the network of jobs, which finds its way back for what serves the
machine's network, a web instance.

1. No job can go there: it has no right to.
2. A resolver on the machine's loopback is none of the jobs'.  In a mount namespace of theirs `/etc/resolv.conf` names another
   address for it, which `pasta` leads there; everything else is the machine's.  A process that replaces the machine's file
   takes ours away with it, so it is looked at before each start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile

CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x20000
MS_BIND, MS_REC_SLAVE = 0x1000, 0x84000
RESOLVER = "169.254.1.1"  # link-local, and so without meaning beyond this machine
RESOLV_CONF = "/etc/resolv.conf"

_libc = ctypes.CDLL(None, use_errno=True)


class JobsPlace:
    """Enters the network namespace of this descriptor.  Raises OSError."""

    def __init__(self, network: int) -> None:
        self._machine = {kind: _namespace(name) for kind, name in ((CLONE_NEWNET, "net"), (CLONE_NEWNS, "mnt"))}
        enter(network, CLONE_NEWNET)
        os.close(network)
        apart = _libc.unshare(CLONE_NEWNS) == 0
        self._mounts = apart and _libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC_SLAVE), None) == 0
        self._seen: tuple[int, int, int] | None = None

    def go_back(self) -> None:
        """To the machine's network, and its files; before rights are dropped.  Raises OSError."""
        for kind, namespace in self._machine.items():
            enter(namespace, kind)

    def look(self) -> None:
        """Rule 2."""
        if self._mounts and _state() != self._seen:
            with contextlib.suppress(OSError):  # jobs resolve no names then, and say so
                _name_another()
            self._seen = _state()


def reached(text: str) -> str:
    """A resolv.conf as jobs need it."""
    lines = text.splitlines()
    return "".join(f"nameserver {RESOLVER}\n" if _is_loopback(line) else f"{line}\n" for line in lines)


def _is_loopback(line: str) -> bool:
    words = line.split()
    return words[:1] == ["nameserver"] and words[1:2] != [] and (words[1].startswith("127.") or words[1] == "::1")


def _name_another() -> None:
    with open(RESOLV_CONF) as file:
        text = file.read()
    ours = reached(text)
    if ours.split() == text.split():
        return
    with tempfile.NamedTemporaryFile("w") as made:
        made.write(ours)
        made.flush()
        os.fchmod(made.fileno(), 0o644)
        _libc.mount(os.fsencode(made.name), RESOLV_CONF.encode(), None, ctypes.c_ulong(MS_BIND), None)


def _state() -> tuple[int, int, int] | None:
    try:
        status = os.stat(RESOLV_CONF)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _namespace(name: str) -> int:
    return os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def enter(namespace: int, kind: int = CLONE_NEWNET) -> None:
    """Move this thread into the namespace of this descriptor.  Raises OSError."""
    if _libc.setns(namespace, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"a namespace cannot be entered: {os.strerror(code)}")
