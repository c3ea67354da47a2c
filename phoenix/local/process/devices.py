"""The GPUs of a job: the device nodes that it can open, and the variables that name them.

Theory of operation.  The machine's nodes are not touched: their modes belong to the driver of the card, which puts them back.
A child is given a mount namespace of its own, in which each node of a GPU is replaced: one that the job has by a node of the
same device that belongs to the job's user, every other by a file that only root can open.  The job can neither undo that,
for it has no privilege and mounts that it inherits stay locked in a user namespace of its own, nor make a node.

1. It takes root.  Without, every job has the hypervisor's user, and can open what that user can.
2. Only the nodes that are configured are kept apart: another node of the same card, or a control node such as
   /dev/nvidiactl, is as on the machine.
3. CUDA numbers the cards that it can open: where the others are closed they are counted from 0, as Slurm does with
   `ConstrainDevices=yes`; else by their place in the configuration.  A job without a GPU sees none.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phoenix.local.driver import Gpu  # not while it runs: the nursery imports this file, and is small

CLONE_NEWNS, MS_BIND, MS_REC_SLAVE, MNT_DETACH = 0x20000, 0x1000, 0x84000, 2

_libc = ctypes.CDLL(None, use_errno=True)


def visible(gpus: Sequence[Gpu], nodes: Sequence[str], *, fenced: bool) -> dict[str, str]:
    """The variables of what runs in a VM with these GPUs; `nodes`: of the machine.  None on a machine without GPUs."""
    if not nodes and not gpus:
        return {}
    numbers = [str(index if fenced else gpu.index) for index, gpu in enumerate(gpus)]
    own = ",".join(gpu.node for gpu in gpus)
    return {"CUDA_VISIBLE_DEVICES": ",".join(numbers), "PHOENIX_GPU_DEVICES": own, "PHOENIX_GPUS": str(len(gpus))}


def fence(room: str, devices: Mapping[str, bool], uid: int) -> None:
    """In the child, as root: give it `devices` (node -> whether it may open it), for good.  `room`: a directory in which none
    of them is.  Raises OSError."""
    _check(_libc.unshare(CLONE_NEWNS), "no namespace for its GPUs")
    _mount(None, "/", None, MS_REC_SLAVE)
    _mount("gpus", room, "tmpfs", 0)  # only until its files are mounted elsewhere
    for number, (node, given) in enumerate(devices.items()):
        own = f"{room}/{number}"
        if given:
            os.mknod(own, stat.S_IFCHR | 0o600, os.stat(node).st_rdev)
            os.chown(own, uid, uid)
        else:
            os.close(os.open(own, os.O_CREAT | os.O_WRONLY, 0))
        _mount(own, node, None, MS_BIND)
    _check(_libc.umount2(room.encode(), MNT_DETACH), room)


def _mount(what: str | None, where: str, kind: str | None, flags: int) -> None:
    words = [None if word is None else word.encode() for word in (what, where, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), None), where)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
