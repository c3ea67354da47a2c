"""The schedulers on a real broker: signals become observations and claims, questions are answered."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from schemas import facts as f
from schemas.audit import AuditBatch, AuditRecord
from schemas.config import CloudConfig, User
from schemas.envelope import decode
from schemas.times import exact
from services.domain.custody.rules import RULES
from services.runtime.service import Service
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.edge.web import WebEdge
from tests.support.shells import World
from tests.support.until import DEADLINE_S, until
from tests.support.world import batch, web

WINDOW_S = 1.0
INTERVAL_S = 0.1
WAL = User(name="wal", department="web")


async def scheduler(here: World, kind: str, **policy: Any) -> Service:
    """The scheduler of department hpc or web, leading, with one host h1 held by it and its VM serving."""
    departments = (batch("hpc"), web("web", rule="threshold", window_s=WINDOW_S, signal_timeout_s=5.0, **policy))
    users = (User(name="wim", department="web", role="manager"), User(name="lb", department="web"), WAL)
    config = CloudConfig(name="c", departments=departments, users=users)
    await here.write(f.ConfigAdopted(cloud="c", custody_rules=RULES, config=config))
    await here.write(f.HostDescribed(host="h1", one_id=1, cores=4, memory_mb=4096), writer="executor")
    await here.write(f.HostCleared(host="h1"), writer="executor")
    await here.write(f.QuotaChanged(dept=kind, hosts=1, by=time.time()), f.HostGranted(host="h1", dept=kind))
    core: Any = (lambda c: WebCore(c, "web")) if kind == "web" else (lambda c: BatchCore(c, "hpc"))
    edge = WebEdge("web") if kind == "web" else BatchEdge("hpc")
    service = await here.start("s1", writer=f"scheduler.{kind}", core=core, edges=[edge]).leads()
    await service.wait_for(5, DEADLINE_S)
    if isinstance(edge, WebEdge):
        edge.meter.since -= 60  # it has listened for long enough to have heard all sources
    return service


async def signal(here: World, utilisation: float, **fields: Any) -> None:
    payload = {"utilisation": utilisation, "at": exact(time.time()), "interval_s": INTERVAL_S, "source": "b1", **fields}
    await here.admin.publish("phoenix.signal.web.lb.cpu", json.dumps(payload).encode())


async def ask(here: World, department: str, what: str, query: dict[str, Any]) -> dict[str, Any]:
    """Ask as a person of the department does: answers go to its inbox."""
    inbox = f"_INBOX_{department}.ann.{time.monotonic_ns()}"
    subscription = await here.admin.subscribe(inbox)
    subject = f"phoenix.query.scheduler.{department}.{what}"
    await here.admin.publish(subject, json.dumps(query).encode(), reply=inbox)
    found: dict[str, Any] = msgspec.json.decode((await subscription.next_msg(timeout=30)).data)
    await subscription.unsubscribe()
    return found


async def test_a_high_load_becomes_a_claim_within_one_signal_of_the_full_window(here: World) -> None:
    service = await scheduler(here, "web")
    core = service.core
    assert isinstance(core, WebCore)
    await until(lambda: service.custody.index.open.get("web"), "an instance is placed")
    await here.write(f.AttemptBegan(unit="web.1", attempt=1), writer="admission")
    await until(lambda: core.state.serving == 1, "it serves")
    began = time.monotonic()
    for _ in range(round(WINDOW_S / INTERVAL_S) + 4):
        if core.state.target != 2:
            await signal(here, 0.95)
            await asyncio.sleep(INTERVAL_S)
    await until(lambda: core.state.target == 2, "these signals make a claim")
    most = 3 + (time.monotonic() - began)  # a fact a second, and the one that decided
    observed = core.state.samples
    assert service.custody.state.demands["web"] == 2
    assert len(observed) <= most
    answer = await ask(here, "web", "why", {})
    assert (answer["instances"], answer["serving"]) == (2, 1)
    assert "waits_for_hosts" in [reason["code"] for reason in answer["reasons"]]


async def send(here: World, name: str, user: str = "lb", **fields: Any) -> None:
    await here.admin.publish(f"phoenix.signal.web.{user}.{name}", json.dumps({"source": "b1", **fields}).encode())


async def test_signals_that_mean_nothing_are_counted_and_dropped_and_told(here: World) -> None:
    service = await scheduler(here, "web")
    edge = service.edges[0]
    assert isinstance(edge, WebEdge)
    for payload in (b"", b"{", b'{"utilisation": -1}', b'{"utilisation": NaN}', b"\xc1", b'{"utilisation": 1e9}'):
        await here.admin.publish("phoenix.signal.web.lb.cpu", payload)
    for _ in range(5):
        await signal(here, 0.5, at=exact(time.time() - 3600), source="an hour behind")
    await here.admin.publish("phoenix.signal.web.lb.memory", b"{}")  # no signal: no process listens
    await signal(here, 0.5)
    await until(lambda: edge.meter.gate.taken == {"cpu": 1}, "the good one is taken")
    assert edge.meter.gate.dropped == {("cpu", "malformed"): 6, ("cpu", "late"): 5}
    for _ in range(20):  # 10 MiB at once
        await here.admin.publish("phoenix.signal.web.lb.sessions", b" " * (512 << 10))
    await until(
        lambda: sum(n for (name, _), n in edge.meter.gate.dropped.items() if name == "sessions") == 20, "all came"
    )
    assert edge.meter.gate.dropped["sessions", "too_often"] >= 8
    await until(lambda: isinstance(service.core, WebCore) and service.core.state.samples, "it is in the journal")
    async with asyncio.timeout(30.0):
        while len(edge.ailing()) < 3:  # on a slow machine a part of each flood could be read: five make it
            for _ in range(20):
                await here.admin.publish("phoenix.signal.web.lb.sessions", b" " * (512 << 10))
            await here.admin.flush()
    unreadable, behind, _flood = edge.ailing()
    assert unreadable.startswith("web: 6 cpu signals of user lb were dropped: they cannot be read (")
    assert behind == "web: 5 cpu signals of an hour behind (user lb) were dropped: its clock is 3600.0 s behind"
    told = list((await ask(here, "web", "why", {}))["reasons"])
    dropped = [(one["why"], one["count"]) for one in told if one.get("why") and one.get("signal") == "cpu"]
    assert dropped == [("malformed", 6), ("late", 5)]
    text = generate_latest(service.registry).decode()
    for line in (
        'phoenix_signals_taken_total{department="web",signal="cpu"} 1.0',
        'phoenix_signals_dropped_total{department="web",reason="late",signal="cpu"} 5.0',
        'phoenix_signal_age_seconds{department="web",signal="cpu"}',
    ):
        assert line in text


async def test_a_scheduler_that_starts_goes_on_with_the_claim_of_the_journal(here: World) -> None:
    """The claimant has not sent it a signal yet; the balancer's next signal must not take the claim back."""
    now = time.time()
    await here.write(f.LoadObserved(dept="web", start=now, end=now, claim=3, samples=1), writer="scheduler.web")
    service = await scheduler(here, "web")
    core = service.core
    assert isinstance(core, WebCore)
    await until(lambda: core.state.target == 3, "the claim is the number")
    await signal(here, 0.1)
    await until(lambda: core.state.load_at, "the load is in the journal")
    assert (core.state.claim, core.state.target) == (3, 3)


async def test_a_claim_is_heard_at_once_with_requests_and_sessions_beside_it(here: World) -> None:
    service = await scheduler(here, "web")
    core, observed = service.core, list[f.LoadObserved]()
    assert isinstance(core, WebCore)
    events = await here.admin.subscribe("phoenix.journal.scheduler.web")
    await until(lambda: service.custody.index.open.get("web"), "an instance is placed")
    await here.write(f.AttemptBegan(unit="web.1", attempt=1), writer="admission")
    await until(lambda: core.state.serving == 1, "it serves")
    await send(here, "sessions", sessions={"web.1": 3})
    await send(here, "requests", rate=70.0, target=100)
    await until(lambda: core.state.heard_at, "the load is in the journal")
    await send(here, "claim", "wim", instances=3)
    await until(lambda: core.state.target == 3, "the claim is the number")
    while not observed or observed[-1].claim != 3:
        envelope = decode((await events.next_msg(timeout=30)).data, "scheduler.web")
        observed += [fact for fact in envelope.facts if isinstance(fact, f.LoadObserved)]
    assert ("web.1",) in [fact.quiet for fact in observed]
    assert 100.0 in [fact.requests_per_instance for fact in observed]
    assert (observed[-1].claim_by, ("lb",) in [fact.load_by for fact in observed]) == ("wim", True)
    assert service.custody.state.demands["web"] == 3
    assert "claimed" in [reason["code"] for reason in (await ask(here, "web", "why", {}))["reasons"]]


async def test_who_may_not_claim_is_dropped_and_named_and_the_audit_has_both(here: World) -> None:
    service = await scheduler(here, "web")
    core, edge = service.core, service.edges[0]
    assert isinstance(core, WebCore)
    assert isinstance(edge, WebEdge)
    audit = await here.admin.subscribe("phoenix.audit.web.*")
    await here.admin.flush()
    for _ in range(5):
        await send(here, "claim", "lb", instances=1_000_000)
        await send(here, "claim", "wim", instances=3)  # the same one
    await until(lambda: core.state.target == 3, "the manager's counts")
    await until(lambda: edge.meter.gate.dropped == {("claim", "not_allowed"): 5}, "the balancer's does not")
    dropped = (
        "5 claim signals of b1 (user lb) were dropped: their user may not send them "
        "(it claims 1000000 instances; claim_max_user of web is 0)"
    )
    assert edge.ailing() == [f"web: {dropped}"]
    reasons = (await ask(here, "web", "why", {}))["reasons"]
    assert {"code": "claimed", "instances": 3, "by": "wim"} in reasons
    found: list[AuditRecord] = []
    while len({record.outcome for record in found}) < 2:
        found += msgspec.json.decode((await audit.next_msg(timeout=30)).data, type=AuditBatch).records
    (granted,) = [record for record in found if record.outcome == "granted"]
    assert (granted.kind, granted.user, granted.role) == ("signal.claim", "wim", "manager")
    assert granted.names == ("web", "3 instances")
    refused = next(record for record in found if record.outcome == "refused")
    assert (refused.user, refused.names, refused.code) == ("lb", ("web", "1000000 instances"), "denied")


async def test_who_is_no_balancer_is_dropped_and_named(here: World) -> None:
    edge = (await scheduler(here, "web", balancers=("lb",))).edges[0]
    assert isinstance(edge, WebEdge)
    for _ in range(5):
        await send(here, "cpu", "wal", utilisation=5.0)
    await send(here, "requests", "wal", rate=1000.0, target=1)
    await send(here, "sessions", "wal", sessions={})
    await send(here, "answers", "wal", instances={})
    await send(here, "cpu", "lb", utilisation=0.5)
    await send(here, "cpu", "wim", utilisation=0.6)
    await until(lambda: edge.meter.gate.taken == {"cpu": 2}, "the balancer's and the manager's count")
    others = {(name, "not_allowed"): 1 for name in ("requests", "sessions", "answers")}
    await until(lambda: edge.meter.gate.dropped == {("cpu", "not_allowed"): 5, **others}, "the other's do not")
    dropped = "5 cpu signals of b1 (user wal) were dropped: their user may not send them (balancers of web: lb)"
    assert edge.ailing() == [f"web: {dropped}"]
    (last,) = [one for one in (await ask(here, "web", "why", {}))["reasons"] if one["code"] == "signals_dropped"]
    assert (last["user"], last["why"]) == ("wal", "not_allowed")


async def test_why_and_queue_are_answered_and_jobs_are_placed(here: World) -> None:
    service = await scheduler(here, "hpc")
    fields: dict[str, Any] = {"dept": "hpc", "user": "ann", "name": "j", "payload": "p", "walltime_s": 60.0}
    await here.write(f.JobSubmitted(job="1", cores=4, **fields), writer="admission")
    await here.write(f.JobSubmitted(job="2", cores=4, **fields), writer="admission")
    await until(lambda: service.custody.index.open.get("hpc"), "job 1 is placed")
    answer = await ask(here, "hpc", "why", {"job": "2"})
    assert answer["reasons"][0]["code"] == "waits_for_hosts"
    assert answer["reasons"][0]["short"] == 1
    shown = await ask(here, "hpc", "queue", {})
    assert (shown["pending"], [entry["unit"] for entry in shown["queue"]]) == (1, ["2"])
    unknown = await ask(here, "hpc", "why", {"job": "9"})
    assert unknown["code"] == "unknown"


async def test_a_restarted_scheduler_is_the_same_bytes(here: World) -> None:
    service = await scheduler(here, "hpc")
    fields: dict[str, Any] = {"dept": "hpc", "user": "ann", "name": "j", "payload": "p", "walltime_s": 60.0}
    for number in range(1, 6):
        await here.write(f.JobSubmitted(job=str(number), array=(1, 2), **fields), writer="admission")
    await until(lambda: len(service.custody.index.open.get("hpc", ())) == 4, "the host is full")
    await here.write(f.HostLost(host="h1", reason="x"), writer="executor")
    await until(lambda: not service.custody.index.open.get("hpc"), "all are requeued")
    live = service.custody.dump(), service.core.dump()
    assert await here.replayed(lambda c: BatchCore(c, "hpc")) == live


def test_an_unknown_department_is_told_in_one_line(tmp_path: Path) -> None:
    from services.runtime.config.file import ConfigError, load
    from services.runtime.main import Options
    from services.scheduler.__main__ import build

    file = Path(__file__).parents[2] / "deploy" / "phoenix.toml"
    with pytest.raises(ConfigError, match=r"--department: nope: a department of the file \(hpc, web\)"):
        build(load(file), Options(file, "nope", "s1", ()))
