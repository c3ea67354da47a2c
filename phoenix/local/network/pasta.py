"""The way out: `pasta` between the jobs' network namespace and the machine's network, with user-mode sockets and not with
routes, addresses or rules of ours on the machine.

    python -m phoenix.local.network.pasta NET USER PROGRAM      NET, USER: descriptors of the namespaces

What a job sends becomes a connection of the user `nobody` on this machine: TCP, UDP and ping go where the machine's own would;
what goes to `RESOLVER`, to the machine's.
Nothing from outside is let in, and no address leads to the machine's loopback.

Rules
  1. It executes `pasta`, so that the process which the supervisor keeps is `pasta` itself.
  2. `pasta` runs as the user `nobody` on the machine, without any right; root in the jobs' user namespace alone.
  3. What the user `nobody` may not open it finds in a mount namespace of its own: the namespace of the network, the device from
     which a network interface is made (0600 on machines without udev), and the program, in a checkout that may be closed to
     others.
  4. It ends with the supervisor.  Changing the user clears what the supervisor has asked of the kernel, so it is asked again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Final, NoReturn

from phoenix.local.network.namespace import CLONE_NEWUSER
from phoenix.local.process.network import RESOLVER, enter

CLONE_NEWNS: Final = 0x20000
MS_BIND_REC: Final = 0x5000
MS_REC_SLAVE: Final = 0x84000
PR_SET_PDEATHSIG: Final = 1
SEEN: Final = Path("/mnt")  # something else only in our mount namespace
TUN: Final = Path("/dev/net/tun")
# No mapping of the gateway: its address would be the machine's loopback.  No port of either side is the other's.
WORDS: Final = ("--foreground", "--quiet", "--config-net", "--no-map-gw", "--no-netns-quit")
PORTS: Final = ("-t", "none", "-u", "none", "-T", "none", "-U", "none")
_libc = ctypes.CDLL(None, use_errno=True)


def run(net: int, user: int, program: Path) -> NoReturn:
    """Become `pasta`.  Raises OSError."""
    parent = os.getppid()
    found = _shown(net, program)
    enter(user, CLONE_NEWUSER)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's; pasta 2023 takes an ignored SIGPIPE for an error
        signal.signal(number, signal.SIG_DFL)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    os.chdir("/")
    os.execv(found, [str(found), *WORDS, *PORTS, "--dns-forward", RESOLVER, "--netns", str(SEEN / "net")])  # noqa: S606


def _shown(net: int, program: Path) -> Path:
    """Rule 3: where the program is."""
    if _libc.unshare(CLONE_NEWNS) != 0:
        raise _error("there is no mount namespace for it")
    _mount(None, Path("/"), MS_REC_SLAVE)
    place = os.open(program.parents[1], os.O_PATH)  # it may be below what we cover
    if _libc.mount(b"tmpfs", os.fsencode(SEEN), b"tmpfs", 0, b"mode=755") != 0:
        raise _error(f"nothing can be mounted at {SEEN}")
    (SEEN / "net").touch()
    _mount(net, SEEN / "net", MS_BIND_REC)
    if TUN.exists():
        os.mknod(SEEN / "tun", stat.S_IFCHR | 0o600, TUN.stat().st_rdev)
        (SEEN / "tun").chmod(0o666)
        _mount_path(SEEN / "tun", TUN)
    (SEEN / "program").mkdir()
    _mount(place, SEEN / "program", MS_BIND_REC)
    return SEEN / "program" / program.relative_to(program.parents[1])


def _mount(source: int | None, target: Path, flags: int) -> None:
    """A descriptor's file, at another place too."""
    name = os.fsencode(f"/proc/self/fd/{source}") if source is not None else None
    if _libc.mount(name, os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise _error(f"{target} cannot be mounted")


def _error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")


def _mount_path(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_PATH)
    _mount(descriptor, target, MS_BIND_REC)
    os.close(descriptor)


if __name__ == "__main__":
    try:
        run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    except OSError as error:
        sys.exit(f"pasta cannot be started: {error}")
