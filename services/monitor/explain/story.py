"""`GET /v1/story/{entity}`: the whole life of a job, an instance, a host or a department, step by step, with what led to each.

    {"entity", "kind", "department", "more", "steps": [{"at", "position", "index", "kind", "sentence", "reason",
     "refs": [names], "user": who asked, "cause": position, "cause_index", "because": [{"at", "position", "kind", "sentence"},
     …]}, …]}

Theory of operation
  `story_index` has the places of the entity's facts, `journal_facts` reads them, `story_causes` decides where to look for what
  led to each.  A cause has causes itself: they are followed, round by round, until they reach a beginning or the entity's own
  life. So the chain that moved a host is shown as it was: the web department's demand, the quota, the victim, the release, the
  grant.

Rules
  1. `because` holds causes that are no steps of this story, nearest first; `cause` and `cause_index` are the place of the
     nearest, step or not: facts that were decided together have one position.
  2. The newest `last` steps are shown, in order; `more`: others existed, or are kept no longer (docs/reference/history.md).
  3. A department's people see their own jobs and departments, and hosts with what their own department did there; steps and
     causes that are other departments' jobs are left out.
  4. A name is a job's or an instance's first, then a department's, then a host's, unless `kind` is given (as in `why`).
  5. Bounded: `STEPS_MAX` steps, `CHAIN_MAX` rounds of causes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from aiohttp import web

from schemas.envelope import Received, UnknownFact
from schemas.facts import kind_of
from schemas.ids import ELEMENT, is_instance
from services.domain import specs
from services.domain.custody.state import FINALS_MAX
from services.domain.text.facts import told
from services.monitor.explain import story_causes
from services.monitor.explain.why import KINDS
from services.monitor.history import story_index
from services.monitor.history.file import History
from services.monitor.history.story_index import DEPARTMENT, HOST, Place
from services.monitor.http.access import Access, Fault, json_answer
from services.monitor.http.parameters import choice_of, limit_of, time_of
from services.monitor.views.times import iso
from services.monitor.views.views import Views

STEPS_MAX: Final = 500  # a busy host's day; `since` and `last` choose
STEPS: Final = 100  # when the request names no number
CHAIN_MAX: Final = 6  # demand, quota, victim, release, clearing, grant
END: Final = (1 << 62, 0)


class Node(NamedTuple):
    """A fact at its place; `department`: whose unit or host it is of."""

    place: Place
    at: float
    fields: dict[str, Any]
    department: str
    cause: Place | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.place.position, self.place.number


class Subject(NamedTuple):
    """Whose story: the entity of `story_index`, what it is, and whose."""

    entity: str
    kind: str
    department: str | None


class Facts(Protocol):
    """What was said at places of the journal (`journal_facts`)."""

    async def get(self, positions: Iterable[int]) -> dict[int, Received]: ...


class Story:
    def __init__(self, access: Access, views: Views, history: History, facts: Facts) -> None:
        self.access, self.views, self.core = access, views, views.core
        self.history, self.facts = history, facts

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/story/{entity}", self.story)]

    async def story(self, request: web.Request) -> web.Response:
        name, who = request.match_info["entity"], self.access.who(request)
        kind = choice_of(request, "kind", KINDS, "")
        subject = await self._subject(name, kind)
        what = kind or "job, department or host"
        missing = Fault(404, "unknown", f"there is no {what} {name[:100]!r}, not even in the history", "entity")
        if subject is None:
            raise missing
        if subject.kind == "department":
            self.access.own(request, name)
        elif subject.kind != "host":
            self.access.theirs(request, subject.department, missing)
        scope = None if who.role == "operator" else who.department
        most = limit_of(request, STEPS_MAX, STEPS)
        return json_answer(await self.told(name, subject, scope, most, time_of(request, "since", 0.0)))

    async def told(self, name: str, subject: Subject, scope: str | None, most: int, since: float) -> dict[str, Any]:
        places: list[Place] = await self.history.ask(story_index.of, subject.entity, END, most + 1)
        more, places = len(places) > most, places[-most:] if most else []
        nodes = {node.key: node for node in await self._nodes(places)}
        more = more or len(nodes) < len({(place.position, place.number) for place in places})
        nodes = {key: node for key, node in nodes.items() if _concerns(node, name)}
        await self._follow(nodes)
        own = {(place.position, place.number) for place in places}
        steps = [nodes[key] for key in sorted(own) if key in nodes and nodes[key].at >= since]
        shown = [_step(node, nodes, own, scope, name) for node in steps if _visible(node, scope)]
        return {
            "entity": name,
            "kind": subject.kind,
            "department": subject.department,
            "more": more or len(steps) < len(own & nodes.keys()),
            "steps": shown,
        }

    # ---------------------------------------------------------------------------------------------------- whose story

    async def _subject(self, name: str, kind: str) -> Subject | None:
        """Rule 4; of what memory has forgotten the history knows."""
        custody = self.core.custody
        if kind in ("", "job"):
            department = self.views.department_of(name) or await self.history.ask(_department_of_unit, name)
            if department:
                return Subject(name, "instance" if is_instance(name) else "job", department)
        if kind in ("", "department") and (
            custody.department(name) is not None or await self._remembered(DEPARTMENT + name)
        ):
            return Subject(DEPARTMENT + name, "department", name)
        if kind in ("", "host") and (name in custody.state.hosts or await self._remembered(HOST + name)):
            known = custody.state.hosts.get(name)
            return Subject(HOST + name, "host", known.dept if known is not None else None)
        return None

    async def _remembered(self, entity: str) -> bool:
        return bool(await self.history.ask(story_index.of, entity, END, 1))

    # --------------------------------------------------------------------------------------------------------- causes

    async def _nodes(self, places: Iterable[Place]) -> list[Node]:
        """The facts at these places, as far as they are anywhere; causes are yet to be found."""
        places = list(places)
        envelopes = await self.facts.get(place.position for place in places)
        return [node for place in places if (node := _node(place, envelopes.get(place.position))) is not None]

    async def _follow(self, nodes: dict[tuple[int, int], Node]) -> None:
        """Give each node its department and its cause, and so on with the causes (rule 5)."""
        departments = [department.name for department in self.core.custody.departments]
        fresh = list(nodes.values())
        for _ in range(CHAIN_MAX):
            if not fresh:
                return
            units = self.core.custody.state.units
            known = {n.fields["unit"]: units[n.fields["unit"]].dept for n in fresh if n.fields.get("unit") in units}
            for node in await self.history.ask(_look, fresh, known, departments):
                nodes[node.key] = node
            wanted = {nodes[node.key].cause for node in fresh}
            places = [place for place in wanted if place is not None and place[:2] not in nodes]
            fresh = await self._nodes(sorted(places))
            nodes |= {node.key: node for node in fresh}


def _look(db: sqlite3.Connection, nodes: list[Node], known: dict[str, str], departments: list[str]) -> list[Node]:
    """The same nodes with departments and causes.  `known`: departments of units."""
    found = []
    for node in nodes:
        department = node.department or _department(db, node, known, departments)
        asked = story_causes.of(node.place.kind, node.fields, department, departments)
        cause = story_index.last(db, [ask for ask in asked if ask[0]], node.key)
        found.append(node._replace(department=department, cause=cause))
    return found


def _department(db: sqlite3.Connection, node: Node, known: dict[str, str], departments: list[str]) -> str:
    """Whose the fact is that does not say it."""
    unit = node.fields.get("unit") or node.fields.get("job")
    if unit is not None:
        return known.get(unit) or _department_of_unit(db, unit) or ""
    sql = "SELECT 1 FROM story WHERE entity = ? AND position = ? AND number = ?"
    return next((name for name in departments if db.execute(sql, (DEPARTMENT + name, *node.key)).fetchone()), "")


def _department_of_unit(db: sqlite3.Connection, unit: str) -> str | None:
    if is_instance(unit):
        rows = story_index.of(db, unit, END, 1)
        return unit.partition(".")[0] if rows else None
    sql = "SELECT department FROM jobs WHERE unit = ? OR (unit > ? AND unit < ?) LIMIT 1"
    row = db.execute(sql, (unit, f"{unit}_", f"{unit}_:")).fetchone()  # an array is there by its elements
    return str(row[0]) if row is not None else None


def _node(place: Place, envelope: Received | None) -> Node | None:
    if envelope is None or place.number >= len(envelope.facts):
        return None
    fact = envelope.facts[place.number]
    if isinstance(fact, UnknownFact) or kind_of(fact) != place.kind:
        return None
    fields: dict[str, Any] = msgspec.to_builtins(fact)
    return Node(place, envelope.at, fields, str(fields.get("dept") or ""))


# ----------------------------------------------------------------------------------------------------------------- telling


def _concerns(node: Node, name: str) -> bool:
    """Whether what is said of elements of an array is said of this one, too."""
    element, elements = ELEMENT.match(name), node.fields.get("elements")
    return element is None or elements is None or int(element[2]) in specs.array(elements, FINALS_MAX)[0]


def _visible(node: Node, scope: str | None) -> bool:
    """Rule 3."""
    mine = scope is None or node.department == scope
    return mine or not (node.fields.get("unit") or node.fields.get("job"))


def _chain(node: Node, nodes: dict[tuple[int, int], Node], own: set[tuple[int, int]]) -> Iterator[Node]:
    """Rule 1."""
    while node.cause is not None and (key := node.cause[:2]) not in own and key in nodes:
        node = nodes[key]
        yield node


def _step(
    node: Node, nodes: dict[tuple[int, int], Node], own: set[tuple[int, int]], scope: str | None, name: str
) -> dict[str, Any]:
    causes = [cause for cause in _chain(node, nodes, own) if _visible(cause, scope)]
    return {
        **_said(node),
        "index": node.place.number,
        "reason": node.fields.get("reason") or node.fields.get("why"),
        "refs": [ref for ref in _refs(node.fields) if ref != name],
        "user": node.fields.get("user"),
        "cause": node.cause.position if node.cause is not None else None,
        "cause_index": node.cause.number if node.cause is not None else None,
        "because": [_said(cause) for cause in causes],
    }


def _said(node: Node) -> dict[str, Any]:
    kind, sentence = node.place.kind, told(node.place.kind, node.fields, node.department)
    return {"at": iso(node.at), "position": node.place.position, "kind": kind, "sentence": sentence}


def _refs(fields: dict[str, Any]) -> list[str]:
    """Entities that the fact names."""
    names, hosts = [fields.get(key) for key in ("unit", "job", "host", "dept")], fields.get("hosts")
    more = hosts if isinstance(hosts, list | tuple) else ()  # of a quota it is a number
    return list(dict.fromkeys(name for name in (*names, *more) if isinstance(name, str)))
