"""Every NATS subject, stream and bucket in one place.

    phoenix.journal.<writer>                                    the truth, one subject a writer (scheduler.<department>)
    phoenix.request.<department>.<user>.<noun>.<verb>           to the door; the server lets a user publish only its own name
    phoenix.signal.<department>.<user>.<name>                   high rate, not journaled; the user as in a request
    phoenix.measure.<department>.<name>                         what guests report of themselves, from the door; not journaled
    phoenix.query.<service>.<department>.<what>                 read only
    phoenix.event.<department>.<noun>.<verb>                    public events (stream EVENTS)
    phoenix.audit.<department>.<outcome>                        who asked for what (stream AUDIT, bounded)
    _INBOX_<department>.<user>.…                                where askers listen, in their department's account
    _R_.…                                                       what the broker makes of it: services answer to these alone, and
    _INBOX_asking.<service>.…                                   to these, of what a service asks another

The user is a token of the subject of requests and signals because a NATS message does not name its sender: the server's
permission on the subject is what makes the identity true (docs/decisions/0002).
"""

from __future__ import annotations

from typing import Final, NamedTuple

JOURNAL_STREAM: Final = "PHOENIX"
JOURNAL: Final = "phoenix.journal"
JOURNAL_ALL: Final = "phoenix.journal.>"
EVENTS_STREAM: Final = "EVENTS"
EVENTS_ALL: Final = "phoenix.event.>"
AUDIT_STREAM: Final = "AUDIT"
AUDIT_ALL: Final = "phoenix.audit.>"
LEASES: Final = "PHOENIX_LEASES"  # KV bucket
SNAPSHOTS: Final = "PHOENIX_SNAPSHOTS"  # object store
OBJECTS: Final = "PHOENIX_OBJECTS"  # object store: scripts, inputs, outputs
SITE: Final = "site"  # the department token of events that concern no department
OPERATORS: Final = "operators"  # the department of operators
ANSWERS: Final = "_R_.>"  # reply subjects that the broker makes for requests of other accounts
ASKING: Final = "asking"  # the department token of inboxes for what one service asks another


class RequestSubject(NamedTuple):
    department: str
    user: str
    noun: str
    verb: str


class SignalSubject(NamedTuple):
    department: str
    user: str
    name: str


def journal(writer: str) -> str:
    return f"{JOURNAL}.{writer}"


def journal_writer(subject: str) -> str:
    """The writer of a journal subject: ``scheduler.hpc`` for ``phoenix.journal.scheduler.hpc``."""
    return subject[len(JOURNAL) + 1 :]


def scheduler(department: str) -> str:
    """The writer name of a department's scheduler."""
    return f"scheduler.{department}"


def request(department: str, user: str, noun: str, verb: str) -> str:
    return f"phoenix.request.{department}.{user}.{noun}.{verb}"


def parse_request(subject: str) -> RequestSubject | None:
    parts = subject.split(".")
    if len(parts) != 6 or parts[:2] != ["phoenix", "request"]:
        return None
    return RequestSubject(*parts[2:])


def signal(department: str, user: str, name: str) -> str:
    return f"phoenix.signal.{department}.{user}.{name}"


def parse_signal(subject: str) -> SignalSubject:
    """Of a message that came on a subscription to signals."""
    return SignalSubject(*subject.split(".")[2:])


def measure(department: str, name: str) -> str:
    return f"phoenix.measure.{department}.{name}"


def query(service: str, department: str, what: str) -> str:
    return f"phoenix.query.{service}.{department}.{what}"


def event(department: str, kind: str) -> str:
    """Subject of a public event; `kind` is ``noun.verb``."""
    return f"phoenix.event.{department}.{kind}"


def audit(department: str, outcome: str) -> str:
    """`department`: of who asked; `outcome`: granted or refused."""
    return f"phoenix.audit.{department}.{outcome}"


def inbox(department: str, user: str) -> str:
    """Inbox prefix of a user's connection (nats-py: `inbox_prefix`)."""
    return f"_INBOX_{department}.{user}"


def is_reply_allowed(reply: str, department: str) -> bool:
    """True if a service may answer to `reply` on a request or query of `department` (PROTOCOL S10).

    A reply subject of the department's own is heard only of a broker without accounts.
    """
    own = reply.startswith(("_R_.", f"_INBOX_{ASKING}.", f"_INBOX_{department}."))
    return own and not any(c in reply for c in " *>\r\n\t")
