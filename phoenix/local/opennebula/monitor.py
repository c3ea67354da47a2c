"""Hosts and VMs as their agents report them.

1. A host that answers its probe goes INIT → MONITORED (its hardware is read then), ERROR → INIT; one that does not
   goes to ERROR, and its RUNNING VMs to UNKNOWN. Disabled and offline hosts keep their state.
2. A report about one VM is ignored within `GUARD_S` of its running start or end; a full report of a host has no such
   guard.
3. A VM that the driver reports as ended becomes POWEROFF, whatever the guard: the driver is the hypervisor, not an agent
   polling it.
"""

from __future__ import annotations

import asyncio
import time

from phoenix.local.driver import Driver
from phoenix.local.opennebula.hooks import Hooks
from phoenix.local.opennebula.machine import Machine
from phoenix.local.opennebula.model import Host, Vm
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import Action, HostState, Lcm, VmState
from phoenix.local.opennebula.store import Clock, Store
from phoenix.local.opennebula.templates import cdata

# oned ignores a VM's state for so long after its running start or end: agents report late.
GUARD_S = 30

# Samples kept of each host and VM.
SAMPLES_MAX = 60

_ENABLED = (HostState.INIT, HostState.MONITORED, HostState.ERROR)


def _vm_values(vm: Vm, cpu_percent: float, memory_kb: int, now: int) -> list[tuple[str, str]]:
    """A sample as oned prints it; discs and networks are not measured."""
    unmeasured = [(name, "0") for name in ("DISKRDBYTES", "DISKRDIOPS", "DISKWRBYTES", "DISKWRIOPS")]
    head = [("CPU", f"{cpu_percent:.1f}"), *unmeasured, ("ID", str(vm.id)), ("MEMORY", str(memory_kb))]
    return [*head, ("NETRX", "0"), ("NETTX", "0"), ("TIMESTAMP", str(now))]


class Monitor:
    """Probes hosts in turn, reads VM usage, takes reports."""

    def __init__(
        self, settings: Settings, store: Store, machine: Machine, hooks: Hooks, driver: Driver, clock: Clock
    ) -> None:
        self._interval_s, self._store, self._machine = settings.monitor_interval_s, store, machine
        self._hooks, self._driver, self._clock = hooks, driver, clock
        self._task: asyncio.Task[None] | None = None
        self.down: dict[int, str] = {}
        self._ended: set[int] = set()

    def start(self) -> None:
        """Probe every host once, now; then at the interval."""
        for host in self._store.hosts.values():
            self.probe(host)
        if self._interval_s is not None:
            self._task = asyncio.create_task(self._run(self._interval_s), name="monitor")

    async def close(self) -> None:
        """Stop probing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            for host in list(self._store.hosts.values()):
                self.probe(host)
            await self.read_usage()

    async def read_usage(self, idle_too: bool = False) -> None:
        """Ask the driver what each VM uses.

        Those that use nothing are left out unless `idle_too`, so that they stay cached.
        """
        for host in list(self._store.hosts.values()):
            cpu, memory_kb = 0.0, 0
            for vm_id in list(host.vms):
                usage = await self._driver.usage(vm_id)
                vm = self._store.vms.get(vm_id)
                if (
                    usage is None
                    or vm is None
                    or not (idle_too or usage.cpu_percent or usage.memory_kb or vm.usage_xml)
                ):
                    continue
                cpu, memory_kb = cpu + usage.cpu_percent, memory_kb + usage.memory_kb
                self._sample_vm(vm, usage.cpu_percent, usage.memory_kb)
            host.used_cpu, host.used_memory_kb = round(cpu), memory_kb

    def _sample_vm(self, vm: Vm, cpu_percent: float, memory_kb: int) -> None:
        now = self._clock.second()
        vm.last_poll = now
        vm.usage_xml = "".join(
            f"<{name}>{cdata(value)}</{name}>" for name, value in _vm_values(vm, cpu_percent, memory_kb, now)
        )
        vm.touch()

    # -- hosts -------------------------------------------------------------------------------------

    def set_host(self, host: Host, state: HostState) -> None:
        """A host's state changes; told to the hooks."""
        if host.state == state:
            return
        if state == HostState.OFFLINE:
            host.max_cpu = host.max_memory_kb = 0
            host.template = host.template.without(("TOTALCPU", "TOTALMEMORY"))
        host.prev_state, host.state = host.state, state
        self._hooks.host_changed(host)
        host.prev_state = state

    def probe(self, host: Host) -> None:
        """A probe of the host answers, or does not if the host is down."""
        failure = self.down.get(host.id)
        if failure is not None or host.vm_mad == "nosuch" or host.im_mad == "nosuch":
            if failure is not None:
                self.failed(host, failure)
            return
        if host.state == HostState.OFFLINE:
            return
        self._sample_host(host)
        if host.state == HostState.ERROR:
            self.set_host(host, HostState.INIT)
        elif host.state == HostState.INIT:
            self._read_hardware(host)
            self.set_host(host, HostState.MONITORED)

    def failed(self, host: Host, message: str) -> None:
        """A probe failed."""
        if host.state in _ENABLED and host.state != HostState.ERROR:
            when = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(self._clock.now()))
            host.template = host.template.with_value(
                "ERROR", f"{when} : Error monitoring Host {host.name} ({host.id}): {message}"
            )
            self.set_host(host, HostState.ERROR)
        for vm_id in sorted(host.vms):
            vm = self._store.vms.get(vm_id)
            if vm is not None and vm.state == VmState.ACTIVE and vm.lcm == Lcm.RUNNING:
                self._machine.move(vm, (VmState.ACTIVE, Lcm.UNKNOWN))

    def _read_hardware(self, host: Host) -> None:
        host.max_cpu, host.max_memory_kb, host.probed = host.cores * 100, host.memory_mb * 1024, True
        found = {
            "ARCH": "x86_64",
            "CPUSPEED": "2000",
            "HOSTNAME": host.name,
            "HYPERVISOR": "dummy",
            "MODELNAME": "Phoenix",
            "TOTALCPU": str(host.max_cpu),
            "TOTALMEMORY": str(host.max_memory_kb),
            **host.hardware.attributes,
        }
        for name, value in found.items():
            host.template = host.template.with_value(name, value)

    def _sample_host(self, host: Host) -> None:
        cpu, memory_kb = host.cores * 100, host.memory_mb * 1024
        now = self._clock.second()
        xml = (
            f"<MONITORING><TIMESTAMP>{now}</TIMESTAMP><ID>{host.id}</ID><CAPACITY>"
            f"<FREE_CPU>{cdata(str(max(0, cpu - host.used_cpu)))}</FREE_CPU>"
            f"<FREE_MEMORY>{cdata(str(max(0, memory_kb - host.used_memory_kb)))}</FREE_MEMORY>"
            f"<USED_CPU>{cdata(str(host.used_cpu))}</USED_CPU><USED_MEMORY>{cdata(str(host.used_memory_kb))}</USED_MEMORY></CAPACITY>"
            f"<SYSTEM><NETRX>{cdata('0')}</NETRX><NETTX>{cdata('0')}</NETTX></SYSTEM>{host.hardware.monitoring_xml}</MONITORING>"
        )
        host.monitoring.append((now, xml))
        del host.monitoring[:-SAMPLES_MAX]

    # -- VMs ---------------------------------------------------------------------------------------

    def vm_ended(self, vm_id: int, why: str) -> None:  # noqa: ARG002 (OpenNebula keeps no reason)
        """The driver.

        A VM has ended by itself. One that is not known to run yet, or whose host is down, powers off when it is
        RUNNING.
        """
        vm = self._store.vms.get(vm_id)
        if vm is None or vm.state != VmState.ACTIVE or not vm.history:
            return
        if vm.lcm in (Lcm.RUNNING, Lcm.UNKNOWN) and vm.history[-1].host_id not in self.down:
            self._power_off(vm)
        elif vm.lcm not in (Lcm.SHUTDOWN, Lcm.SHUTDOWN_POWEROFF, Lcm.SHUTDOWN_UNDEPLOY):
            self._ended.add(vm_id)

    def vm_changed(self, vm: Vm) -> None:
        """A VM entered a state: what ended before it was RUNNING powers off now."""
        if vm.id not in self._ended:
            return
        if vm.state != VmState.ACTIVE:
            self._ended.discard(vm.id)
        elif vm.lcm == Lcm.RUNNING:
            self._ended.discard(vm.id)
            asyncio.get_running_loop().call_soon(self.vm_ended, vm.id, "ended before")

    def _power_off(self, vm: Vm) -> None:
        machine = self._machine
        machine.note(vm, Action.MONITOR)
        machine.move(vm, (VmState.ACTIVE, Lcm.SHUTDOWN_POWEROFF))
        machine.finish_step(vm, ok=True)

    def report(self, vm: Vm, state: str, deploy_id: str | None, full: bool) -> bool:
        """An agent's report about a VM: RUNNING, POWEROFF or FAILURE. False: ignored."""
        machine = self._machine
        if vm.state != VmState.ACTIVE or not vm.history:
            return False
        last = vm.history[-1]
        if deploy_id:
            vm.deploy_id = deploy_id
            vm.touch()
        if not full and self._clock.now() - max(last.rstime, last.retime) < GUARD_S:
            return False
        if state == "RUNNING" and vm.lcm == Lcm.UNKNOWN:
            machine.move(vm, (VmState.ACTIVE, Lcm.RUNNING))
        elif state == "POWEROFF" and vm.lcm in (Lcm.RUNNING, Lcm.UNKNOWN):
            self._power_off(vm)
        elif state == "POWEROFF" and vm.lcm == Lcm.SHUTDOWN:
            machine.recover(vm, ok=True)
        elif state == "FAILURE" and vm.lcm == Lcm.RUNNING:
            machine.move(vm, (VmState.ACTIVE, Lcm.UNKNOWN))
        else:
            return False
        return True

    def sync(self, host: Host, present: dict[int, str], zombies: list[str], missing_state: str = "POWEROFF") -> None:
        """A full report of a host.

        `present` VM id to state; those absent are in `missing_state`; `zombies` are unknown to us.
        """
        for vm_id in sorted(host.vms):
            vm = self._store.vms.get(vm_id)
            if vm is not None:
                self.report(vm, present.get(vm_id, missing_state), None, full=True)
        template = host.template.without(("ZOMBIES", "TOTAL_ZOMBIES"))
        if zombies:
            template = template.with_value("TOTAL_ZOMBIES", str(len(zombies))).with_value("ZOMBIES", ", ".join(zombies))
        host.template = template
