"""The executor's edge: makes the calls that the core asks for, while it may, and feeds their outcomes back.

What it decides: when calls may be made.  It must never make one before this replica leads, before an earlier leader has
surely stopped (X8), or while the lease has less left than a call may take.

Rules
  1. Calls are made for the state as folded: after each batch of facts, each answer, each poll, and when the core's time comes.
  2. A new leader looks at the whole of OpenNebula before it asks for anything (the core allocates nothing before).
  3. Every call has a deadline and one outcome.  After an answer that proves nothing (no connection, wrong login) all calls
     pause, longer each time, until one is answered (`circuit_breaker`); after a refused login also until the login is another
     one.
  4. `close` returns when no call that changes something is in flight, so `leader.stopped` is true (X8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from schemas.facts import Fact, VmEnded
from schemas.ids import instance_parts, is_instance
from schemas.units import iso
from services.domain.custody.meta import Meta
from services.domain.custody.state import Leader, vm_key
from services.executor.core.call_errors import Failure
from services.executor.core.calls import (
    Allocate,
    Broken,
    Call,
    HostsSeen,
    Look,
    Observation,
    Outcome,
    PoolSeen,
    Result,
    Terminate,
)
from services.executor.core.executor import ExecutorCore
from services.executor.edge.circuit_breaker import Endpoint
from services.executor.edge.events import EventStream
from services.executor.edge.metrics import ExecutorMetrics
from services.executor.edge.poll import Poller
from services.executor.opennebula.client_pool import Site, method_of
from services.runtime.alarm import Alarm
from services.runtime.service import Edge, Service

LOGIN_LOOK_S: Final = 1.0  # while the login is refused: its file is read so often
LEASE_LOOK_S: Final = 0.02  # while the lease is too short: it is renewed four times in its life
WAKE_MIN_S: Final = 0.002
WAKE_MAX_S: Final = 1.0  # look again at least this often: the wall clock may be set
CLOSE_MARGIN_S: Final = 0.5
STARTS_PAUSED: Final = (
    "starts of VMs are paused since {since}: they failed on most hosts ({why}).  One is tried every few seconds, and the first "
    "that succeeds ends the pause: docs/runbooks/PhoenixStartsPaused.md"
)
HOSTS_TOLD: Final = 5
HIDDEN: Final = (
    "VMs of ours belong to another owner, so that they cannot be seen or ended: {which}.  Give them back (onevm chown): "
    "docs/runbooks/PhoenixLedgerDisagrees.md"
)
LOCKED: Final = "VMs that are to end are locked: {which}.  onevm unlock: docs/runbooks/PhoenixLedgerDisagrees.md"
HOSTS_LOST: Final = (
    "{hosts} lost: {which}.  phoenix hosts shows the reasons; if this is expected, cordon them (phoenix hosts cordon)"
)


def wait_out_s(predecessor: Leader | None, reaped: frozenset[str], lease_ttl_s: float, timeout_s: float) -> float:
    """How long a new leader waits before its first call (X8): until the last call of the one before has surely returned."""
    if predecessor is None or predecessor.stopped or predecessor.instance in reaped:
        return 0.0
    return lease_ttl_s + timeout_s


class ExecutorEdge(Edge):
    def __init__(self) -> None:
        self._acting = False
        self._in_flight: dict[asyncio.Future[Result], Call] = {}
        self._pump_soon = False
        self._alarm = Alarm(self._pump_later)
        self._answered_at = 0.0  # monotonic; the last answer of OpenNebula
        self._poller: Poller | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def connected(self, service: Service) -> None:
        self._service = service
        self._site = Site(service.config, lambda: service.custody.state.cloud, self._own)
        one = service.config.opennebula
        self._endpoint = Endpoint(one.endpoint, one.auth_file, service.log)
        self._endpoint.user = self._site.user

    def _own(self, unit: str) -> Mapping[str, Any]:
        """What the unit's department says of its VMs' templates.  Called from the threads of the calls: it only reads."""
        config = self._service.custody.state.config
        department = config.department(instance_parts(unit)[0]) if config is not None and is_instance(unit) else None
        return department.web.template if department is not None and department.web is not None else {}

    def ailing(self) -> list[str]:
        """What keeps the cloud from having its VMs."""
        if not self._acting:
            return self._endpoint.ailing() if hasattr(self, "_endpoint") else []
        paused = self._core.ledger.state.paused
        found = [] if paused is None else [STARTS_PAUSED.format(since=iso(paused.since), why=paused.why)]
        return self._endpoint.ailing() + found + self._lost() + self._out_of_reach()

    def _out_of_reach(self) -> list[str]:
        """VMs that a person has given to another owner, or locked."""
        observed = self._core.vm_reconciler.observed_vms.values()
        hidden, locked = (
            ", ".join(
                f"{one.vm} ({one.key} on {one.host})" for one in sorted(some, key=lambda one: one.vm)[:HOSTS_TOLD]
            )
            for some in ([one for one in observed if one.hidden], [one for one in observed if one.locked])
        )
        found = [HIDDEN.format(which=hidden)] if hidden else []
        return found + ([LOCKED.format(which=locked)] if locked else [])

    def _lost(self) -> list[str]:
        """Hosts that are lost and not cordoned: who cordons one knows of it."""
        custody = self._service.custody
        hosts, lost = custody.state.hosts, custody.index.by_state["lost"]
        names = [name for name in sorted(lost) if hosts[name].cordoned is None]
        if not names:
            return []
        which = ", ".join(names[:HOSTS_TOLD]) + (" …" if len(names) > HOSTS_TOLD else "")
        return [HOSTS_LOST.format(hosts="1 host is" if len(names) == 1 else f"{len(names):,} hosts are", which=which)]

    async def start(self, service: Service) -> None:
        assert isinstance(service.core, ExecutorCore)
        self._core = service.core
        self._endpoint.broke = self._doubt
        self._metrics = ExecutorMetrics(service.registry, self._core, self._endpoint, lambda: self._site.in_flight)

    async def lead(self) -> None:
        self._tasks.append(self._service.spawn("act", self._begin()))

    async def _begin(self) -> None:
        service, config = self._service, self._service.config
        wait_s = wait_out_s(service.predecessor, service.reaped, config.runtime.lease_ttl_s, self._site.timeout_s)
        if wait_s:
            service.log.info("waiting for calls of the previous executor", seconds=wait_s)
            await asyncio.sleep(wait_s)
        self._core.take_over(service.now())
        self._acting = True
        poll_s = config.opennebula.poll_s
        self._poller = Poller(service, self._site, self._endpoint, self._metrics, poll_s, self._observe)
        if config.opennebula.listens:
            stream = EventStream(config.opennebula.events, self._poller, self._metrics)
            self._tasks.append(service.spawn("events", stream.listen_forever()))
        self._tasks.append(service.spawn("watch", self._poller.watch_forever()))
        self._tasks.append(service.spawn("audit", self._poller.audit_forever()))
        self.settled()

    async def close(self) -> None:
        self._acting = False
        self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        acts = [future for future, call in self._in_flight.items() if not isinstance(call, Look)]
        if acts:
            await asyncio.wait(acts, timeout=2 * self._site.timeout_s + CLOSE_MARGIN_S)
        self._site.close()

    def applied(self, fact: Fact, meta: Meta) -> None:
        if isinstance(fact, VmEnded) and meta.void is None:  # the answer that lacked it is the last one before
            self._metrics.gone(vm_key(fact.unit, fact.attempt, fact.rank), self._answered_at)

    def settled(self) -> None:
        if self._acting:
            self._pump_later()

    # ---------------------------------------------------------------------------------------------------------- calling

    def _pump_later(self) -> None:
        """Once for whatever happens in one turn of the loop."""
        if not self._pump_soon:
            self._pump_soon = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_soon = False
        if not self._acting:
            return
        now = self._service.now()
        delay_s = self._forbidden_s()
        if delay_s == 0.0:
            for call in self._core.calls(now, min(self._site.acts_max - len(self._in_flight), self._site.free)):
                self._make(call)
            delay_s = min(WAKE_MAX_S, max(WAKE_MIN_S, self._core.wake_at() - now))
        self._alarm.set(delay_s)
        if self._poller is not None:
            self._poller.kick()

    def _forbidden_s(self) -> float:
        """0 if a call may be made now; else seconds after which to look again."""
        paused_s = self._endpoint.paused_s()
        down = self._endpoint.down
        if paused_s > 0 and down is not None and down.failure is Failure.LOGIN:
            if not self._login_is_new():
                return min(paused_s, LOGIN_LOOK_S)
        elif paused_s > 0:
            return max(paused_s, WAKE_MIN_S)
        if not self._service.is_leader or self._service.lease_left_s() < self._site.timeout_s:
            return LEASE_LOOK_S
        return 0.0

    def _login_is_new(self) -> bool:
        if not self._site.login_changed():
            return False
        self._endpoint.user = self._site.user
        self._endpoint.retry_now()
        self._service.log.info("the login for OpenNebula has changed", user=self._site.user)
        return True

    def _make(self, call: Call) -> None:
        if isinstance(call, Terminate):
            self._metrics.terminating(call.key, time.monotonic())
        future = self._site.act(call)
        self._in_flight[future] = call
        future.add_done_callback(partial(self._done, call, time.monotonic()))

    def _done(self, call: Call, began: float, future: asyncio.Future[Result]) -> None:
        del self._in_flight[future]
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._service.fail(
                f"{method_of(call)} failed in a way that was not foreseen: {type(error).__name__}: {error}"
            )
            return
        result = future.result()
        took_s = time.monotonic() - began
        self._metrics.called(method_of(call), result.outcome.value, took_s)
        if self._service.log.is_debug:
            fields = {"method": method_of(call), **_about(call), "outcome": result.outcome.value}
            self._service.log.debug("OpenNebula called", **fields, seconds=round(took_s, 6))
        self._note(result)
        self._observe(result)
        if self._poller is not None:
            self._poller.hurry(_untold(result))

    def _note(self, result: Result) -> None:
        """Pause, resume, and report."""
        call = result.call
        if not result.failure:
            self._endpoint.answered(method_of(call))
            return
        self._endpoint.failed(Failure(result.failure), method_of(call), result.why)
        if result.outcome is Outcome.REFUSED:
            self._service.log.info(
                "OpenNebula refused", method=method_of(call), **_about(call), failure=result.failure, why=result.why
            )

    def _doubt(self) -> None:
        """OpenNebula may have been put back to an older copy of its database meanwhile."""
        if self._acting:
            self._core.observe(Broken(), self._service.now())

    def _observe(self, observation: Observation) -> None:
        self._core.observe(observation, self._service.now())
        if isinstance(observation, PoolSeen | HostsSeen):
            self._metrics.looked()
        self._answered_at = time.monotonic()
        self._service.wake()
        self.settled()


def _untold(result: Result) -> int:
    """The VM of which no event will tell, because what was asked of it did not happen; -1 if there is none."""
    if result.outcome is Outcome.OK or isinstance(result.call, Allocate | Look):
        return -1
    return result.call.vm


def _about(call: Call) -> dict[str, object]:
    """As the journal names it."""
    if isinstance(call, Look):
        return {"host": call.host}
    unit, attempt, rank = call.key.rsplit("/", 2)
    vm = {} if isinstance(call, Allocate) else {"vm": call.vm}
    return {"unit": unit, "attempt": int(attempt), "rank": int(rank), **vm}
