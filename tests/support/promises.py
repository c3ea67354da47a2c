"""Who may say and hear what on NATS, as docs/explanation/security.md and docs/protocol.md ("Accounts") promise it.

By hand, and not from `services.runtime.broker`: what the code grants is held against this.  `*` and `>` as in NATS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.support.clouds import cloud


class Promise(NamedTuple):
    """Everything that one may publish, and subscribe to.  What is not here is denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


CLOUD: Final = cloud(
    "hpc:batch web:web", "ann:hpc bob:hpc mia:hpc:manager lb:web wim:web:manager root:operators:operator"
)
STREAMS: Final = ("PHOENIX", "EVENTS", "AUDIT", "KV_PHOENIX_LEASES", "OBJ_PHOENIX_SNAPSHOTS", "OBJ_PHOENIX_OBJECTS")


def of_user(department: str, user: str) -> Promise:
    """A user or a manager: NATS knows no difference, the door does."""
    return Promise(
        publish=(
            f"phoenix.request.{department}.{user}.>",
            f"phoenix.signal.{department}.{user}.*",
            f"phoenix.query.*.{department}.>",
        ),
        subscribe=(f"_INBOX_{department}.{user}.>", f"phoenix.event.{department}.>", f"phoenix.measure.{department}.>"),
    )


def reads(stream: str) -> tuple[str, ...]:
    api = "$JS.API"
    return (
        f"{api}.STREAM.INFO.{stream}", f"{api}.STREAM.MSG.GET.{stream}", f"{api}.DIRECT.GET.{stream}",
        f"{api}.DIRECT.GET.{stream}.>", f"{api}.CONSUMER.CREATE.{stream}", f"{api}.CONSUMER.CREATE.{stream}.>",
        f"{api}.CONSUMER.INFO.{stream}.*", f"{api}.CONSUMER.DELETE.{stream}.*", f"{api}.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.ACK.{stream}.>", f"$JS.ACK.*.*.{stream}.>", f"$JS.FC.{stream}.>", f"$JS.FC.*.*.{stream}.>",
    )  # fmt: skip


def keeps(bucket: str) -> tuple[str, ...]:
    return (*reads(f"OBJ_{bucket}"), f"$JS.API.STREAM.PURGE.OBJ_{bucket}", f"$O.{bucket}.>")


def of_service(process: str, publish: tuple[str, ...], subscribe: tuple[str, ...]) -> Promise:
    """What each does: read the journal, hold its own lease, keep snapshots, look whether the streams are what they must be, and
    answer."""
    every = (
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        *(f"$JS.API.STREAM.INFO.{stream}" for stream in STREAMS),
        *reads("PHOENIX"),
        *reads("KV_PHOENIX_LEASES"),
        f"$KV.PHOENIX_LEASES.{process}",
        *keeps("PHOENIX_SNAPSHOTS"),
        "_R_.>",
    )
    return Promise((*every, *publish), (f"_INBOX_service.{process}.>", *subscribe))


def of_scheduler(department: str, *publish: str) -> Promise:
    process = f"scheduler.{department}"
    return of_service(
        process,
        (f"phoenix.journal.{process}", "_INBOX_asking.>", *publish),
        (f"phoenix.signal.{department}.*.*", f"phoenix.query.scheduler.{department}.>"),
    )


PROMISES: Final = {
    "ann": of_user("hpc", "ann"),
    "bob": of_user("hpc", "bob"),
    "mia": of_user("hpc", "mia"),
    "lb": of_user("web", "lb"),
    "wim": of_user("web", "wim"),
    "root": Promise(
        publish=("phoenix.request.*.root.>", "phoenix.query.>"),
        subscribe=("_INBOX_operators.root.>", "phoenix.event.>", "phoenix.audit.>", "phoenix.measure.*.>"),
    ),
    "service-admission": of_service(
        "admission",
        (
            "phoenix.journal.admission", "phoenix.audit.>", "phoenix.signal.*.*.*", "phoenix.measure.*.>",
            "phoenix.query.scheduler.*.whatif", *keeps("PHOENIX_OBJECTS"),
        ),
        ("phoenix.request.>", "phoenix.query.admission.>", "_INBOX_asking.admission.>"),
    ),
    "service-provisioner": of_service(
        "provisioner",
        ("phoenix.journal.provisioner", "phoenix.audit.operators.*"),
        ("phoenix.request.*.*.config.>", "phoenix.query.provisioner.>"),
    ),
    "service-executor": of_service("executor", ("phoenix.journal.executor",), ("phoenix.query.executor.>",)),
    "service-monitor": of_service(
        "monitor",
        (
            "phoenix.event.>", "phoenix.audit.>", "$JS.API.STREAM.PURGE.PHOENIX", *reads("EVENTS"), *reads("AUDIT"),
            *(f"phoenix.query.scheduler.*.{what}" for what in ("why", "start", "reasons", "troubles")),
        ),
        (
            "phoenix.query.monitor.>", "phoenix.signal.*.*.*", "phoenix.measure.*.>", "phoenix.audit.>",
            "_INBOX_asking.monitor.>",
        ),
    ),
    "service-scheduler.hpc": of_scheduler("hpc"),
    "service-scheduler.web": of_scheduler("web", "phoenix.audit.web.*", "phoenix.audit.operators.*"),
    "service-admin": Promise(("$JS.API.>", "phoenix.audit.operators.*"), ("_INBOX_service.admin.>",)),
    "service-watch": Promise(
        ("$SYS.REQ.SERVER.PING.HEALTHZ",), ("$SYS.SERVER.*.CLIENT.AUTH.ERR", "_INBOX_watch.>")
    ),
}  # fmt: skip


def covers(pattern: str, subject: str) -> bool:
    """Whether everything that `subject` (which may have wildcards) means is in `pattern`."""
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or tokens[index] == ">" or (token not in ("*", tokens[index])):
            return False
    return len(wanted) == len(tokens)


DEPARTMENTS: Final = ("hpc", "web", "operators", "bio")  # bio: there is none
USERS: Final = ("ann", "bob", "mia", "lb", "wim", "root", "nobody")
WRITERS: Final = ("admission", "provisioner", "executor", "monitor", "scheduler.hpc", "scheduler.web", "scheduler", "x")
KINDS: Final = ("job.submit", "job.cancel", "scale.set", "host.drain", "config.apply", "release.deploy", "x", "a.b.c")
_STREAM_CALLS: Final = (
    "CREATE", "UPDATE", "DELETE", "INFO", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE", "PEER.REMOVE",
    "LEADER.STEPDOWN",
)  # fmt: skip
_CONSUMER_CALLS: Final = (
    "CREATE.{}", "CREATE.{}.c", "CREATE.{}.c.phoenix.journal.x", "DURABLE.CREATE.{}.c", "INFO.{}.c", "DELETE.{}.c",
    "LIST.{}", "NAMES.{}", "MSG.NEXT.{}.c", "PAUSE.{}.c", "UNPIN.{}.c", "RESET.{}.c", "LEADER.STEPDOWN.{}.c",
)  # fmt: skip
_WILD: Final = (
    ">", "*", "*.>", "*.*", "phoenix.>", "phoenix.*.>", "phoenix.*.hpc.>", "phoenix.*.*.ann.>", "*.journal.>",
    *(f"phoenix.{family}.>" for family in ("journal", "request", "query", "signal", "measure", "event", "audit", "x")),
    *(f"phoenix.{family}.*" for family in ("journal", "event", "audit", "measure")),
    *(f"phoenix.{family}.{d}.>" for family in ("request", "event", "audit", "signal", "measure") for d in DEPARTMENTS),
    *(f"phoenix.event.{d}.*.*" for d in DEPARTMENTS), "phoenix.event.*.job.submitted", "phoenix.measure.*.instances",
    "phoenix.measure.*.>", "phoenix.signal.*.*.cpu", "phoenix.signal.*.*.*", "phoenix.request.*.*.*.*",
    "phoenix.request.*.*.config.>", "phoenix.request.*.*.config.apply", "phoenix.request.*.ann.>",
    *(f"phoenix.query.{service}.>" for service in ("admission", "provisioner", "executor", "monitor", "scheduler")),
    "phoenix.query.*.hpc.>", "phoenix.query.scheduler.*.why", "phoenix.query.scheduler.hpc.*",
    "_INBOX.>", "_INBOX.*", "_INBOX_hpc.>", "_INBOX_hpc.*.>", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.*", "_INBOX_web.>",
    "_INBOX_operators.>", "_INBOX_service.>", "_INBOX_service.*.>", "_INBOX_service.monitor.>", "_INBOX_asking.>",
    "_INBOX_asking.monitor.>", "_INBOX_asking.admission.>", "_INBOX_watch.>", "_R_.>", "_R_.*.*", "_GR_.>",
    "$JS.>", "$JS.API.>", "$JS.EVENT.>", "$JS.ACK.>", "$KV.>", "$KV.PHOENIX_LEASES.>", "$KV.PHOENIX_LEASES.*", "$O.>",
    "$O.PHOENIX_OBJECTS.>", "$O.PHOENIX_SNAPSHOTS.>", "$SYS.>", "$SYS.SERVER.*.CLIENT.AUTH.ERR", "$SYS.ACCOUNT.>",
    "$SYS.SERVER.>", "$SRV.>", "$NRG.>",
)  # fmt: skip
_SERVERS: Final = (
    "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.HEALTHZ", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.PING.SUBSZ",
    "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.SUBSZ", "$SYS.REQ.ACCOUNT.PING.STATZ",
    "$SYS.REQ.ACCOUNT.control.CONNZ", "$SYS.REQ.ACCOUNT.control.INFO", "$SYS.REQ.SERVER.x.RELOAD",
    "$SYS.REQ.SERVER.x.KICK", "$SYS.REQ.SERVER.x.LDM", "$SYS.REQ.USER.INFO", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.LIST",
    "$SYS.SERVER.x.CLIENT.AUTH.ERR", "$SYS.ACCOUNT.control.CONNECT", "$SYS.SERVER.x.SHUTDOWN", "$SYS.DEBUG.SUBSCRIBERS",
)  # fmt: skip


def subjects() -> list[str]:
    """What a client may try: of every family, for every name, also such as there are not."""
    return list(
        dict.fromkeys((*_phoenix(), *_answers(), *_jetstream(), *_SERVERS, "x", "phoenix", "phoenix.x", *_WILD))
    )


def _phoenix() -> Iterator[str]:
    for department in DEPARTMENTS:
        for user in USERS:
            yield from (f"phoenix.request.{department}.{user}.{kind}" for kind in KINDS)
            yield from (f"phoenix.signal.{department}.{user}.{name}" for name in ("cpu", "sessions", "a.b"))
        for service in ("admission", "provisioner", "executor", "monitor", "scheduler", "x"):
            for what in ("why", "whatif", "queue", "reasons", "start", "troubles"):
                yield f"phoenix.query.{service}.{department}.{what}"
    for department in (*DEPARTMENTS, "site"):
        yield from (f"phoenix.event.{department}.{kind}" for kind in ("job.submitted", "host.granted", "x"))
        yield from (f"phoenix.measure.{department}.{name}" for name in ("instances", "jobs", "a.b"))
        yield from (f"phoenix.audit.{department}.{outcome}" for outcome in ("granted", "refused", "x.y"))
    yield from (f"phoenix.journal.{writer}" for writer in WRITERS)


def _answers() -> Iterator[str]:
    places = {"hpc": USERS[:3], "web": USERS[3:5], "operators": ("root", "monitor"), "service": (*WRITERS, "admin")}
    for place, names in (*places.items(), ("asking", ("monitor", "admission")), ("watch", ("x",))):
        for name in names:
            yield f"_INBOX_{place}.{name}"
            yield f"_INBOX_{place}.{name}.t.1"
    yield from ("_INBOX.x", "_INBOX_hpc", "_INBOX_hpcx.ann.t", "_R_.a.b", "_R_.a", "_GR_.a.b.c", "$GNR.x")


def _jetstream() -> Iterator[str]:
    yield from (f"$JS.API.{call}" for call in ("INFO", "STREAM.LIST", "STREAM.NAMES", "META.LEADER.STEPDOWN", "x"))
    yield from ("$JS.API.ACCOUNT.PURGE.control", "$JS.x.API.INFO", "$JS.EVENT.ADVISORY.x", "$JS.EVENT.METRIC.x")
    for stream in (*STREAMS, "OTHER"):
        yield from (f"$JS.API.STREAM.{call}.{stream}" for call in _STREAM_CALLS)
        yield from (f"$JS.API.CONSUMER.{call.format(stream)}" for call in _CONSUMER_CALLS)
        yield from (f"$JS.API.DIRECT.GET.{stream}", f"$JS.API.DIRECT.GET.{stream}.phoenix.x")
        yield from (
            f"$JS.ACK.{stream}.c.1.1.1.1.1",
            f"$JS.ACK.d.h.{stream}.c.1.1.1.1.1.1",
            f"$JS.FC.{stream}.c.1",
            f"$JS.FC.d.h.{stream}.c.1",
        )
    yield from (f"$KV.PHOENIX_LEASES.{writer}" for writer in WRITERS)
    for bucket in ("PHOENIX_OBJECTS", "PHOENIX_SNAPSHOTS", "OTHER"):
        yield from (f"$O.{bucket}.C.x", f"$O.{bucket}.M.x", f"$KV.{bucket}.x")
