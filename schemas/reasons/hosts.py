"""Why a department may keep so many hosts, why one is granted, given back or seized, and what batch departments demand."""

from __future__ import annotations

from typing import TypeAlias

from schemas.reasons.base import AnyReason


class WebDemand(AnyReason, frozen=True, kw_only=True, tag="web_demand"):
    """Web departments want more hosts than they hold."""

    COLUMN = "web demand"
    SENTENCE = "a web department wants more hosts than it holds"

    department: str = ""
    departments: list[str] = []
    demand: int | None = None
    held: int | None = None


class WebShare(AnyReason, frozen=True, kw_only=True, tag="web_share"):
    """A web department has its part of what is short; this one keeps its own."""

    COLUMN = "web share"
    SENTENCE = "what is short for web is divided, and another one had less than its part"

    departments: list[str] = []
    demand: int | None = None
    held: int | None = None
    quota: int | None = None


class IdleToBatch(AnyReason, frozen=True, kw_only=True, tag="idle_to_batch"):
    """Nobody with precedence wants it: batch gets what is idle."""

    COLUMN = "idle"
    SENTENCE = "nobody with precedence wants the host, so batch gets it"

    department: str = ""
    held: int | None = None


class Guarantee(AnyReason, frozen=True, kw_only=True, tag="guarantee"):
    """The department's guaranteed minimum."""

    COLUMN = "guarantee"
    SENTENCE = "it belongs to the department's guaranteed minimum"

    guarantee: int | None = None
    held: int | None = None


class NoticeExpired(AnyReason, frozen=True, kw_only=True, tag="notice_expired"):
    """The department was given notice and still held more than its quota."""

    COLUMN = "notice expired"
    SENTENCE = "the department was given notice and still held more than its quota"

    department: str = ""
    held: int | None = None
    quota: int | None = None


class Notice(AnyReason, frozen=True, kw_only=True, tag="notice"):
    """The department gives a host back because its quota is below what it holds."""

    COLUMN = "notice"
    SENTENCE = "the department gives it back because its quota fell below what it holds"

    department: str = ""
    held: int | None = None
    quota: int | None = None


class NotNeeded(AnyReason, frozen=True, kw_only=True, tag="not_needed"):
    """The department gives back a host that it has no use for."""

    COLUMN = "not needed"
    SENTENCE = "the department has no use for it"

    demand: int | None = None
    quarantine: str | None = None


class BatchShare(AnyReason, frozen=True, kw_only=True, tag="batch_share"):
    """The shares of batch departments have changed."""

    COLUMN = "batch share"
    SENTENCE = "the shares of batch departments have changed"

    department: str = ""
    held: int | None = None


class DepartmentRemoved(AnyReason, frozen=True, kw_only=True, tag="department_removed"):
    """The department is not in the configuration any more."""

    COLUMN = "department removed"
    SENTENCE = "the department was removed from the configuration"

    department: str = ""


class Cordoned(AnyReason, frozen=True, kw_only=True, tag="cordoned"):
    """A person has cordoned the hosts."""

    COLUMN = "cordoned"
    SENTENCE = "the host is cordoned, and nothing runs there any more"
    REMEDY = "phoenix hosts uncordon HOST"

    hosts: list[str] = []


class Window(AnyReason, frozen=True, kw_only=True, tag="window"):
    """A department's guarantee or maximum is another one at these hours."""

    COLUMN = "window"
    SENTENCE = "at these hours a department has another guarantee or maximum"
    REMEDY = "phoenix lending"

    department: str = ""
    window: str = ""


class Lending(AnyReason, frozen=True, kw_only=True, tag="lending"):
    """A lender has its own hosts back, as its contract says."""

    COLUMN = "lending"
    SENTENCE = "its owner wants it back, as they have agreed"
    REMEDY = "phoenix lending"

    lender: str = ""
    borrower: str = ""
    notice_s: float | None = None


class Queue(AnyReason, frozen=True, kw_only=True, tag="queue"):
    """Jobs in the queue want hosts; without numbers: a job is in the queue."""

    COLUMN = "in the queue"
    SENTENCE = "the jobs in its queue want them"

    pending: int | None = None
    running: int | None = None


class HostsLeft(AnyReason, frozen=True, kw_only=True, tag="hosts_left"):
    """Hosts are on their way, and jobs there have time to save that they asked for."""

    COLUMN = "hosts are left"
    SENTENCE = "jobs on hosts that are given up have time to save"

    hosts: int | None = None
    jobs: list[str] = []
    in_s: float | None = None


HostReason: TypeAlias = (
    WebDemand
    | WebShare
    | IdleToBatch
    | Guarantee
    | NoticeExpired
    | Notice
    | NotNeeded
    | BatchShare
    | DepartmentRemoved
    | Cordoned
    | Window
    | Lending
    | Queue
    | HostsLeft
)
