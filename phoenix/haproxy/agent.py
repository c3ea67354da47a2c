"""The agent's process: table, keeper, watch, feed, reports and signals put together, and taken down again.

Rules
  1. The keeper looks at each event, at each `look_interval_s`, and every `HURRY_S` while something is on its way.
  2. Without an answer of HAProxy there is no signal: guests that get no requests look idle, and no reader may conclude from
     that that fewer instances would do.  The scheduler holds, and reports it (docs/reference/signals.md).
  3. Any unexpected failure in one of its tasks ends the process; its supervisor restarts it, and it takes up
     from the answers of HAProxy and admission.  A NATS connection that the library has given up does so too.
  4. SIGTERM ends it at once, with 0: HAProxy continues as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from pathlib import Path
from typing import Final

from nats.aio.client import Client

from phoenix.balance.feed import Feed
from phoenix.balance.reporter import Reporter
from phoenix.balance.session import talk
from phoenix.balance.signals import publish, ticks
from phoenix.balance.utilisation import Usages
from phoenix.haproxy.flow import Flow
from phoenix.haproxy.keeper import Keeper, Seen
from phoenix.haproxy.metrics import AgentMetrics, Counts, Sight
from phoenix.haproxy.reconciler import Plan
from phoenix.haproxy.runtime_api import RuntimeApi
from phoenix.haproxy.settings import Settings
from phoenix.haproxy.table import Table
from phoenix.haproxy.watch import Watch
from schemas.signals import NAME, SOURCE_MAX, AnySignal, CpuSignal
from schemas.times import exact
from services.domain.exits import Exit
from services.runtime.http.guard import Guard
from services.runtime.log import get_log
from services.runtime.metrics import MetricsListener
from services.runtime.watchdog import READY, Heart

HURRY_S: Final = 0.1

_log = get_log()


class Agent:
    """One agent: one department, one backend of one HAProxy."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._account = settings.account()
        self._source = (settings.source or f"{settings.user}@{socket.gethostname()}")[:SOURCE_MAX]
        self._counts = Counts()
        self._table = Table()
        api = RuntimeApi(Path(settings.socket), settings.backend, settings.slots, settings.health_map)
        self._keeper = Keeper(api, self._table, self._counts)
        self._watch = Watch(settings.old_process_s, settings.tells_drained)
        self._flow = Flow(self._source)
        self._usages = Usages()
        self._changed = asyncio.Event()
        self._feed = Feed(self._account, self._table, self._changed.set)
        self._reporter = Reporter(self._account)
        self._utilisation: float | None = None
        self._told: Seen | None = None
        self._stop = asyncio.Event()
        self._code = Exit.OK

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        listener = MetricsListener(AgentMetrics(self._counts, self._sight).registry, self._health, Guard(_log))
        await self._listen(listener)
        heart = Heart()
        heart.say(READY)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in (self._keep(), self._talk(), heart.beat())]
                await self._stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await listener.stop()
        return self._code

    async def _listen(self, listener: MetricsListener) -> None:
        if self._settings.metrics:
            host, _, port = self._settings.metrics.rpartition(":")
            found = await listener.start(host, int(port))
            _log.info("agent listens", department=self._settings.department, metrics=f"{host}:{found}")

    # --------------------------------------------------------------------------------------------------------- HAProxy

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            seen = await self._keeper.look()
            if seen is not None:
                self._report(seen)
            pause_s = self._settings.look_interval_s if self._keeper.is_settled else HURRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    def _report(self, seen: Seen) -> None:
        for report in self._watch.look(self._table.all(), seen.plan, seen.reading):
            if self._reporter.say(report.unit, report.attempt, report.state, report.why):
                self._counts.reports[report.state] += 1

    # ------------------------------------------------------------------------------------------------------- the broker

    async def _talk(self) -> None:
        await talk(
            self._account,
            f"haproxy-{self._settings.department}",
            self._closed,
            feed=self._feed,
            usages=self._usages,
            reporter=self._reporter,
            publishers=(self._publish,),
        )

    def _closed(self) -> None:
        if not self._stop.is_set():
            _log.error("the connection to nats is closed permanently")
            self._code = Exit.FAILED
            self._stop.set()

    async def _publish(self, client: Client) -> None:
        async for _ in ticks(self._settings.signal_interval_s):
            for signal_ in self._signals():
                if await publish(client, self._account, signal_):
                    self._counts.signals[NAME[type(signal_)]] += 1

    def _signals(self) -> list[AnySignal]:
        """What the last look is worth (rule 2)."""
        now, seen = time.monotonic(), self._keeper.seen
        self._usages.forget_stale(now)
        self._utilisation = None
        if seen is None:
            return []
        found: list[AnySignal | None] = [self._cpu(seen, now)]
        if seen is not self._told:  # a look that has been reported is not reported again: it would not be newer
            self._told = seen
            found.append(self._flow.requests(seen.reading, seen.now, seen.at))
            if self._table.is_known:
                found.append(self._flow.sessions(self._table.all(), seen.plan, seen.at))
                found.append(self._flow.answers(self._table.all(), seen.plan, seen.reading, seen.at))
        return [signal_ for signal_ in found if signal_ is not None]

    def _cpu(self, seen: Seen, now: float) -> CpuSignal | None:
        """Of the instances that HAProxy sends requests to; None if none of them is measured."""
        holders = seen.plan.holders
        serving = [one for one in self._table.all() if one.address in holders and holders[one.address].serves]
        reading = self._usages.mean(((one.key, one.cores) for one in serving), now)
        if reading is None:
            return None
        self._utilisation = reading.utilisation
        return CpuSignal(
            utilisation=round(reading.utilisation, 4),
            instances=reading.instances,
            at=exact(time.time()),
            interval_s=self._settings.signal_interval_s,
            source=self._source,
        )

    # -------------------------------------------------------------------------------------------------- for those who ask

    def _sight(self) -> Sight:
        seen = self._keeper.seen
        return Sight(
            reading=seen.reading if seen else None,
            plan=seen.plan if seen else Plan(),
            wanted=len(self._table.all()),
            unusable=len(self._table.unusable),
            utilisation=self._utilisation,
            audited_at=self._feed.audited_at,
        )

    def _health(self) -> dict[str, object]:
        """200 when HAProxy answers and the department's instances are known."""
        seen = self._keeper.seen
        return {
            "caught_up": seen is not None and self._table.is_known,
            "haproxy": seen is not None,
            "instances_known": self._table.is_known,
            "waiting": [one.unit for one in seen.plan.waiting] if seen else [],
        }
