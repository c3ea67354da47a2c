"""The web scheduler's edge: signals become `load.observed` facts; and it answers why the department has what it has.

    phoenix.signal.<department>.<user>.<name>     `schemas.signals`: cpu, requests, claim, sessions, answers; JSON or
                                                  MessagePack
    phoenix.query.scheduler.<department>.why      -> {"instances": …, "reasons": [reason, …]}
    phoenix.query.scheduler.<department>.queue    the same: a web department has no queue
    phoenix.query.scheduler.<department>.troubles -> {"troubles": […]}: what an operator should look at

Rules
  1. At most one observation in FACT_EVERY_S, so that a journal grows by a fact a second, whatever the signals' rate.
  2. But nothing waits that decides something: if the number of instances would change with what has been measured, or rise with
     what is claimed, the observation is written at once.  After a change by load the window restarts, so that happens once a
     window at most; and between any two are HURRY_EVERY_S.  Rules that look at single observations do not hurry
     (`Rule.hurried`), since a fraction of a second would decide: but upwards, where requests were counted for a whole one.
  3. Only the leader writes.  An observation that is refused is given up: a seam of a second, which the window bridges.
  4. A publisher gets no answer.  Errors in its signals are reported by `why`, by `phoenix status`, and once in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from nats.aio.msg import Msg

from schemas import queries, signals, subjects
from schemas.config import CloudConfig
from schemas.facts import Fact, LoadObserved
from schemas.requests import Malformed
from schemas.signal_drops import Drop
from services.domain.custody.meta import Meta
from services.domain.exits import Stop
from services.domain.refusal import Refused
from services.domain.text import sentence
from services.runtime.broker.reply import answer_query, refusal
from services.runtime.callers.audit import Recorder
from services.runtime.service import Edge, Service
from services.runtime.signal_line import Heard, Message, SignalLine
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge import plugins
from services.scheduler.edge.claims import Claims
from services.scheduler.edge.metrics import Counts
from services.scheduler.lookahead.why_web import Told, troubles, why
from services.scheduler.meter.meter import Meter, longest_s
from services.scheduler.meter.plausibility import Existing, Known
from services.scheduler.meter.signal_filter import Trouble

FACT_EVERY_S: Final = 1.0  # DESIGN §2: condensed into at most one fact a second
HURRY_EVERY_S: Final = 0.1  # a claim that rises with every signal
WHOLE_S: Final = 0.9  # a second of a publisher's timer may be a little short
NOBODY: Final = CloudConfig(name="", departments=())  # before the first configuration is adopted


class WebEdge(Edge):
    def __init__(self, department: str) -> None:
        self.department = department
        self.meter = Meter(department)
        self._existing = Existing()
        self._heard = asyncio.Event()
        self._again: asyncio.TimerHandle | None = None
        self._written_at = 0.0

    async def start(self, service: Service) -> None:
        self.service = service
        self.meter.since = service.now()
        self.meter.answers.release_of = self._release_of
        plugins.watch(service, self.department)
        service.registry.register(Counts(self.meter, service.now))
        self._recorder = Recorder(service.nc.publish, service.log)
        self._claims = Claims(self.department, self._recorder.note, service.now)
        service.spawn("audit", self._recorder.run())
        self.line = SignalLine(service, [subjects.signal(self.department, "*", name) for name in signals.SIGNALS])
        await self.line.start(self._on_signals)
        await service.nc.subscribe(subjects.query("scheduler", self.department, "*"), cb=self._on_query)

    def applied(self, fact: Fact, _meta: Meta) -> None:
        plugins.on_applied(self.service, self.department, fact)

    async def lead(self) -> None:
        core = self._core()
        state = core.state
        self.meter.inherit(state.claim, state.claim_by, state.heard_at + core.policy.signal_timeout_s)
        self.service.spawn("load", self._write_forever())

    async def close(self) -> None:
        if hasattr(self, "_recorder"):  # else it has not started
            await self._recorder.flush()

    def ailing(self) -> list[str]:
        if not hasattr(self, "service"):  # it has not started
            return []
        now = self.service.now()
        return [f"{self.department}: {sentence(one)}" for one in troubles(self._core(), now, self._told(now))]

    def _told(self, now: float) -> Told:
        meter = self.meter
        return Told(
            last=meter.last,
            troubles=meter.gate.troubles(now),
            waiting=meter.queue.waiting(now),
            utilisation=meter.utilisation(now),
            failing=meter.answers.failing(now),
            refused=meter.queue.refused(now),
        )

    def _release_of(self, unit: str) -> tuple[int, bool] | None:
        """Of an instance in service, draining or not: what it runs, and whether that is what all are to run.  What the answers
        of one that is closed or lost were is not counted: its end broke them."""
        found = self.service.custody.state.units.get(unit)
        if found is None or found.dept != self.department or found.began_at is None or not found.live:
            return None
        return found.release, found.release == self._core().state.roll.wanted

    def _core(self) -> WebCore:
        core = self.service.core
        assert isinstance(core, WebCore)
        return core

    # --------------------------------------------------------------------------------------------------------- signals

    def _on_signals(self, heard: Heard) -> None:
        _, user, name = subjects.parse_signal(heard.subject)
        policy, gate = self._core().policy, self.meter.gate
        self.meter.timeout_s, self.meter.longest_s = policy.signal_timeout_s, longest_s(policy)
        self.meter.known = self._known(policy.requests_per_instance)
        if heard.folded:
            self._tell(gate.drop(name, Drop.TOO_OFTEN, self.service.now(), user=user, count=heard.folded))
        for message in heard.messages:
            self._tell(self._on_signal(name, user, message))
        if self.meter.pending:
            self._heard.set()

    def _known(self, target: float) -> Known:
        custody = self.service.custody
        instances = len(custody.index.open.get(self.department, ()))
        most = self._existing.most(instances, self.service.now())
        return Known(most, custody.state.instance_last.get(self.department, 0), target)

    def _on_signal(self, name: str, user: str, message: Message) -> Trouble | None:
        gate, at = self.meter.gate, message.at
        if not gate.affords(name, user, len(message.data), at):
            return gate.drop(name, Drop.TOO_OFTEN, at, user=user, note="4 MiB a second are read")
        try:
            signal = signals.decode(name, message.data, message.content_type)
        except Malformed as error:
            return gate.drop(name, Drop.MALFORMED, at, user=user, note=error.message)
        if name == "claim":
            return self._on_claim(signal, at, user)
        why_not = self._claims.untold(user, self.service.custody.state.config or NOBODY, self._core().policy)
        if why_not:
            return gate.drop(name, Drop.NOT_ALLOWED, at, user=user, source=signal.source, note=why_not)
        return self.meter.take(signal, at, user)

    def _on_claim(self, claim: signals.ClaimSignal, at: float, user: str) -> Trouble | None:
        config, policy, gate = self.service.custody.state.config or NOBODY, self._core().policy, self.meter.gate
        judged = self._claims.judged(claim, user, config, policy)
        if isinstance(judged, str):
            if self.service.is_leader:
                self._claims.refused(claim, user, config, judged)
            return gate.drop("claim", Drop.NOT_ALLOWED, at, user=user, source=claim.source, note=judged)
        taken = gate.taken.get("claim", 0)
        trouble = self.meter.take(judged, at, user)
        if self.service.is_leader and gate.taken.get("claim", 0) > taken:
            self._claims.granted(judged, user, config, policy.signal_timeout_s)
        return trouble

    def _tell(self, trouble: Trouble | None) -> None:
        if trouble is not None:
            self.service.log.warning("signals are dropped", what=str(trouble))

    async def _write_forever(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            now = self.service.now()
            fact = self._due(now)
            if fact is not None:
                await self._write(fact, now)
            elif self.meter.pending:
                self._look_again(max(HURRY_EVERY_S, self._written_at + FACT_EVERY_S - now))

    def _look_again(self, after_s: float) -> None:
        """When the second is over, whether more signals come or not."""
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(after_s, self._heard.set)

    def _due(self, now: float) -> LoadObserved | None:
        """The observation to write now, if one is (rules 1 and 2)."""
        fact, since_s = self.meter.observation(now), now - self._written_at
        if fact is None or since_s < HURRY_EVERY_S:
            return None
        whole = self.meter.counted_s() >= WHOLE_S
        return fact if since_s >= FACT_EVERY_S or self._core().would_change(fact, now, whole=whole) else None

    async def _write(self, fact: LoadObserved, now: float) -> None:
        custody = self.service.custody
        units = custody.state.units
        serving = [
            name
            for name in custody.index.open.get(self.department, ())
            if units[name].began_at is not None and units[name].drains_until is None and units[name].broken is None
        ]
        core = self._core()
        answers, answers_s = self.meter.answers.observed(core.state.answers_at, core.watches(now), now)
        quiet = self.meter.quiet(serving, now)
        fact = msgspec.structs.replace(fact, quiet=quiet, answers=answers, answers_s=answers_s)

        def compose(_now: float, _drafted: Sequence[Fact]) -> list[Fact]:
            return [fact]

        try:
            self.meter.observed(fact)  # signals that arrive meanwhile belong to the next one
            self._written_at = now
            await self.service.propose(compose, "signal")
        except Refused as refused:
            self.service.log.warning("load not written", why=refused.message)

    # --------------------------------------------------------------------------------------------------------- queries

    async def _on_query(self, msg: Msg) -> None:
        if self.service.is_leader:
            await answer_query(msg, self.department, self.render(msg.subject.rsplit(".", 1)[1], msg.data))

    def render(self, what: str, data: bytes = b"") -> bytes:
        """The answer to query `what`, as JSON."""
        core, now = self._core(), self.service.now()
        try:
            queries.decode(data, queries.WhyAsked if what == "why" else queries.AllOfIt)
        except Malformed as wrong:
            return refusal("invalid", wrong.message, wrong.field)
        if what == "troubles":
            return msgspec.json.encode(queries.TroublesTold(troubles=troubles(core, now, self._told(now))))
        if what not in ("why", "queue"):
            return refusal("unknown", f"there is no query {what!r}; known: troubles, why")
        try:
            reasons = why(core, now, self._told(now))
        except Stop as error:  # as in `edge_batch`
            return refusal("failed", error.why)
        told = queries.InstancesExplained(instances=core.state.target or 0, serving=core.ready, reasons=reasons)
        return msgspec.json.encode(told)
