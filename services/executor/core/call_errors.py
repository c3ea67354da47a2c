"""Every way in which a call to OpenNebula can fail, as one table: what it is called, what it means, and when to ask again.

Theory of operation
  `errors` names what was raised.  `RULES` gives what follows from the name, for a call that changes something and for a poll
  alike.  docs/reference/opennebula-calls.md has the same table; a test compares them.

Rules
  1. `UNSURE` wherever the request may have arrived: the answer is then looked up, never guessed.  Only what OpenNebula itself
     has refused has surely not happened.
  2. `away`: nothing at that address works as OpenNebula at the moment.  All calls pause, and the operators are informed.
  3. `LATER`: OpenNebula refuses the same of every VM (a quota, a permission): time or a person must change that.  It is no
     fault of the VM or of its host, so neither is given up.  The attempt waits no longer than its scheduler's start budget.
  4. Pauses double from `first_s` to `most_s`.  Guessing passwords may lead to a lock-out: a refused login is retried rarely.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from services.executor.core.calls import Outcome
from services.executor.core.timers import backoff_s


class Failure(StrEnum):
    """What went wrong: the label `kind` of `phoenix_opennebula_failures_total`."""

    REFUSED = "connection_refused"
    BROKEN = "connection_broken"
    TIMEOUT = "timeout"
    TLS = "tls"
    HTTP = "http_status"
    MALFORMED = "malformed_answer"
    FAULT = "fault"
    LOGIN = "login"
    PERMISSION = "permission"
    QUOTA = "quota"
    CAPACITY = "capacity"
    STATE = "wrong_state"
    GONE = "no_such_object"
    REQUEST = "bad_request"
    TEMPLATE = "template"
    OTHER = "internal"


class Rule(NamedTuple):
    """`advice`: what a person should look at; {url}, {user}, {auth_file} and {why} are filled in."""

    outcome: Outcome
    away: bool
    first_s: float
    most_s: float
    advice: str


_AWAY_S: Final = 0.05, 1.0  # a restart of oned takes seconds: clients that wait for it should not wait for us as well
_VM_S: Final = 0.05, 5.0
_STANDING_S: Final = 0.5, 30.0  # a person must change something: at most two calls a minute for the whole cloud
_LOGIN_S: Final = (
    1.0,
    30.0,
)  # LDAP and PAM lock an account out after a few failures; a changed auth_file is tried at once

RULES: Final[dict[Failure, Rule]] = {
    Failure.REFUSED: Rule(
        Outcome.UNSURE,
        True,
        *_AWAY_S,
        "nothing accepts connections at {url} ({why}): is oned running?  check [opennebula] endpoint",
    ),
    Failure.BROKEN: Rule(Outcome.UNSURE, True, *_AWAY_S, "connections to {url} break ({why}): check oned's log"),
    Failure.TIMEOUT: Rule(
        Outcome.UNSURE,
        True,
        *_AWAY_S,
        "{url} does not answer in time: oned is overloaded, stopped, or has no connection left (MAX_CONN)",
    ),
    Failure.TLS: Rule(
        Outcome.UNSURE,
        True,
        *_AWAY_S,
        "no TLS with {url} ({why}): check its certificate and [opennebula] endpoint",
    ),
    Failure.HTTP: Rule(
        Outcome.UNSURE, True, *_AWAY_S, "{url} answers {why}: check the proxy in front of oned, or the path (/RPC2)"
    ),
    Failure.MALFORMED: Rule(
        Outcome.UNSURE,
        True,
        *_AWAY_S,
        "what answers at {url} is not OpenNebula's XML-RPC, or is cut short ({why}): check [opennebula] endpoint",
    ),
    Failure.FAULT: Rule(Outcome.UNSURE, True, *_AWAY_S, "{url} answers with a fault: {why}"),
    Failure.LOGIN: Rule(
        Outcome.DENIED,
        True,
        *_LOGIN_S,
        "OpenNebula at {url} refuses the login of {user}: check [opennebula] auth_file {auth_file} (user:password, or a token "
        "that has not ended; it is read again when it changes)",
    ),
    Failure.PERMISSION: Rule(
        Outcome.LATER, False, *_STANDING_S, "OpenNebula denies {user} an operation that the cloud needs: {why}"
    ),
    Failure.QUOTA: Rule(
        Outcome.LATER,
        False,
        *_STANDING_S,
        "OpenNebula's quota for {user} is used up: {why}.  Raise it (oneuser quota, onegroup quota), or wait for VMs to end",
    ),
    Failure.CAPACITY: Rule(Outcome.REFUSED, False, *_VM_S, "OpenNebula finds no room on the host: {why}"),
    Failure.STATE: Rule(Outcome.REFUSED, False, *_VM_S, "not possible in the VM's state: {why}"),
    Failure.GONE: Rule(Outcome.GONE, False, *_VM_S, "{why}"),
    Failure.REQUEST: Rule(
        Outcome.REFUSED, False, *_STANDING_S, "OpenNebula does not understand the call, is it another version? {why}"
    ),
    Failure.TEMPLATE: Rule(
        Outcome.LATER,
        False,
        *_STANDING_S,
        "OpenNebula cannot use the VMs' template, check [opennebula.template]: {why}",
    ),
    Failure.OTHER: Rule(Outcome.REFUSED, False, *_STANDING_S, "OpenNebula fails: {why}; check oned's log"),
}


def pause_s(failure: Failure | None, failures: int) -> float:
    """How long to wait after this number of them in a row."""
    first_s, most_s = (RULES[failure].first_s, RULES[failure].most_s) if failure is not None else _VM_S
    return backoff_s(failures, first_s, most_s)
