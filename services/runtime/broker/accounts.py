"""The NATS accounts: which key may request and receive what across accounts; from the configuration alone.

Theory of operation
  An account of NATS is a separate space of subjects: what is published in one is received in another only where the one exports
  it and the other imports it.  The control plane has an account, with JetStream; each department has one, and operators have
  one.  Permissions (`permissions`) bound what each key does within its account, so that a user stays within its own name.

Rules
  1. A department asks (`phoenix.request.<department>.>`, `phoenix.query.*.<department>.>`) by services that the control plane
     exports to it alone, and receives its events and measures by streams likewise.  Operators request and receive all.
  2. A department publishes signals by a stream that the control plane imports: they are not answered, so the broker keeps
     nothing for each of them.
  3. A service sees no reply subject of a department's.  The broker makes one of its own (`subjects.ANSWERS`) for each request,
     good for one answer within `ANSWER_S`, and delivers what comes there to the asker, inside the asker's account.
  4. The broker adds the origin of a request (`shares`, `origin`): a header that no client can write.
  5. Outside the control plane the connections of an account, and the subscriptions of each connection, are limited (`[nats]`).
  6. Nothing is exported by one department to another, and no JetStream to anybody.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from schemas import subjects
from schemas.config import CloudConfig
from services.runtime.broker import permissions
from services.runtime.broker.permissions import Permissions

SYSTEM: Final = "$SYS"
CONTROL: Final = "control"
ANSWER_S: Final = 20  # the longest answer takes 15 s; a request that gets none costs the broker 0.7 kB for as long
_GLOBAL: Final = "$G"  # the account of all clients before there were accounts

_Kind = Literal["service", "stream"]


class Export(msgspec.Struct, frozen=True):
    kind: _Kind
    subject: str
    to: str


class Import(msgspec.Struct, frozen=True):
    """`shares`: the exporting account learns the requester's connection."""

    kind: _Kind
    subject: str
    of: str
    shares: bool = False


class Account(msgspec.Struct, frozen=True):
    """`users`: permissions by credential."""

    name: str
    users: dict[str, Permissions]
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    has_jetstream: bool = False
    is_bounded: bool = False  # how many connections, and subscriptions of each


def of(department: str) -> str:
    """The account of a department's users, or of operators."""
    return department if department == subjects.OPERATORS else f"department-{department}"


def accounts(cloud: CloudConfig) -> tuple[Account, ...]:
    """All of them, the control plane's first and the server's own last."""
    departments = [department.name for department in cloud.departments]
    outside = [_outside(name, cloud) for name in (*departments, subjects.OPERATORS)]
    control = Account(
        CONTROL,
        permissions.services(cloud),
        tuple(Export(one.kind, one.subject, account.name) for account in outside for one in account.imports),
        tuple(Import(one.kind, one.subject, account.name) for account in outside for one in account.exports),
        has_jetstream=True,
    )
    return (control, *outside, Account(SYSTEM, permissions.system()))


def _outside(department: str, cloud: CloudConfig) -> Account:
    """A department's, or that of operators."""
    users = {user.name: permissions.of_user(user) for user in cloud.users if user.department == department}
    hears: tuple[str, ...]
    tells: tuple[str, ...]
    if department == subjects.OPERATORS:
        asks = ("phoenix.request.>", "phoenix.query.>")
        hears, tells = (subjects.EVENTS_ALL, subjects.AUDIT_ALL, "phoenix.measure.>"), ()
    else:
        asks = (f"phoenix.request.{department}.>", subjects.query("*", department, ">"))
        hears = (subjects.event(department, ">"), subjects.measure(department, ">"))
        tells = (subjects.signal(department, "*", "*"),)
    request, query = asks
    return Account(
        of(department),
        users,
        tuple(Export("stream", subject, CONTROL) for subject in tells),
        (
            Import("service", request, CONTROL, shares=True),
            Import("service", query, CONTROL),
            *(Import("stream", subject, CONTROL) for subject in hears),
        ),
        is_bounded=True,
    )


def adopt_store(store: Path) -> bool:
    """Streams that a server without accounts made are the control plane's; True if there were such.  Before the server is
    started: it reads the directory of each account once."""
    before, now = store / "jetstream" / _GLOBAL, store / "jetstream" / CONTROL
    if now.exists() or not before.exists():
        return False
    before.rename(now)
    return True
