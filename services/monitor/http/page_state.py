"""What the page shows: hosts, departments, queues, decisions; rendered once for all readers, and again where it has changed.

Theory of operation
  `refresh` brings the picture up to the fold.  Each part is kept as ready bytes with the version at which it last changed; a
  client that has seen version v is sent what is newer (`stream`).  So the cost follows from what has changed, not from the
  number of readers: of 1,000 hosts a small key is compared, and only rows whose key is another one are rendered.

Rules
  1. A host's key holds everything that its row says; a row is rendered again exactly if the key is another one.
  2. A department's row is compared without its ages: they grow by themselves, and `since` has the same.  What several wait
     for is given in a few words: numbers of one of them would not be those of the others.
  3. Of a queue the first `ROWS` units that wait are shown, by submission; how many wait for what is counted for all of them.
  4. A picture is as old as what the monitor has read: without a broker it reads nothing, so that is shown (`broker_lost`).
  5. All users see all hosts and departments; queues, reasons and decisions are of the scope (`access`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import orjson

from services.domain import text as sentences
from services.domain.custody.state import Host
from services.domain.sharing.host_ownership import Whereabouts
from services.monitor.core.monitor import Claim, MonitorCore
from services.monitor.events import Publisher, kept_json
from services.monitor.http.decisions import Decisions
from services.monitor.views import lending
from services.monitor.views.times import iso
from services.monitor.views.views import Views, claim_view

ROWS: Final = 200  # of a queue: more than a person reads, about 70 kB


class Part(NamedTuple):
    """`body` last changed at `version`."""

    version: int
    body: bytes


class Picture:
    def __init__(
        self, core: MonitorCore, views: Views, publisher: Publisher, connected: Callable[[], bool] = lambda: True
    ) -> None:
        self.core, self.views, self.connected = core, views, connected
        self.broker_lost: float | None = None  # since when
        self.decisions = Decisions(publisher)
        self.version = self.position = 0
        self.at = 0.0
        self.hosts: dict[str, Part] = {}
        self.departments: dict[str, Part] = {}
        self.waiting: dict[str, Part] = {}  # reasons, by department
        self.queues: dict[str, Part] = {}
        self.alerts = Part(0, b"{}")
        self._keys: dict[str, object] = {}
        self._reasons: dict[str, object] = {}
        self._queued: dict[str, int] = {}  # department -> the version of `waiting` that its queue was rendered from

    def refresh(self, now: float) -> None:
        """As of `now` (UTC seconds, not before the last fact)."""
        self.version += 1
        self.position, self.at = self.core.custody.state.position, now
        self.views.refresh()
        self._hosts(now)
        self._departments(now)
        self.decisions.refresh(self.position)
        self.broker_lost = None if self.connected() else self.broker_lost or now
        self.alerts = self._part(self.alerts, self._alerts())

    def whole(self, scope: str | None, behind: int | None = None) -> bytes:
        """All of it for `scope` (None: everything); with `behind` also every decision after that position."""
        names = [name for name in self.departments if scope in (None, name)]
        lost = behind is not None and (behind < self.decisions.lost or behind > self.position)
        timeline = self.core.state.timeline
        head = {
            "position": self.position,
            "at": iso(self.at),
            "cloud": self._cloud(),
            "owners": timeline[-1][1] if timeline else {},
            **({"missed": True} if lost else {}),
        }
        return b"".join(
            (
                orjson.dumps(head)[:-1],
                b',"hosts":' + _list(part.body for part in self.hosts.values()),
                b',"departments":' + _list(self.department(name, scope) for name in self.departments),
                b',"queue":{' + b",".join(_member(name, self.queue(name)) for name in names) + b"}",
                b',"decisions":' + _list(self.decisions.newest(scope, behind)),
                b',"alerts":' + self.alerts.body + b"}",
            )
        )

    def department(self, name: str, scope: str | None) -> bytes:
        """Its row, with the reasons for waiting if `scope` may see them."""
        reasons = self.waiting[name].body if scope in (None, name) else b"{}"
        return self.departments[name].body[:-1] + b',"waiting":' + reasons + b"}"

    def queue(self, name: str) -> bytes:
        """Rule 3.  Rendered if it has changed."""
        waiting = self.views.waiting
        version = waiting.versions.get(name, 0)
        had = self.queues.get(name)
        if had is None or self._queued.get(name) != version:
            rows = _list(self._row(unit) for unit in waiting.first(name, ROWS))
            had = self.queues[name] = self._part(had, rows)
            self._queued[name] = version
        return had.body

    def _cloud(self) -> str:
        config = self.core.custody.state.config
        return config.name if config is not None else ""

    def _part(self, had: Part | None, body: bytes) -> Part:
        return had if had is not None and had.body == body else Part(self.version, body)

    # ------------------------------------------------------------------------------------------------------------- parts

    def _hosts(self, now: float) -> None:
        custody = self.core.custody
        where = lending.where(custody, now)
        for name in [name for name in self.hosts if name not in where]:
            del self.hosts[name], self._keys[name]
        for name, place in where.items():  # by name
            host = custody.state.hosts[name]
            key = self._key(host, place, now)
            if self._keys.get(name) != key:
                self._keys[name] = key
                self.hosts[name] = Part(self.version, kept_json(self.views.host(host, place, now)))

    def _key(self, host: Host, place: Whereabouts, now: float) -> object:
        """Rule 1."""
        views = self.views
        return (
            place,
            host.since,
            host.used,
            tuple(host.units),
            len(host.vms),
            host.size,
            host.cordoned,
            host.drain,
            host.drain_until,
            host.quarantine,
            host.quarantine_until > now,
            host.quarantine_until,
            host.lost,
            host.dept,
            host.cluster,
            tuple(host.labels.items()),
            len(self.core.custody.index.parked.get(host.name, ())),
            self.core.idle.since.get(host.name),
            self.core.idle.is_candidate(host, views.power, now),
        )

    def _departments(self, now: float) -> None:
        names = [department.name for department in self.core.custody.departments]
        for some in (self.departments, self.waiting, self.queues):
            for name in [name for name in some if name not in names]:
                del some[name]
        for name in names:
            row = kept_json(self.views.department(name))
            self.departments[name] = self._part(self.departments.get(name), row)
            reasons = self.views.waiting.reasons(name)
            compared = [(code, count, since) for code, count, since, _ in reasons]
            if name not in self.waiting or self._reasons.get(name) != compared:  # rule 2
                self._reasons[name] = compared
                fields = {
                    code: {
                        "count": count,
                        "oldest_s": round(max(0.0, now - since), 3),
                        "since": iso(since),
                        "sentence": sentences.sentence(reason) if count == 1 else _of_several(code),
                    }
                    for code, count, since, reason in reasons
                }
                self.waiting[name] = Part(self.version, kept_json(fields))

    def _row(self, unit: str) -> bytes:
        sentence = sentences.sentence(self.views.waiting.units[unit].reason)
        return self.views.rendered(unit)[:-1] + b',"sentence":' + orjson.dumps(sentence) + b"}"

    def _claim(self, claim: Claim) -> dict[str, Any]:
        """`hosts`: when it began; `missing`: now."""
        custody = self.core.custody
        missing = custody.state.demands.get(claim.dept, 0) - custody.held(claim.dept)
        return {**claim_view(claim), "missing": missing}

    def _alerts(self) -> bytes:
        state = self.core.state
        silent = {dept: iso(since) for dept, since in sorted(state.loads.silent.items())}
        claims = [self._claim(claim) for _, claim in sorted(state.open_claims.items())]
        apart = {} if self.broker_lost is None else {"broker_lost": iso(self.broker_lost)}
        return kept_json({"signal_missing": silent, "claims_open": claims, **apart})


def _list(bodies: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(bodies) + b"]"


def _member(name: str, body: bytes) -> bytes:
    return orjson.dumps(name) + b":" + body


def _of_several(code: str) -> str:
    """Why several jobs wait: a sentence without the numbers of one of them, and without its subject."""
    return sentences.sentence(code).removeprefix("it ")
