"""Why a department may keep its number of hosts, why one is granted, returned or seized, and what batch departments demand."""

from __future__ import annotations

from typing import Final, TypeAlias

from schemas.dimensions import words
from schemas.reasons.base import AnyReason
from schemas.size import size_of
from schemas.units import count
from schemas.words import are, general, have_time_to_save, known, names, span

HOSTS_SHOWN: Final = 8


class WebDemand(AnyReason, frozen=True, kw_only=True, tag="web_demand"):
    """Web departments want more hosts than they hold.  `departments`: names of the departments that want more, if there may
    be several."""

    COLUMN = "web demand"
    SENTENCE = "a web department wants more hosts than it holds"

    department: str = ""
    departments: list[str] = []
    demand: int | None = None
    held: int | None = None

    def sentence(self) -> str:
        if self.departments:
            several = len(self.departments) > 1
            want = "want more hosts than they hold" if several else "wants more hosts than it holds"
            return f"{names(self.departments)} {want}"
        if self.demand is None:
            return f"{self.department} wants more hosts than it holds" if self.department else super().sentence()
        return f"{known(self.department)} wants {count(self.demand, 'host')} and held {known(self.held)}"


class WebShare(AnyReason, frozen=True, kw_only=True, tag="web_share"):
    """A web department has its part of the hosts that are short, and this one keeps its own.  `departments`: names of the
    departments that had less than their part; `demand`: hosts that this department wants."""

    COLUMN = "web share"
    SENTENCE = "what is short for web is divided, and another one had less than its part"

    departments: list[str] = []
    demand: int | None = None
    held: int | None = None
    quota: int | None = None

    def sentence(self) -> str:
        part = "their parts" if len(self.departments) > 1 else "its part"
        less = f"what is short for web is divided, and {names(self.departments)} had less than {part}"
        return less if self.departments else super().sentence()


class IdleToBatch(AnyReason, frozen=True, kw_only=True, tag="idle_to_batch"):
    """No department with precedence wants the host: batch gets what is idle."""

    COLUMN = "idle"
    SENTENCE = "no department with precedence wants the host, so batch gets it"

    department: str = ""
    held: int | None = None

    def sentence(self) -> str:
        gets = f"no department with precedence wants more, so {self.department} gets what is idle"
        return gets if self.department else super().sentence()


class Guarantee(AnyReason, frozen=True, kw_only=True, tag="guarantee"):
    """The host belongs to the department's guaranteed minimum.  `guarantee`: hosts that are guaranteed to the department."""

    COLUMN = "guarantee"
    SENTENCE = "it belongs to the department's guaranteed minimum"

    guarantee: int | None = None
    held: int | None = None

    def sentence(self) -> str:
        if self.guarantee is None:
            return super().sentence()
        hosts = f"{count(self.guarantee, 'host')} {are(self.guarantee)} guaranteed to the department"
        return f"{hosts}, and it held {known(self.held)}"


class NoticeExpired(AnyReason, frozen=True, kw_only=True, tag="notice_expired"):
    """The department was given notice and still held more than its quota."""

    COLUMN = "notice expired"
    SENTENCE = "the department was given notice and still held more than its quota"

    department: str = ""
    held: int | None = None
    quota: int | None = None

    def sentence(self) -> str:
        if self.quota is None:
            return super().sentence()
        return f"{known(self.department)} had notice, held {known(self.held)} and may keep {self.quota}"


class Notice(AnyReason, frozen=True, kw_only=True, tag="notice"):
    """The department gives a host back because its quota is below what it holds."""

    COLUMN = "notice"
    SENTENCE = "the department gives it back because its quota fell below what it holds"

    department: str = ""
    held: int | None = None
    quota: int | None = None

    def sentence(self) -> str:
        if self.quota is None:
            return super().sentence()
        return f"{known(self.department)} held {known(self.held)} and may keep {self.quota}"


class NotNeeded(AnyReason, frozen=True, kw_only=True, tag="not_needed"):
    """The department gives back a host that it does not need.  `demand`: hosts that it wants; `quarantine`: why the host was
    in quarantine, as text; empty or null: it was not."""

    COLUMN = "not needed"
    SENTENCE = "the department has no use for it"

    demand: int | None = None
    quarantine: str | None = None

    def sentence(self) -> str:
        if self.quarantine:
            return f"it was idle and set apart ({self.quarantine})"
        return super().sentence() if self.demand is None else f"the department wants only {count(self.demand, 'host')}"


class BatchShare(AnyReason, frozen=True, kw_only=True, tag="batch_share"):
    """The shares of batch departments have changed."""

    COLUMN = "batch share"
    SENTENCE = "the shares of batch departments have changed"

    department: str = ""
    held: int | None = None

    def sentence(self) -> str:
        """Another one wants more, or this one less: the reason does not tell which."""
        return (
            super().sentence()
            if self.held is None
            else f"{self.SENTENCE}, and {known(self.department)} held {self.held}"
        )


class DepartmentRemoved(AnyReason, frozen=True, kw_only=True, tag="department_removed"):
    """The department is no longer in the configuration."""

    COLUMN = "department removed"
    SENTENCE = "the department was removed from the configuration"

    department: str = ""

    def sentence(self) -> str:
        removed = f"department {self.department} was removed from the configuration"
        return removed if self.department else super().sentence()


class Cordoned(AnyReason, frozen=True, kw_only=True, tag="cordoned"):
    """A person has cordoned the hosts."""

    COLUMN = "cordoned"
    SENTENCE = "the host is cordoned, and nothing runs there any more"
    REMEDY = "phoenix hosts uncordon HOST"

    hosts: list[str] = []

    def sentence(self) -> str:
        if len(self.hosts) > HOSTS_SHOWN:  # `phoenix hosts` has them all
            return f"{len(self.hosts)} hosts are cordoned"
        return f"{names(self.hosts)} {are(len(self.hosts))} cordoned" if self.hosts else super().sentence()


class Window(AnyReason, frozen=True, kw_only=True, tag="window"):
    """A department has another guarantee or maximum at these hours.  `window`: the window, as the configuration has it."""

    COLUMN = "window"
    SENTENCE = "at these hours a department has another guarantee or maximum"
    REMEDY = "phoenix lending"

    department: str = ""
    window: str = ""

    def sentence(self) -> str:
        if not self.window:
            return super().sentence()
        return f'at these hours {known(self.department)} has "{self.window}"'


class Lending(AnyReason, frozen=True, kw_only=True, tag="lending"):
    """A lender reclaims hosts of its own, as its contract allows.  `lender`: the department that owns the hosts; `borrower`:
    the department that has them; `notice_s`: notice that the borrower has, in seconds."""

    COLUMN = "lending"
    SENTENCE = "its owner reclaims it, as the contract allows"
    REMEDY = "phoenix lending"

    lender: str = ""
    borrower: str = ""
    notice_s: float | None = None

    def sentence(self) -> str:
        if not self.lender:
            return super().sentence()
        back = f"{self.lender} wants hosts back that it lent {known(self.borrower)}"
        return f"{back}, on {general(self.notice_s)} s notice"


class Queue(AnyReason, frozen=True, kw_only=True, tag="queue"):
    """Jobs in the queue want hosts; without numbers: a job is in the queue.  `pending`: jobs that wait; `running`: jobs that
    run."""

    COLUMN = "in the queue"
    SENTENCE = "the jobs in its queue want them"

    pending: int | None = None
    running: int | None = None

    def sentence(self) -> str:
        """Why demand is what it is, with numbers; without any, of a job before its first decision."""
        if self.pending is None:
            return "it is in the queue" if self.running is None else super().sentence()
        jobs = f"{count(self.pending, 'job')} pending and {self.running or 0} running"
        return jobs if self.pending or self.running else "no job is there"


class HostsLeft(AnyReason, frozen=True, kw_only=True, tag="hosts_left"):
    """Hosts are about to be returned, and jobs there have asked for time to save.  `hosts`: number of hosts that are about to
    be returned; `jobs`: the jobs that may still run there; `in_s`: seconds until the hosts are clear at the latest."""

    COLUMN = "hosts are left"
    SENTENCE = "jobs on hosts that are given up have time to save"

    hosts: int | None = None
    jobs: list[str] = []
    in_s: float | None = None

    def sentence(self) -> str:
        if self.hosts is None:
            return super().sentence()
        when = f"in {span(self.in_s)} at the latest" if self.in_s is None or self.in_s > 0 else "now"
        return f"{count(self.hosts, 'host')} on the way {are(self.hosts)} clear {when}: {have_time_to_save(self.jobs)}"


class UsedByOthers(AnyReason, frozen=True, kw_only=True, tag="used_by_others"):
    """VMs of other users of the same OpenNebula take a part of hosts.  `hosts`: names of such hosts, the first eight;
    `shared`: how many there are; `cores`, `memory_mb`, `gpus`: what those VMs take, on all of them together."""

    COLUMN = "used by others"
    SENTENCE = "VMs of other users of OpenNebula take a part of the hosts"
    REMEDY = (
        "what they take is free when they end in OpenNebula (onehost show HOST lists them); "
        "[hosts] clusters and use choose hosts without them"
    )

    hosts: list[str] = []
    shared: int | None = None
    cores: int = 0
    memory_mb: int = 0
    gpus: int = 0

    def sentence(self) -> str:
        if not self.hosts:
            return super().sentence()
        more = " …" if (self.shared or 0) > len(self.hosts) else ""
        where = f"{'host' if len(self.hosts) == 1 else 'hosts'} {names(self.hosts)}{more}"
        return f"VMs of other users of OpenNebula hold {words(size_of(self))} on {where}"


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
    | UsedByOthers
)
