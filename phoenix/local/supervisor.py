"""The supervisor: one process that starts every part of an embedded cloud, keeps it running, and stops it in order.

Theory of operation
  `start` makes what is missing (credentials, ports, generated files, streams) and starts the parts in the order in which they
  need each other; a part counts when its probe succeeds.  From then on each child is kept by its own task
  (`supervisor_child`), and one watch asks all of them how they are.

Rules
  1. One supervisor a data directory: DATA/run/lock is held while it lives, and the kernel lets go of it however it dies.
  2. What a dead supervisor may have left is killed before anything starts; those instances are then known to be reaped.
  3. Down, in this order: balancers; schedulers and admission, so that nothing is placed and no report is taken; VMs, which the
     executor sees ending; the other services; OpenNebula; NATS.  A script that is killed by `down` so never counts as failed:
     its attempt is broken and the next `up` requeues it.  The jobs' network goes with the last of them.
     In a site's own OpenNebula it is this cloud's VMs that end (`stack_vms`); it is neither started nor stopped here.
  4. Any failure while starting stops everything again and names the part, with the end of its log.
  5. A process that runs and does nothing is ended and started again: one that sends no sign of life (`supervisor_watch`), and a
     broker that has stopped writing, or greets no client (`supervisor_broker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from phoenix.haproxy.configuration import ConfigurationError
from phoenix.local import stack, stack_about, stack_config, stack_haproxy, stack_network, stack_settings
from phoenix.local.network.namespace import JobsNetwork, NetworkError
from phoenix.local.port_claims import NoPortError, is_roots
from phoenix.local.programs import PartMissingError
from phoenix.local.stack_broker import BrokerError, make_streams
from phoenix.local.stack_layout import Layout, write_private
from phoenix.local.stack_ports import Ports
from phoenix.local.stack_settings import Settings
from phoenix.local.stack_vms import OpenNebulaError, check, end_vms
from phoenix.local.supervisor_child import Child, Spec, kill_leftover, started_at, tail, truncate
from phoenix.local.supervisor_probe import http_get
from phoenix.local.supervisor_watch import BEGIN_S, TICK_S, Ear, Silence
from schemas.units import count
from services.domain.exits import Stop
from services.runtime.broker import credentials
from services.runtime.broker.credentials import CredentialsError
from services.runtime.config import secret_files
from services.runtime.config.file import ConfigError
from services.runtime.config.lending import beyond
from services.runtime.config.tables import Config

FALLS_MAX: Final = 3  # a part that ends more often while the cloud starts will not come up
LOOPBACK: Final = "127.0.0.1"
ANY_ADDRESS: Final = ("0.0.0.0", "[::]", "")  # noqa: S104  # compared with, not bound to
ANYBODY_MAY_LISTEN: Final = (
    "nats-server listens at port {port}, which {who} could take while nats-server restarts: "
    "only one below net.ipv4.ip_unprivileged_port_start is root's"
)
START_S: Final = 60.0  # for all parts; a loaded machine of two cores takes about ten
ASK_STARTING_S: Final = 0.05
ASK_RUNNING_S: Final = 2.0
ASK_ILL_S: Final = 0.1  # while a process is not well, `status` is to know soon when it is again


class _Leftover(msgspec.Struct):
    """A child of a supervisor that is gone, as DATA/run/processes.json has it."""

    pid: int = 0
    start: int = 0
    instance: str = ""
    reaped: list[str] = []


class StartError(Exception):
    """The cloud cannot be started; the message says why and what to do."""


class Supervisor:
    """One embedded cloud.  `tell` hears what is being done, a sentence each."""

    def __init__(self, layout: Layout, tell: Callable[[str], None]) -> None:
        self.layout = layout
        self.tell = tell
        self.children: dict[str, Child] = {}
        self.ready = False
        self.stopping = False
        self.config: Config
        self.settings: Settings
        self.ports = Ports(layout.ports)
        self.network: JobsNetwork | None = None  # of jobs, if it is their own
        self.network_why = ""  # why it is not, or has no way out
        self._lock: int | None = None
        self.line: asyncio.Task[None] | None = None  # the live line of a foreground run
        self._watch: asyncio.Task[None] | None = None
        self._listen: asyncio.Task[None] | None = None
        self._ear: Ear | None = None
        self._step = "making the files"
        self._started = False
        self._kept = False  # the settings, for the next start
        self._before = Settings()
        self._reaped: dict[str, list[str]] = {}

    # ---------------------------------------------------------------------------------------------------------- starting

    async def start(self, chosen: Path | None, **given: object) -> None:
        """Bring everything up.  `chosen`: a configuration file; `given`: settings that are not None win.  Raises `StartError`
        after stopping what it had started."""
        self._claim()
        try:
            self._prepare(chosen, given)
            self._ear = Ear(self.layout.run)
            self._watch = asyncio.create_task(self._keep_watch(), name="watch")
            self._listen = asyncio.create_task(self._keep_listening(self._ear), name="listen")
            async with asyncio.timeout(START_S):
                await self._start_parts()
            self.publish()
        except TimeoutError:
            problem = self._unready()
            await self.stop(hard=True)
            raise StartError(problem) from None
        except (
            ConfigError,
            CredentialsError,
            NoPortError,
            NetworkError,
            BrokerError,
            OpenNebulaError,
            Stop,
            PartMissingError,
            ConfigurationError,
        ) as error:
            await self.stop(hard=True)
            raise StartError(str(error)) from error
        except OSError as error:
            await self.stop(hard=True)
            raise StartError(_of_system(error, self.layout.data)) from error
        except (StartError, asyncio.CancelledError):
            await self.stop(hard=True)
            raise
        self.ready = self._started = True

    def _claim(self) -> None:
        """Rule 1."""
        try:
            self.layout.make()
            descriptor = os.open(self.layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._lock_or_refuse(descriptor)
        except OSError as error:
            where = error.filename or self.layout.lock
            raise StartError(f"{where}: {error.strerror}; choose another directory with --data") from error

    def _lock_or_refuse(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode() or "?"
            os.close(descriptor)
            raise StartError(
                f"a cloud is already running in {self.layout.data} (process {owner.strip()}); "
                "`phoenix status` shows it, `phoenix down` stops it, --data DIR starts another"
            ) from None
        self._lock = descriptor
        self.layout.about.unlink(missing_ok=True)  # of a supervisor that was killed
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    def _prepare(self, chosen: Path | None, given: dict[str, object]) -> None:
        self._reap_leftovers()
        self._before = stack_settings.load(self.layout.settings)
        self.settings = stack_settings.changed(self._before, **given)
        if chosen is not None:
            ours = not self.settings.external and stack_config.copies_ours(chosen, self.layout)
            named = stack_config.names_opennebula(chosen) and not ours
            self.settings = stack_settings.changed(self.settings, opennebula="external" if named else "embedded")
            self._take_hypervisor(chosen, given.get("hypervisor"))
        if self.settings.balances and self.settings.balancer == "haproxy":
            stack_haproxy.haproxy()  # before the settings are kept: it might be missing
        self.network, self.network_why = stack_network.made(self.settings)
        self.ports = Ports(self.layout.ports)  # read again: only now is the directory ours
        self.ports.network = self.network
        external, hypervisor = self.settings.external, self.settings.hypervisor
        config = stack_config.effective(self.layout, self.ports, chosen, external=external, hypervisor=hypervisor)
        self.config = stack.with_agents(config, self.settings, self.ports)
        stack_settings.save(self.layout.settings, stack_settings.changed(self.settings, services="all"))
        self._kept = True
        self.ports.save()  # before the configuration: ports in it that are not known as ours would count as the person's
        stack_config.write(self.config, self.layout)
        stack.write_files(self.config, self.layout)
        stack.status_file(self.layout).unlink(missing_ok=True)

    def _take_hypervisor(self, chosen: Path, given: object) -> None:
        """The file's, unless `--hypervisor` says another: then that is reported."""
        named = stack_config.named_hypervisor(chosen, external=self.settings.external)
        if given is None:
            self.settings = stack_settings.changed(self.settings, hypervisor=named)
        elif named not in (None, given):
            self.tell(f"{chosen.name} names the hypervisor {named}; --hypervisor {given} goes before")

    def _forget_given(self) -> None:
        """What a cloud did not start with is not kept for the next start; what goes with its configuration is."""
        if self._kept and not self._started:
            goes = {"opennebula": self.settings.opennebula, "hypervisor": self.settings.hypervisor}
            with contextlib.suppress(OSError):
                stack_settings.save(self.layout.settings, stack_settings.changed(self._before, **goes))

    def _reap_leftovers(self) -> None:
        """Rule 2."""
        try:
            left = msgspec.json.decode(self.layout.processes.read_bytes(), type=dict[str, _Leftover])
        except (OSError, ValueError):  # damaged: what died cannot be known
            return
        for name, entry in left.items():
            if kill_leftover(entry.pid, entry.start):
                self.tell(f"killed {name}, left over from a supervisor that died")
            self._reaped[name] = [*entry.reaped, *([entry.instance] if entry.instance else [])]

    def _say(self, step: str) -> None:
        self._step = step
        self.tell(step)

    async def _start_parts(self) -> None:
        await self._open_way_out()
        self._say("starting nats-server")
        self._warn_of_ports()
        await self._up([stack.broker(self.config, self.layout)])
        if self.settings.external:
            self._say(f"asking the OpenNebula at {self.config.opennebula.endpoint}")
            await asyncio.gather(check(self.config), make_streams(self.config))
        else:
            self._say("starting the embedded OpenNebula")
            await asyncio.gather(self._up([self._opennebula()]), make_streams(self.config))
        if self.settings.services == "none":
            return
        for problem in secret_files.problems(self.config.secrets.directory, self.config.cloud):
            self.tell(problem)
        self._say("starting the services")
        await self._up([stack.service(self.config, self.layout, process) for process in self.config.processes()])
        self._say("waiting for the hosts")
        await self._until_hosts_are_known()
        balancers = self._balancers()
        if balancers:
            self._say("starting the load balancers")
            await self._up(balancers)
        self.ports.save()

    def _warn_of_ports(self) -> None:
        """Web instances are in the machine's network, jobs only where they have none of their own."""
        who = "an instance" if self.network is not None else "a job"
        serves = any(department.web is not None for department in self.config.cloud.departments)
        may = self.settings.runs_jobs and os.geteuid() == 0 and (serves or self.network is None)
        if may and not is_roots(self.config.nats.port):
            self.tell(ANYBODY_MAY_LISTEN.format(port=self.config.nats.port, who=who))

    async def _open_way_out(self) -> None:
        """From the jobs' network to that of the site; the cloud starts without, too."""
        if self.network is None:
            if self.settings.runs_jobs and os.geteuid() == 0 and self.network_why:
                self.tell(f"jobs share the machine's network: {self.network_why}")
            return
        stack_network.name_doors(self.network, self.config)
        spec = stack_network.way_out(self.network)
        if spec is None:
            self.network_why = stack_network.NO_PASTA
            self.tell(self.network_why)
            return
        self._say("opening a way out of the jobs' network")
        child = self._child(spec)
        child.note = _unheard  # how often it was tried says nothing
        child.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(stack_network.WAY_OUT_S):
                while not await child.probe() and not child.restarts:  # noqa: ASYNC110
                    await asyncio.sleep(ASK_STARTING_S)
        if child.health == "ok":
            child.note = self.tell
            return
        why = f"has ended: {' '.join(tail(child.log, 1))}" if child.restarts else "does not come up"
        await child.stop(hard=True)
        del self.children[spec.name]
        self.network_why = stack_network.NO_WAY_OUT.format(why=why)
        self.tell(self.network_why)

    async def _until_hosts_are_known(self) -> None:
        """Before that every job would be refused: no host could hold it."""
        host, _, port = self.config.http.listen.rpartition(":")
        # not the public url, which may lead through a proxy of the site
        host = LOOPBACK if host in ANY_ADDRESS else host.strip("[]")
        operator = next((user.name for user in self.config.cloud.users if user.role == "operator"), None)
        if operator is None:
            return  # no client could ask
        token = credentials.token_file(self.config, operator).read_text().strip()
        while True:
            with contextlib.suppress(OSError, TimeoutError, ValueError, EOFError, KeyError):
                _, body = await http_get(host, int(port), "/v1/hosts", token=token)
                if any(host["state"] not in ("absent", "lost") for host in orjson.loads(body)["hosts"]):
                    return
            await asyncio.sleep(ASK_STARTING_S)

    def _opennebula(self) -> Spec:
        size = f"{count(self.settings.hosts, 'host')} of {count(self.settings.size.cores, 'core')}"
        self.tell(f"{size}, hypervisor {self.settings.hypervisor}")
        for warning in beyond(self.config.cloud, self.settings.hosts):
            self.tell(warning)
        network = self.network.net if self.network is not None else None
        return stack.opennebula(self.config, self.layout, self.settings, network)

    def _balancers(self) -> list[Spec]:
        departments = self.config.cloud.departments
        return [
            spec
            for d in departments
            for spec in stack.balancers(self.config, self.layout, self.settings, self.ports, d)
        ]

    async def add(self, specs: Sequence[Spec]) -> None:
        """Start more children while running, and wait until they are up.  Raises TimeoutError."""
        async with asyncio.timeout(START_S):
            await self._up(specs)

    async def _up(self, specs: Sequence[Spec]) -> None:
        for spec in specs:
            self._child(spec).start()
        await asyncio.gather(*(self._until_up(self.children[spec.name]) for spec in specs))
        self.ports.save()

    def _child(self, spec: Spec) -> Child:
        log = self.layout.logs / f"{spec.name}.log"
        beats = self._ear.environment if self._ear is not None else {}
        dead = list(self._reaped.get(spec.name, []))
        child = Child(spec, log, self.tell, self._write_processes, dead, environment=beats, network=self.network)
        self.children[spec.name] = child
        return child

    async def _until_up(self, child: Child) -> None:
        while not await child.probe():
            if child.restarts > FALLS_MAX and not self.ready:
                raise StartError(_epitaph(child, "ends again and again"))
            await asyncio.sleep(ASK_STARTING_S)

    def _unready(self) -> str:
        """Rule 4: which parts are not up, with the ends of their logs."""
        slow = [child for child in self.children.values() if child.health != "ok"]
        parts = [_epitaph(child, f"did not come up within {START_S:.0f} s") for child in slow]
        return "\n".join(parts) or f"not ready within {START_S:.0f} s; the last step was: {self._step}"

    # ----------------------------------------------------------------------------------------------------------- running

    async def _keep_watch(self) -> None:
        """Ask all processes for their health, for `status` and rule 5; keep logs within their bounds."""
        while True:
            ill = any(child.health != "ok" for child in self.children.values())
            await asyncio.sleep(ASK_ILL_S if ill else ASK_RUNNING_S)
            children = list(self.children.values())
            await asyncio.gather(*(child.probe() for child in children))
            for child in children:
                truncate(child.log)
                if child.stuck and child.pid is not None:
                    await child.renew(child.stuck, hard=child.health != "ok")  # who hangs hears no SIGTERM

    async def _keep_listening(self, ear: Ear) -> None:
        """Rule 5: replace who has fallen silent."""
        loop = asyncio.get_running_loop()
        silence = Silence(time.monotonic(), BEGIN_S)

        def hear() -> None:
            for pid in ear.hear():
                silence.heard(pid)

        loop.add_reader(ear.fileno(), hear)
        try:
            while True:
                await asyncio.sleep(TICK_S)
                hear()  # before anybody is judged
                silence.look(time.monotonic())
                beating = {child.pid: child for child in self.children.values() if child.spec.beats and child.pid}
                hung = silence.silent(beating)
                await asyncio.gather(*(beating[pid].renew(why, hard=True) for pid, why in hung.items()))
        finally:
            loop.remove_reader(ear.fileno())

    def status(self) -> dict[str, Any]:
        """Everything that `phoenix status --json` shows."""
        known = self._about()
        processes = [stack_about.process(child) for child in self.children.values()]
        well = self.ready and all(child.health == "ok" and not child.ailing for child in self.children.values())
        return {
            "running": True,
            "ready": self.ready,
            "healthy": well,
            "pid": os.getpid(),
            **known,
            "processes": processes,
        }

    def publish(self) -> None:
        """Write DATA/run/cloud.json, by which the command line finds a running cloud."""
        write_private(self.layout.about, orjson.dumps(self._about(), option=orjson.OPT_INDENT_2))

    def _about(self) -> dict[str, Any]:
        network = "own" if self.network is not None else "machine"
        of_jobs = (network if self.settings.runs_jobs else None, self.network_why)
        return stack_about.about(self.config, self.layout, self.settings, self.children.values(), of_jobs)

    def _write_processes(self) -> None:
        """For the `up` after a crash of this process (rule 2)."""
        entries = {
            name: {"pid": pid, "start": started_at(pid) or 0, "instance": child.instance, "reaped": child.reaped}
            for name, child in self.children.items()
            if (pid := child.pid) is not None
        }
        gone = {name: {"pid": 0, "start": 0, "reaped": dead} for name, dead in self._reaped.items() if dead}
        try:
            write_private(self.layout.processes, orjson.dumps(gone | entries))
        except OSError as error:  # a full disk: what runs is worth more than a note for after a crash
            self.tell(f"{self.layout.processes} cannot be written: {error.strerror}")

    # ---------------------------------------------------------------------------------------------------------- stopping

    async def stop(self, hard: bool = False) -> None:
        """Rule 3; `hard`: at once and without order.  No process is left when this returns."""
        self.stopping, self.ready = True, False
        self.layout.about.unlink(missing_ok=True)
        for task in filter(None, (self._watch, self._listen)):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._ear is not None:
            self._ear.close()
            self._ear = None
        if hard:
            self._forget_given()
            await self.stop_children(list(self.children), hard=True)
        else:
            await self._stop_in_order()
        self._write_processes()
        self.ports.release()
        if self.network is not None:
            self.network.close()
            self.network = self.ports.network = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _stop_in_order(self) -> None:
        await self.stop_children([n for n in self.children if n.partition(".")[0] in stack.BALANCERS])
        await self.stop_children([n for n in self.children if n == "admission" or n.startswith("scheduler.")])
        if stack.OPENNEBULA in self.children:
            self.tell("ending the VMs")
            await end_vms(self.config)
        elif self._uses_external():
            await self._end_our_vms()
        await self.stop_children([n for n in self.children if n not in (stack.OPENNEBULA, stack.NATS)])
        await self.stop_children([stack.OPENNEBULA])
        await self.stop_children([stack.NATS])

    def _uses_external(self) -> bool:
        """A start that failed early has made no VM, and may not even have a configuration."""
        return "executor" in self.children and self.settings.external

    async def _end_our_vms(self) -> None:
        self.tell(f"ending this cloud's VMs in the OpenNebula at {self.config.opennebula.endpoint}")
        ended = await end_vms(self.config, external=True)
        if ended.left:
            left = f"{ended.left} of {ended.told} VMs have not ended yet"
            self.tell(f"{left}; the executor looks after them at the next `phoenix up`")
        elif ended.why:
            self.tell(f"it does not answer ({ended.why}): VMs may still run there until the next `phoenix up`")

    async def stop_children(self, names: Sequence[str], hard: bool = False) -> None:
        """Stop these at the same time; those that are not running do not matter.  Even `hard`, OpenNebula gets SIGTERM first:
        it has VMs, their directories and control groups to clear away, and does so within a second."""
        running = [self.children[name] for name in names if name in self.children]
        if running:
            self.tell("stopping " + ", ".join(child.spec.name for child in running))
        await asyncio.gather(*(child.stop(hard and child.spec.name != stack.OPENNEBULA) for child in running))
        for child in running:
            self.children.pop(child.spec.name, None)
            self._reaped[child.spec.name] = child.dead()


def _unheard(_said: str) -> None:
    """Without a message."""


def _of_system(error: OSError, data: Path) -> str:
    """One that names no file is, as a rule, a write into the data directory."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.filename or data}: {error.strerror}: free space there, or choose another directory with --data"
    return str(error)


def _epitaph(child: Child, what: str) -> str:
    return "\n    ".join([f"{child.spec.name} {what}; {child.log} ends:", *tail(child.log)])
