"""One example of every message: a small story of two departments, for the generated documents and for tests.

Host node-2 runs job 17 of department hpc; department web gets busy, node-2 goes over to it, the job starts again on node-1.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from schemas import facts as f
from schemas import queries as q
from schemas import reasons as because
from schemas import requests as r
from schemas.audit import AuditBatch, AuditRecord
from schemas.config import BatchPolicy, CloudConfig, Department, User, WebPolicy
from schemas.envelope import Envelope
from schemas.events import Event
from schemas.problems import problem
from schemas.releases import Release
from schemas.requests_whatif import Forecast, Variant
from schemas.signals import AnswersSignal, ClaimSignal, CpuSignal, RequestsSignal, SessionsSignal
from schemas.size import Size
from schemas.start_estimate import Foreseen, JobForeseen, JobsAsked, JobsForeseen, Sure
from schemas.times import exact

AT: Final = 1_780_000_000.0
TIME: Final = datetime.fromtimestamp(AT, UTC)
CLOUD: Final = CloudConfig(
    name="demo",
    departments=(
        Department(name="hpc", kind="batch", batch=BatchPolicy()),
        Department(name="web", kind="web", web=WebPolicy()),
    ),
    users=(User(name="ann", department="hpc"), User(name="root", department="operators", role="operator")),
)

FACTS: Final[tuple[f.Fact, ...]] = (
    f.LeaderStarted(epoch=1, instance="provisioner-4711"),
    f.ConfigAdopted(cloud="c0ffee", custody_rules=2, config=CLOUD),
    f.HostDescribed(
        host="node-2",
        one_id=2,
        cores=8,
        memory_mb=16_384,
        labels={"rack": "a"},
        cluster="default",
        others={"cores": 4, "memory_mb": 8192},
    ),
    f.HostCleared(host="node-2"),
    f.JobSubmitted(
        job="17",
        dept="hpc",
        user="ann",
        name="render",
        payload="job/17",
        cores=8,
        memory_mb=8192,
        tasks=8,
        walltime_s=3600.0,
        after=(f.Dependency(condition="afterok", job="12"),),
        request="2f1c",
    ),
    f.JobHeld(job="17", user="ann"),
    f.JobResumed(job="17", user="ann"),
    f.DemandChanged(dept="hpc", hosts=1, reason=because.Queue(pending=1)),
    f.QuotaChanged(dept="hpc", hosts=2, by=AT, reason=because.IdleToBatch()),
    f.HostGranted(host="node-2", dept="hpc", reason=because.IdleToBatch()),
    f.UnitPlaced(unit="17", attempt=1, hosts=("node-2",), cores=8, memory_mb=8192, reason=because.HeadOfQueue()),
    f.VmAllocated(unit="17", attempt=1, rank=0, vm=31, host="node-2"),
    f.VmStarted(unit="17", attempt=1, rank=0),
    f.AttemptBegan(unit="17", attempt=1, addresses=(None,)),
    f.LoadObserved(
        dept="web",
        start=AT,
        end=AT + 1,
        utilisation=0.93,
        samples=4,
        answers=(f.Answers(release=2, answered=239, errors=2),),
        answers_s=1.0,
    ),
    f.ScaleRequested(dept="web", user="root", minimum=3, until=AT + 3600, request="9a0b"),
    f.AttemptClosed(unit="17", attempt=1, disposal=f.Disposal.REQUEUE, why=because.Reclaimed(host="node-2")),
    f.HostReleased(host="node-2", reason=because.Notice(department="hpc", quota=1, held=2)),
    f.HostSeized(host="node-3", dept="hpc", reason=because.NoticeExpired()),
    f.VmEnded(unit="17", attempt=1, rank=0, why="terminated"),
    f.VmRefused(unit="17", attempt=1, rank=0, failure="quota", why="user [3] limit of 2 reached for VMS quota in VM."),
    f.StartsPaused(since=AT - 2, failed=3, tried=3, why="[one.vm.deploy] no datastore"),
    f.StartsResumed(why="a start succeeded"),
    f.InstanceDraining(unit="web.7", attempt=1, until=AT + 5, reason=because.ScaleDown(instances=3)),
    f.InstanceReported(unit="web.8", attempt=1, state="unready", user="balancer", why="/healthz answered HTTP 500"),
    f.ReleaseRequested(
        dept="web",
        release=2,
        user="wes",
        content=Release(
            image="shop-2", command=("./serve",), environment={"GREETING": "hello"}, secrets={"KEY": "shop-key"}
        ),
        max_unavailable=1,
        request="77ab",
    ),
    f.ReleaseChanged(dept="web", release=2, state="rolling", reason=because.ReleaseDeployed(release=2, user="wes")),
    f.HostLost(host="node-3", reason="stuck: VM 32 outlived a hard terminate"),
    f.HostObserved(host="node-2", cpu=0.87, memory=0.52),
    f.HostQuarantined(host="node-3", reason="3 VMs failed to start", until=AT + 600),
    f.HostCordoned(host="node-3", reason="new memory", user="root", drain=True, until=AT + 3600),
    f.HostUncordoned(host="node-3", reason="done", user="root"),
    f.HostRemoved(host="node-3"),
    f.AttemptReported(unit="17", attempt=2, exit=0, seconds=812.5, cpu_seconds=6400.0, max_rss_mb=7100.0),
    f.AttemptMeasured(unit="18", attempt=1, cpu_seconds=5120.0, max_rss_mb=812.5, ranks=2, heard_at=1_790_000_000.0),
    f.CheckpointReported(
        unit="17",
        attempt=2,
        payload="checkpoint/17/m/5d41",
        files=1,
        size_bytes=4096,
        percent=60.0,
        progress="step 600",
    ),
    f.VmParked(unit="17", attempt=2, rank=0),
    f.VmFailed(unit="18", attempt=1, rank=1, why="it has booted again"),
    f.JobCancelled(job="18", user="ann"),
    f.ArrayHeld(job="19", dept="hpc", elements="1-10000", user="ann"),
    f.ArrayResumed(job="19", dept="hpc", elements="1-99:2,104", user="ann"),
    f.ArrayCancelled(job="19", dept="hpc", elements="1-10000", user="ann"),
    f.LeaseExtended(job="19", walltime_s=7200.0, user="ann"),
    f.DepartmentClosed(dept="old"),
    f.LeaderStopped(epoch=1),
)

ENVELOPE: Final = Envelope(
    id="scheduler.hpc-1-42", writer="scheduler.hpc", epoch=1, at=AT, cause="1203", facts=(FACTS[16], FACTS[17])
)

REQUESTS: Final[dict[str, msgspec.Struct]] = {
    "job.submit": r.JobSubmit(
        name="render", script="#!/bin/sh\nrender scene\n", tasks=8, walltime_s=3600.0, request="2f1c"
    ),
    "job.whatif": r.JobSubmit(name="render", argv=("render", "scene"), tasks=8, nodes=2, walltime_s=3600.0),
    "job.cancel": r.JobsNamed(jobs=("17", "18_3")),
    "job.hold": r.JobsNamed(jobs=("17",)),
    "job.release": r.JobsNamed(jobs=("17",)),
    "lease.create": r.LeaseCreate(
        kind="advance",
        start_at=exact(AT + 600.0),
        duration_s=2700.0,
        nodes=2,
        cores=4,
        name="lecture",
        request="2f1d",
    ),
    "lease.extend": r.LeaseExtend(lease="19", until_at=exact(AT + 7200.0)),
    "lease.cancel": r.LeaseNamed(lease="19"),
    "scale.set": r.ScaleSet(minimum=3, for_s=3600.0),
    "release.deploy": r.ReleaseDeploy(image="shop-2", environment={"GREETING": "hello"}, max_surge=1, request="77ab"),
    "host.cordon": r.HostNamed(host="node-3", reason="new memory"),
    "host.drain": r.HostDrain(host="node-3", reason="new memory", deadline_s=3600.0),
    "host.uncordon": r.HostNamed(host="node-3", reason="done"),
    "instance.list": r.InstanceList(),
    "instance.report": r.InstanceReport(unit="web.7", attempt=1, state="unready", why="/healthz answered HTTP 500"),
    "config.apply": r.ConfigApply(config=CLOUD),
}

REPLIES: Final[tuple[msgspec.Struct, ...]] = (
    r.Submitted(job="17"),
    r.Foretold(
        department="hpc",
        at=exact(AT),
        now=False,
        nodes=2,
        cores=4,
        memory_mb=256,
        walltime_s=3600.0,
        forecast=Forecast(
            start_at=exact(AT + 1800.0),
            hosts=("node-2", "node-3"),
            sure=Sure.BY_WALLTIMES,
            why=because.ByWalltimes(ends=2),
        ),
        variants=(
            Variant(
                field="walltime_s",
                value=1800.0,
                forecast=Forecast(
                    start_at=exact(AT),
                    hosts=("node-1", "node-4"),
                    sure=Sure.BY_WALLTIMES,
                    why=because.ByWalltimes(ends=0),
                ),
            ),
        ),
    ),
    r.JobResults(
        results=(
            r.JobResult(job="17"),
            r.JobResult(job="18_3", error=problem("unknown", "no such job: 18_3", "jobs[1]")),
        )
    ),
    r.Done(),
    r.Instances(
        instances=(
            r.Instance(
                unit="web.7",
                attempt=1,
                address="127.0.0.1:9001",
                state="running",
                host="node-2",
                cores=1,
                release=2,
                health_path="/healthz",
                connections=4,
            ),
        ),
        drain_s=5.0,
        unreachable_s=10.0,
        health_path="/healthz",
    ),
    r.Deployed(release=2, start_failures_max=5, boot_timeout_s=60.0),
    r.LeaseGranted(lease="19", kind="advance", nodes=2, start_at=exact(AT + 600), end_at=exact(AT + 3300)),
    r.ConfigApplied(position=1204),
    problem("denied", "only operators may drain hosts"),
    problem(
        "conflict",
        "start_at: at 2026-02-03T04:15:05Z it collides with lease 19; possible instead: 1 node from …",
        "start_at",
        lease=r.LeaseRefusal(
            at=exact(AT + 600),
            collides_with=("19",),
            earliest=r.LeaseOffer(nodes=3, start_at=exact(AT + 3300), end_at=exact(AT + 6900)),
            smaller=r.LeaseOffer(nodes=1, start_at=exact(AT + 600), end_at=exact(AT + 4200)),
        ),
    ),
)

SIGNALS: Final[dict[str, msgspec.Struct]] = {
    "requests": RequestsSignal(rate=412.5, queue=0, response_ms=18.2, errors=0.0, at=exact(AT), source="haproxy-1"),
    "claim": ClaimSignal(instances=6, at=exact(AT), source="rush-plan"),
    "sessions": SessionsSignal(sessions={"web.7": 3, "web.8": 0}, at=exact(AT), source="haproxy-1"),
    "answers": AnswersSignal(instances={"web.7": (118, 2), "web.8": (121, 0)}, at=exact(AT), source="haproxy-1"),
    "cpu": CpuSignal(utilisation=0.93, instances=4, at=exact(AT), interval_s=1.0, source="haproxy-1"),
}

QUERIES: Final[dict[str, msgspec.Struct]] = {
    "monitor.queue": q.QueueAsked(limit=100),
    "monitor.job": q.JobAsked(job="17"),
    "monitor.hosts": q.AllOfIt(),
    "monitor.departments": q.AllOfIt(),
    "monitor.department": q.AllOfIt(),
    "monitor.releases": q.AllOfIt(),
    "monitor.overview": q.AllOfIt(),
    "monitor.usage": q.UsageAsked(by="user", since=exact(AT), until=exact(AT + 86400.0)),
    "scheduler.why": q.WhyAsked(job="17"),
    "scheduler.queue": q.QueueAsked(limit=100),
    "scheduler.start": q.StartAsked(jobs=("17",)),
    "scheduler.reasons": q.AllOfIt(),
    "scheduler.troubles": q.AllOfIt(),
    "scheduler.whatif": JobsAsked(
        jobs=[f.JobSubmitted(job="1", dept="hpc", user="ann", name="render", payload="", tasks=8, walltime_s=3600.0)]
    ),
}

_WAITS: Final = because.WaitsForHosts(nodes=2, cores=4, free=1, short=1, held=3, ahead=1)
_FORESEEN: Final = Foreseen(
    start_at=exact(AT + 1800.0), hosts=("node-2",), sure=Sure.BY_WALLTIMES, because=because.ByWalltimes(ends=2)
)
ANSWERS: Final[tuple[msgspec.Struct, ...]] = (
    q.JobExplained(job="17", unit="17", reasons=[_WAITS]),
    q.InstancesExplained(instances=4, serving=3, reasons=[because.UtilisationHigh(instances=3, utilisation=0.93)]),
    q.TroublesTold(troubles=[because.SignalMissing(timeout_s=10.0, silent_s=42.0, signal="cpu", source="haproxy-1")]),
    q.JobQueue(
        pending=2,
        queue=(
            q.QueuePlace(
                place=1, unit="17", priority=9, **Size(4, 4096).fields(), nodes=2, exclusive=False, constraint=""
            ),
            q.QueuePlace(
                place=2, unit="18_1", priority=0, **Size(8, 512).fields(), nodes=1, exclusive=True, constraint="rack=a"
            ),
        ),
    ),
    q.StartsForeseen(at=exact(AT), starts={"17": _FORESEEN}),
    q.QueueExplained(reasons={"17": _WAITS}, rest={"waits_behind": ["18", "19_4"]}),
    JobsForeseen(at=exact(AT), now=False, found=[JobForeseen(first=_FORESEEN, last=_FORESEEN)]),
)

AUDIT: Final = AuditBatch(
    records=(
        AuditRecord(
            at=AT,
            kind="job.submit",
            outcome="granted",
            via="http",
            user="ann",
            department="hpc",
            role="user",
            names=("17",),
            peer="10.1.2.3",
            client="curl/8.5.0",
            request="4f1c",
            position=1203,
        ),
        AuditRecord(
            at=AT,
            kind="host.drain",
            outcome="refused",
            via="nats",
            user="ann",
            department="hpc",
            role="user",
            names=("h1",),
            peer="10.1.2.3",
            code="denied",
            message="only operators may drain hosts",
        ),
    )
)


def event(fact: f.Fact, index: int = 0) -> Event:
    """The public event of a fact."""
    department = str(getattr(fact, "dept", "site"))
    return Event(
        id=f"1203.{index}",
        position=1203,
        index=index,
        at=TIME,
        kind=f.kind_of(fact),
        department=department,
        writer="provisioner",
        fact=fact,
    )
