"""The NATS permissions of every person, program and service: subjects that each may publish and subscribe to.

What it decides: from the configuration alone, the subjects of each credential, within its account (`accounts`).  The server
enforces them, and that is what makes the user in a request subject true, keeps a writer's journal subject its own, and keeps
answers private.

Rules
  1. Deny is the default: a user of the server has exactly the subjects listed here.
  2. A department's user publishes only its own requests and signals (department and name are tokens of the subject) and its
     department's queries; it subscribes only to its own inbox and its department's events.  No $JS, no $KV, no $O.
  3. A service publishes only its own journal subject, its own lease, and the JetStream API of the streams that it uses; the
     operations are spelled out, because ``$JS.API.>`` would let it delete a stream.
  4. A service answers only to reply subjects that the server made, and to inboxes of services that may ask it (PROTOCOL S10).
  5. One key has a place in the server's system account (`system`): it receives refusals, and may ask how the servers are.
  6. Only the monitor purges the journal (S5).  Only the admin user, which `phoenix up` uses, makes and changes streams.

What permissions cannot settle: a service may name any reply or delivery subject in a JetStream API call, so a stolen key
of a *service* is worth more than its publish list.  Department keys have no such call.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import subjects
from schemas.config import CloudConfig, User
from services.runtime.config.tables import SERVICES, processes

ADMIN: Final = "admin"  # not a process: who makes the streams
SERVICE: Final = "service"  # the department token of the services' inboxes
WATCH: Final = "service-watch"  # a credential, not a process: the monitor's second one, for the system account
REFUSED: Final = "$SYS.SERVER.*.CLIENT.AUTH.ERR"  # on it the server tells of each connection that it refused
HEALTH: Final = "$SYS.REQ.SERVER.PING.HEALTHZ"  # every server answers whether it does its work
WATCH_INBOX: Final = "_INBOX_watch"
LEASE_STREAM: Final = f"KV_{subjects.LEASES}"
STREAMS: Final = (
    subjects.JOURNAL_STREAM,
    subjects.EVENTS_STREAM,
    subjects.AUDIT_STREAM,
    LEASE_STREAM,
    f"OBJ_{subjects.SNAPSHOTS}",
    f"OBJ_{subjects.OBJECTS}",
)
ASKING: Final = f"_INBOX_{subjects.ASKING}.>"


class Permissions(msgspec.Struct, frozen=True):
    """Subjects with wildcards; what is not listed is denied.  Of `publish` nothing listed is nothing allowed, too."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def service_credential(process: str) -> str:
    """The credential's name of a service process: ``service-scheduler.hpc``."""
    return f"service-{process}"


def service_inbox(process: str) -> str:
    """Inbox prefix of a service's connection."""
    return subjects.inbox(SERVICE, process)


def asking_inbox(process: str) -> str:
    """Inbox prefix for what a service asks of schedulers: another than that to which the broker answers it."""
    return subjects.inbox(subjects.ASKING, process)


def table(cloud: CloudConfig) -> dict[str, Permissions]:
    """Every credential by name: users, then services, then admin."""
    return {**{user.name: of_user(user) for user in cloud.users}, **services(cloud)}


def services(cloud: CloudConfig) -> dict[str, Permissions]:
    """Credentials of the control plane's account: the services, then admin."""
    return {service_credential(p): of_service(p, cloud) for p in (*processes(cloud), ADMIN)}


def system() -> dict[str, Permissions]:
    """Credentials of the system account."""
    return {WATCH: Permissions(publish=(HEALTH,), subscribe=(REFUSED, f"{WATCH_INBOX}.>"))}


def of_user(user: User) -> Permissions:
    """A person or program of a department, or an operator."""
    inbox = f"{subjects.inbox(user.department, user.name)}.>"
    if user.role == "operator":
        return Permissions(
            publish=(f"phoenix.request.*.{user.name}.>", "phoenix.query.>"),
            subscribe=(inbox, subjects.EVENTS_ALL, subjects.AUDIT_ALL, subjects.measure("*", ">")),
        )
    return Permissions(
        publish=(
            f"phoenix.request.{user.department}.{user.name}.>",
            subjects.signal(user.department, user.name, "*"),
            subjects.query("*", user.department, ">"),
        ),
        subscribe=(inbox, subjects.event(user.department, ">"), subjects.measure(user.department, ">")),
    )


def of_service(process: str, cloud: CloudConfig) -> Permissions:
    """A service process, or `ADMIN`."""
    own = (f"{service_inbox(process)}.>",)
    if process == ADMIN:
        return Permissions(publish=("$JS.API.>", subjects.audit(subjects.OPERATORS, "*")), subscribe=own)
    publish, subscribe = _edges(process, cloud)
    return Permissions(publish=(*_common(process), *publish), subscribe=(*own, *subscribe))


def _common(process: str) -> tuple[str, ...]:
    """What each service needs for its loop: follow the journal, hold its lease, keep its snapshots, append its own facts."""
    journal = () if process == "monitor" else (subjects.journal(process),)
    return (
        *journal,
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        *(f"$JS.API.STREAM.INFO.{stream}" for stream in STREAMS),  # verified at start
        *_read(subjects.JOURNAL_STREAM),
        *_read(LEASE_STREAM),
        f"$KV.{subjects.LEASES}.{process}",
        *_objects(subjects.SNAPSHOTS),
    )


def _edges(process: str, cloud: CloudConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a service needs besides: publish, subscribe."""
    if process == "admission":
        publish = (
            subjects.ANSWERS,
            subjects.AUDIT_ALL,
            subjects.signal("*", "*", "*"),
            subjects.measure("*", ">"),
            *_objects(subjects.OBJECTS),
            subjects.query("scheduler", "*", "whatif"),
        )
        return publish, ("phoenix.request.>", _queries("admission"), f"{asking_inbox(process)}.>")
    if process == "provisioner":  # answers config.apply
        publish = (subjects.ANSWERS, subjects.audit(subjects.OPERATORS, "*"))
        return publish, ("phoenix.request.*.*.config.>", _queries("provisioner"))
    if process == "executor":
        return (subjects.ANSWERS,), (_queries("executor"),)
    if process == "monitor":
        return (subjects.ANSWERS, *_monitor_publishes()), (
            _queries("monitor"),
            subjects.signal("*", "*", "*"),
            subjects.measure("*", ">"),
            subjects.AUDIT_ALL,
            f"{asking_inbox(process)}.>",
        )
    return _scheduler_edges(process, cloud)


def _monitor_publishes() -> tuple[str, ...]:
    return (
        subjects.EVENTS_ALL,
        subjects.AUDIT_ALL,  # who logs in at the page
        f"$JS.API.STREAM.PURGE.{subjects.JOURNAL_STREAM}",
        *_read(subjects.EVENTS_STREAM),
        *_read(subjects.AUDIT_STREAM),
        subjects.query("scheduler", "*", "why"),
        subjects.query("scheduler", "*", "start"),
        subjects.query("scheduler", "*", "reasons"),
        subjects.query("scheduler", "*", "troubles"),
    )


def _scheduler_edges(process: str, cloud: CloudConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    service, _, department = process.partition(".")
    if service != "scheduler" or not department:
        raise ValueError(f"{process!r} is no process: {', '.join(SERVICES)} or scheduler.<department>")
    answers = (subjects.ANSWERS, ASKING)
    listens = (subjects.signal(department, "*", "*"), subjects.query("scheduler", department, ">"))
    known = cloud.department(department)
    if known is None or known.kind != "web":
        return answers, listens
    audits = (subjects.audit(department, "*"), subjects.audit(subjects.OPERATORS, "*"))  # who claims how much
    return (*answers, *audits), listens


def _queries(service: str) -> str:
    return f"phoenix.query.{service}.>"


def _read(stream: str) -> tuple[str, ...]:
    """Reading a stream: its state, single messages, and consumers of one's own.  Acknowledgements and flow control have two
    forms: since 2.14 a server may put its domain and the account's hash before the stream (nats-server #7860)."""
    return (
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.>",
        f"$JS.API.CONSUMER.CREATE.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.*",
        f"$JS.API.CONSUMER.DELETE.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.ACK.{stream}.>",
        f"$JS.ACK.*.*.{stream}.>",
        f"$JS.FC.{stream}.>",
        f"$JS.FC.*.*.{stream}.>",
    )


def _objects(bucket: str) -> tuple[str, ...]:
    """Reading and writing an object store: chunks and descriptions, and the purge of replaced chunks."""
    return (*_read(f"OBJ_{bucket}"), f"$JS.API.STREAM.PURGE.OBJ_{bucket}", f"$O.{bucket}.>")
