"""What survives a restart, in the data directory.

1. `ids`: the highest VM id that may have been given, raised in blocks of `ID_BLOCK` before any of them is used, and
   synced. After a kill -9 ids jump by at most a block; none is ever reused.
2. `vms.jsonl`: each changed VM, written behind every `FLUSH_S`, the last line of an id wins. A kill -9 loses at most
   that much of VM states.
3. `pools.json`: everything else, replaced atomically when it changed, with the same delay.
4. What ran does not run after a restart: such VMs are POWEROFF (ended by themselves); what was being terminated is
   DONE; what had not begun to boot is PROLOG_FAILURE. Hosts are probed again.
5. Without a data directory nothing is kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from phoenix.local.opennebula.model import (
    Acl,
    Cluster,
    Datastore,
    Group,
    Host,
    User,
    Vm,
)
from phoenix.local.opennebula.states import Action, HostState, Lcm, VmState
from phoenix.local.opennebula.store import Store
from phoenix.local.opennebula.templates import Template

_LOG = logging.getLogger("phoenix.opennebula")

ID_BLOCK = 1000
# Short, so that a burst of changes is never a long pause: encoding a VM takes 0.1 ms.
FLUSH_S = 0.1
# Beyond this the file is rewritten with what is still known.
LOG_BYTES_MAX = 64 * 1024 * 1024
# Final VMs kept across a restart: enough to answer late questions about the last minutes.
FINAL_VMS_KEPT = 2_000

_VM_FIELDS = tuple(f.name for f in dataclasses.fields(Vm) if f.name not in ("xml_short", "xml_full", "epoch"))

_ENDING = frozenset({Lcm.SHUTDOWN, Lcm.EPILOG, Lcm.CLEANUP_DELETE})
_NOT_BEGUN = frozenset({Lcm.LCM_INIT, Lcm.PROLOG, Lcm.PROLOG_RESUME, Lcm.PROLOG_UNDEPLOY})


@dataclasses.dataclass(slots=True)
class Pools:
    """The content of `pools.json`."""

    hosts: dict[int, Host]
    users: dict[int, User]
    groups: dict[int, Group]
    clusters: dict[int, Cluster]
    datastores: dict[int, Datastore]
    acls: dict[int, Acl]
    next_ids: dict[str, int]


_POOL_NAMES = tuple(f.name for f in dataclasses.fields(Pools))


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Template):
        return value.values
    raise NotImplementedError(f"{type(value).__name__} is not kept")


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is Template:
        return Template(value)
    raise NotImplementedError(f"{kind.__name__} is not kept")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_hook)
_VM_DECODER = msgspec.json.Decoder(Vm, dec_hook=_decode_hook)
_POOLS_DECODER = msgspec.json.Decoder(Pools, dec_hook=_decode_hook)


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file: readers see the old content or the new one."""
    temporary = path.with_suffix(path.suffix + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _line(vm: Vm) -> bytes:
    return _ENCODER.encode({name: getattr(vm, name) for name in _VM_FIELDS}) + b"\n"


class Persistence:
    """See the module."""

    def __init__(self, store: Store, data_dir: Path | None) -> None:
        self._store = store
        self._dir = data_dir
        self._dirty: dict[int, Vm] = {}
        self._pools_dirty = False
        self._log: BinaryIO | None = None
        self._log_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._reserved = 0

    # -- reading -----------------------------------------------------------------------------------

    def load(self, now: int) -> None:
        """Fill the store from the data directory. Raises ValueError, naming the file, if it cannot be read."""
        if self._dir is None:
            return
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._load_pools(self._dir / "pools.json")
        self._load_vms(self._dir / "vms.jsonl", now)
        ids = self._dir / "ids"
        reserved = int(ids.read_text("ascii")) if ids.exists() else 0
        self._store.next_ids["vms"] = max(self._store.next_ids.get("vms", 0), reserved)
        self._reserve()

    def _load_pools(self, path: Path) -> None:
        if not path.exists():
            return
        try:
            pools = _POOLS_DECODER.decode(path.read_bytes())
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}: {error}; remove it to begin with empty pools") from error
        administrator = self._store.users[0]
        for name in _POOL_NAMES:
            if name != "hosts":
                setattr(self._store, name, getattr(pools, name))
        stored = self._store.users[0]
        stored.name, stored.password = administrator.name, administrator.password
        self._load_hosts(pools.hosts)

    def _load_hosts(self, known: dict[int, Host]) -> None:
        seeded = self._store.hosts
        cluster = self._store.clusters[0]
        for host in known.values():
            host.vms.clear()
            host.monitoring.clear()
            host.probed = False
            if host.state not in (HostState.DISABLED, HostState.OFFLINE):
                host.state = host.prev_state = HostState.INIT
            configured = seeded.get(host.id)
            if configured is not None:
                host.cores, host.memory_mb, host.hardware = configured.cores, configured.memory_mb, configured.hardware
            host.devices = configured.devices if configured is not None else []
        names = {host.name for host in known.values()}
        highest = self._store.next_ids.get("hosts", 0)
        fresh = [host for host in seeded.values() if host.id >= highest and host.name not in names]
        self._store.hosts = {**known, **{host.id: host for host in fresh}}
        for host in fresh:
            cluster.hosts[host.id] = None
        self._store.next_ids["hosts"] = max([highest, *(host.id + 1 for host in fresh)])

    def _load_vms(self, path: Path, now: int) -> None:
        if not path.exists():
            return
        found: dict[int, Vm] = {}
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                vm = _VM_DECODER.decode(line)
            except msgspec.MsgspecError:
                _LOG.warning("%s line %d is cut short: left out", path.name, number)
                continue
            found[vm.id] = vm
        for vm_id in sorted(found):
            self._restore(found[vm_id], now)

    def _restore(self, vm: Vm, now: int) -> None:
        store = self._store
        counted, vm.counted_on = vm.counted_on, -1
        store.vms[vm.id] = vm
        _settle(vm, now)
        store.next_ids["vms"] = max(store.next_ids.get("vms", 0), vm.id + 1)
        if vm.state == VmState.DONE:
            store.finish(vm)
        elif counted in store.hosts and vm.state not in (VmState.PENDING, VmState.HOLD):
            store.count(vm, counted)

    # -- writing -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to write behind."""
        if self._dir is not None:
            self._rewrite()
            self._pools_dirty = True
            self._task = asyncio.create_task(self._run(), name="persistence")

    def changed(self, vm: Vm) -> None:
        """A VM changed."""
        if self._dir is not None:
            self._dirty[vm.id] = vm
            if self._store.next_ids["vms"] >= self._reserved - 1:
                self._reserve()

    def pools_changed(self) -> None:
        """Something else changed."""
        self._pools_dirty = True

    def _reserve(self) -> None:
        assert self._dir is not None
        self._reserved = self._store.next_ids.get("vms", 0) + ID_BLOCK
        write_atomically(self._dir / "ids", str(self._reserved).encode())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()

    def flush(self) -> None:
        """Write what changed."""
        if self._dir is None or self._log is None:
            return
        if self._dirty:
            content = b"".join(_line(vm) for vm in self._dirty.values())
            self._dirty.clear()
            self._log.write(content)
            self._log.flush()
            self._log_bytes += len(content)
            if self._log_bytes > LOG_BYTES_MAX:
                self._rewrite()
        if self._pools_dirty:
            self._pools_dirty = False
            write_atomically(
                self._dir / "pools.json", _ENCODER.encode({name: getattr(self._store, name) for name in _POOL_NAMES})
            )

    def _rewrite(self) -> None:
        assert self._dir is not None
        if self._log is not None:
            self._log.close()
        path = self._dir / "vms.jsonl"
        final = list(self._store.final_vms.values())[-FINAL_VMS_KEPT:]
        write_atomically(path, b"".join(_line(vm) for vm in [*final, *self._store.vms.values()]))
        self._log = path.open("ab")
        self._log_bytes = path.stat().st_size

    async def close(self) -> None:
        """Write everything, once more and for the last time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._pools_dirty = True
        self.flush()
        if self._log is not None:
            self._log.close()
            self._log = None


def _settle(vm: Vm, now: int) -> None:
    """Rule 4: nothing runs after a restart."""
    lcm = Lcm(vm.lcm)
    if vm.state != VmState.ACTIVE or lcm.name.endswith("_FAILURE"):
        return
    if lcm in _ENDING:
        vm.state, vm.lcm, vm.etime = VmState.DONE, Lcm.LCM_INIT, now
    elif lcm == Lcm.CLEANUP_RESUBMIT:
        vm.state, vm.lcm = VmState.PENDING, Lcm.LCM_INIT
    elif lcm in _NOT_BEGUN:
        vm.lcm = Lcm.PROLOG_FAILURE
    else:
        vm.state, vm.lcm = VmState.POWEROFF, Lcm.LCM_INIT
        if vm.history:
            vm.history[-1].retime = vm.history[-1].retime or now
            vm.history[-1].action = Action.MONITOR
    vm.prev_state, vm.prev_lcm = vm.state, vm.lcm
