"""What every service exports, whatever it does: its journal, its lead, its connection."""

from __future__ import annotations

from typing import Final, TypeAlias

from schemas.facts import BY_KIND
from services.domain.custody.meta import Void
from services.runtime.families import OWNER, Counter, Gauge, Label, Table

Level: TypeAlias = Gauge | Counter  # of one value, without labels
SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
REFUSED: Final = ("deposed", "full")  # why the broker took no envelope
DROPPED: Final = ("foreign", "unsent")
TURNS: Final = ("caller", "department", "late", "unanswered")
HTTP_REFUSED: Final = ("all", "address")  # which limit a connection was over
HTTP_CLOSED: Final = ("header", "body", "unread")  # what was too slow
KIND: Final = Label.of("kind", BY_KIND)

SHELL: Final = Table("every service")
APPEND_S: Final = SHELL.histogram(
    "phoenix_journal_append_seconds", "From sending an envelope until it was folded", SECONDS
)
APPENDS_REFUSED: Final = SHELL.counter(
    "phoenix_appends_refused_total",
    "Appends refused; full: no space, or repeatedly unanswered; deposed: a leader learned that another one leads, and "
    "ended. Kept in a file of the data directory, since an ended process cannot be scraped",
    Label.of("reason", REFUSED),
)
DECIDE_S: Final = SHELL.histogram("phoenix_decide_seconds", "One run of the core's decide", SECONDS)
FACTS_APPLIED: Final = SHELL.counter("phoenix_facts_applied_total", "Valid facts folded since the start", KIND)
FACTS_VOID: Final = SHELL.counter(
    "phoenix_facts_void_total", "Void facts folded since the start", KIND, Label.of("reason", Void)
)
GARBAGE: Final = SHELL.counter("phoenix_garbage_total", "Journal messages that are no envelope of their writer")
UNKNOWN: Final = SHELL.counter("phoenix_facts_unknown_total", "Facts of kinds unknown to this version")
LEADER_CHANGES: Final = SHELL.counter(
    "phoenix_leader_changes_total", "Leaders that this writer has had, as counted in the journal"
)
NATS_ERRORS: Final = SHELL.counter("phoenix_nats_errors_total", "Errors that the connection reported: denials, losses")
NATS_MALFORMED: Final = SHELL.counter(
    "phoenix_nats_malformed_total",
    "Messages that were dropped unread: a subject, reply subject or headers that are no text",
)
NATS_CONNECTED: Final = SHELL.gauge("phoenix_nats_connected", "1 while the connection to the broker is up")
READER_RENEWED: Final = SHELL.counter("phoenix_reader_renewed_total", "Journal consumers recreated")
READER_POSITION: Final = SHELL.gauge("phoenix_reader_position", "Journal position folded")
READER_LAG: Final = SHELL.gauge(
    "phoenix_reader_lag_messages", "Journal messages that are stored, as far as is known, and not folded here yet"
)
LEADER: Final = SHELL.gauge("phoenix_leader", "1 if this replica leads; the monitor never does")
LEASE_LEFT: Final = SHELL.gauge("phoenix_lease_left_seconds", "For so long the lease is surely ours")
JOURNAL_FULL: Final = SHELL.gauge(
    "phoenix_journal_full", "1 if the journal took nothing: refused for lack of space, or left unanswered"
)
JOURNAL_RESERVED: Final = SHELL.gauge(
    "phoenix_journal_reserved",
    "1 while the journal is nearly full: its last space is reserved for requests that end things",
)
JOURNAL_REFUSED: Final = SHELL.counter(
    "phoenix_journal_refused_total", "Requests to begin or change something, refused since the journal was nearly full"
)
SNAPSHOT_POSITION: Final = SHELL.gauge("phoenix_snapshot_position", "Journal position of the last snapshot")
PROPOSALS_WAITING: Final = SHELL.gauge("phoenix_proposals_waiting", "Proposals that wait for an envelope")
AUDIT_LOST: Final = SHELL.counter(
    "phoenix_audit_lost_total",
    "Records of the audit that were not published: the broker was away, or more came than can wait for it",
)
REPLIES_DROPPED: Final = SHELL.counter(
    "phoenix_replies_dropped_total",
    "Answers that were not sent; foreign: the reply subject is outside the asker's inbox, unsent: no connection",
    Label.of("reason", DROPPED),
)
TURNS_REFUSED: Final = SHELL.counter(
    "phoenix_turns_refused_total",
    "Requests refused for lack of a turn; caller, department: too many of it were already waiting; late: its turn did not "
    "come in time; unanswered: refused over NATS without an answer, because there were too many. "
    "department: the callers', empty: without a token",
    OWNER,
    Label.of("reason", TURNS),
)
HTTP_CONNECTIONS: Final = SHELL.gauge("phoenix_http_connections", "Connections that clients have open to this process")
HTTP_CONNECTIONS_REFUSED: Final = SHELL.counter(
    "phoenix_http_connections_refused_total",
    "Connections refused; all: connections_max were open, address: connections_per_address_max from that address",
    Label.of("limit", HTTP_REFUSED),
)
HTTP_CONNECTIONS_CLOSED: Final = SHELL.counter(
    "phoenix_http_connections_closed_total",
    "Connections closed for slowness; header: no whole request came, body: it fell below the rate, unread: answers were not "
    "taken",
    Label.of("slow", HTTP_CLOSED),
)
HTTP_MALFORMED: Final = SHELL.counter("phoenix_http_malformed_total", "Requests that were no HTTP")
HTTP_ACCEPT_ERRORS: Final = SHELL.counter(
    "phoenix_http_accept_errors_total",
    "Connections that could not be accepted: the process or the machine has no descriptor or memory left",
)
