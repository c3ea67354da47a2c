"""The web scheduler's edge: CPU signals become `load.observed` facts; and it answers why the department has what it has.

    phoenix.signal.<department>.cpu               `schemas.signals.CpuSignal`, JSON or MessagePack
    phoenix.query.scheduler.<department>.why      -> {"ok": true, "instances": …, "reasons": [{code, params}, …]}
    phoenix.query.scheduler.<department>.queue    the same: a web department has no queue

Rules
  1. At most one observation in FACT_EVERY_S, so that a journal grows by a fact a second, whatever the signals' rate.
  2. But nothing waits that decides something: if the number of instances would change with what has been measured, the
     observation is written at once.  After it the window begins anew, so this happens at most once a window.  Rules that
     look at single observations do not hurry (`Rule.hurried`): a fraction of a second would decide.
  3. Only the leader writes.  An observation that is refused is given up: a seam of a second, which the window bridges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from schemas import signals, subjects
from schemas.facts import Fact, LoadObserved
from schemas.meta import Meta
from schemas.requests import Malformed
from services.runtime.answer import answer
from services.runtime.edge import Edge, Refused
from services.runtime.exits import Stop
from services.runtime.service import Service
from services.scheduler import plugins
from services.scheduler.edge_batch import refusal
from services.scheduler.meter import Meter
from services.scheduler.web import WebCore
from services.scheduler.web_why import why

FACT_EVERY_S: Final = 1.0  # DESIGN §2: condensed into at most one fact a second
_JSON: Final = {"Content-Type": "application/json"}


class WebEdge(Edge):
    def __init__(self, department: str) -> None:
        self.department = department
        self.meter = Meter(department)
        self._heard = asyncio.Event()
        self._written_at = 0.0

    async def start(self, service: Service) -> None:
        self.service = service
        plugins.watch(service, self.department)
        service.registry.register(_Counts(self.meter))
        await service.nc.subscribe(subjects.signal(self.department, "cpu"), cb=self._on_signal)
        await service.nc.subscribe(subjects.query("scheduler", self.department, "*"), cb=self._on_query)

    def applied(self, fact: Fact, _meta: Meta) -> None:
        plugins.on_applied(self.service, self.department, fact)

    async def lead(self) -> None:
        self.service.spawn("load", self._write_forever())

    # --------------------------------------------------------------------------------------------------------- signals

    async def _on_signal(self, msg: Msg) -> None:
        try:
            signal = signals.decode("cpu", msg.data, (msg.headers or {}).get("Content-Type", ""))
        except Malformed:
            self.meter.drop("malformed")
            return
        if self.meter.take(signal, self.service.now()):
            self._heard.set()

    async def _write_forever(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            fact = self._due(self.service.now())
            if fact is not None:
                await self._write(fact)

    def _due(self, now: float) -> LoadObserved | None:
        """The observation to write now, if one is (rules 1 and 2)."""
        fact = self.meter.observation(now)
        core = self.service.core
        assert isinstance(core, WebCore)
        if fact is None or (now - self._written_at < FACT_EVERY_S and not core.would_change(fact, now)):
            return None
        return fact

    async def _write(self, fact: LoadObserved) -> None:
        def compose(_now: float, _drafted: Sequence[Fact]) -> list[Fact]:
            return [fact]

        try:
            self.meter.observed(fact)  # signals that arrive meanwhile belong to the next one
            await self.service.propose(compose, "signal")
            self._written_at = fact.end
        except Refused as refused:
            self.service.log.warning("load not written", why=refused.message)

    # --------------------------------------------------------------------------------------------------------- queries

    async def _on_query(self, msg: Msg) -> None:
        if self.service.is_leader:
            await answer(msg, self.department, self.render(msg.subject.rsplit(".", 1)[1]), _JSON)

    def render(self, what: str) -> bytes:
        core = self.service.core
        assert isinstance(core, WebCore)
        if what not in ("why", "queue"):
            return refusal("unknown", f"there is no query {what!r}; known: why")
        shown: dict[str, Any] = {"ok": True, "instances": core.state.target or 0, "serving": core.state.serving}
        try:
            return msgspec.json.encode({**shown, "reasons": why(core, self.service.now())})
        except Stop as error:  # as in `edge_batch`
            return refusal("failed", error.why)


class _Counts(Collector):
    """Signals taken and dropped."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> list[Any]:
        taken = CounterMetricFamily("phoenix_signals_taken", "CPU signals that were averaged", value=self.meter.taken)
        dropped = CounterMetricFamily(
            "phoenix_signals_dropped", "CPU signals that were not, by reason", labels=["reason"]
        )
        for reason, count in sorted(self.meter.dropped.items()):
            dropped.add_metric([reason], count)
        return [taken, dropped]
