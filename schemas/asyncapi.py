"""The AsyncAPI 3.0 document: every subject of `schemas.subjects`, who sends what there, and what is answered.

Rules
  1. The described application is Phoenix: it *receives* requests, signals and queries, and *sends* events and refusals.
  2. A request's answer, the message of its kind or a problem, goes to the inbox that the request names (its reply subject),
     inside the caller's own prefix.
  3. Addresses come from `schemas.subjects` with parameters instead of tokens, so that they cannot drift apart.
  4. Schemas are those of JSON Schema draft 7, on which AsyncAPI 3.0 builds: nothing stands beside a `$ref`, tuples are in
     `items`, a discriminator is the name of a property.
  5. Each query is a channel with its parameters, from the table `schemas.queries`.
  6. `Fact` is all kinds, each a component, and an envelope has facts of any.  An event's `fact` is the head of one, and the
     message of each kind has the schema of its fact: validators write every reference out, and all kinds in the messages of
     all kinds would take them minutes.
"""

from __future__ import annotations

from typing import Any, Final

from schemas import examples, facts, ids, problems, queries, requests, signals, subjects
from schemas.audit import AuditBatch
from schemas.config import CloudConfig
from schemas.descriptions import component_name, schema_components
from schemas.envelope import VERSION as ENVELOPE_VERSION
from schemas.envelope import Envelope
from schemas.events import Event
from schemas.problems import Problem
from schemas.times import as_sent

VERSION: Final = "1.0.0"
_JSON: Final = "application/json"
_MSGPACK: Final = "application/msgpack"
PROBLEM: Final = "problem"
_DEPARTMENT: Final = "{department}"
_USER: Final = "{user}"
PARAMETERS: Final[dict[str, str]] = {
    "department": f"A department, {subjects.OPERATORS!r}, or for events {subjects.SITE!r}: {ids.DEPARTMENT.pattern}",
    "user": "Who asks; the server lets a user publish its own name only.",
    "writer": "admission, provisioner, executor, or scheduler.<department>.",
    "outcome": "granted or refused.",
}


def asyncapi() -> dict[str, Any]:
    """The whole document as plain data."""
    made = _Document()
    for kind in requests.REQUESTS:
        made.request(kind)
    for name in signals.SIGNALS:
        made.signal(name)
    for kind in facts.BY_KIND:
        made.event(kind)
    for query in queries.QUERIES:
        made.query(query)
    made.others()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Phoenix Cloud",
            "version": VERSION,
            "description": "Subjects and messages of Phoenix Cloud on NATS. Requests and signals may be JSON or "
            "MessagePack: by the header Content-Type, else by the first byte. Times are RFC 3339: in UTC and to the "
            "millisecond in answers and events, with any offset in requests, queries and signals; facts and records of "
            "the audit have UTC seconds.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _JSON,
        "servers": {
            "site": {
                "host": "127.0.0.1:7422",
                "protocol": "nats",
                "description": "The site's NATS server. Users connect with their nkey and their own inbox prefix.",
                "security": [{"$ref": "#/components/securitySchemes/nkey"}],
            }
        },
        "channels": made.channels,
        "operations": made.operations,
        "components": {
            "messages": made.messages,
            "schemas": _schemas(),
            "parameters": {name: {"description": text} for name, text in PARAMETERS.items()},
            "securitySchemes": {
                "nkey": {"type": "asymmetricEncryption", "description": "An nkey of type user; its seed is <user>.nk."}
            },
        },
    }


def _schemas() -> dict[str, Any]:
    replies = dict.fromkeys([*(reply for _, reply in requests.REQUESTS.values()), Problem])
    asked = dict.fromkeys(cls for cls, _ in requests.REQUESTS.values())
    roots = [*facts.FACTS, Envelope, CloudConfig, Event, AuditBatch, *asked, *signals.SIGNALS.values()]
    roots += dict.fromkeys(query.asked for query in queries.QUERIES)
    answers = dict.fromkeys(cls for query in queries.QUERIES for cls in query.answered)
    _, components = schema_components(roots, "#/components/schemas/{name}", sent=[*replies, *answers])
    kinds = components["Fact"]["discriminator"]["mapping"]
    components["Fact"]["x-kinds"] = kinds
    components["FactHead"] = _head(list(kinds))
    components["Event"]["properties"]["fact"]["$ref"] = "#/components/schemas/FactHead"
    return {name: _draft_07(schema) for name, schema in components.items()}


def _head(kinds: list[str]) -> dict[str, Any]:
    """What all facts have (rule 6)."""
    return {
        "title": "FactHead",
        "description": "A fact of any kind; the message of each event has the other fields of its kind, and `Fact` all.",
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"type": "string", "enum": kinds, "description": "which fact it is, as `noun.verb`"},
            "custody": {"type": "boolean", "description": "whether a reader that does not know this kind must stop"},
        },
    }


def _schema(cls: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{component_name(cls)}"}


def _draft_07(node: Any) -> Any:
    """A schema as AsyncAPI 3.0 has it (rule 4)."""
    if isinstance(node, list):
        return [_draft_07(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: value if key in ("default", "enum", "examples") else _draft_07(value) for key, value in node.items()}
    if isinstance(made.get("discriminator"), dict):
        made["discriminator"] = made["discriminator"]["propertyName"]
    if "prefixItems" in made:
        made |= {"items": made.pop("prefixItems"), "additionalItems": made["items"]}
    if "$ref" in made and len(made) > 1:
        made = {"allOf": [{"$ref": made.pop("$ref")}], **made}
    return made


class _Document:
    """Channels, operations and messages, added kind by kind."""

    def __init__(self) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        shown = next(e for e in examples.REPLIES if isinstance(e, Problem))
        self.message(PROBLEM, _schema(Problem), "Why it was not done (RFC 9457).", shown, problems.JSON)

    def message(self, name: str, payload: Any, summary: str, example: Any = None, content: str = _JSON) -> str:
        made = {"name": name, "contentType": content, "summary": summary, "payload": payload}
        if example is not None:
            made["examples"] = [{"name": "example", "payload": as_sent(example)}]
        self.messages[name] = made
        return name

    def channel(self, name: str, address: str | None, messages: list[str], description: str) -> None:
        tokens = [p for p in PARAMETERS if address is not None and f"{{{p}}}" in address]
        parameters = {p: {"$ref": f"#/components/parameters/{p}"} for p in tokens}
        self.channels[name] = {
            "address": address,
            "description": description,
            "messages": {m: {"$ref": f"#/components/messages/{m}"} for m in messages},
            **({"parameters": parameters} if parameters else {}),
        }

    def operation(self, name: str, action: str, channel: str, summary: str, reply: str | None = None) -> None:
        self.operations[name] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "summary": summary,
            "messages": self._of(channel),
        }
        if reply is not None:
            self.operations[name]["reply"] = {
                "address": {"location": "$message.header#/reply-to", "description": "The caller's inbox."},
                "channel": {"$ref": f"#/channels/{reply}"},
                "messages": self._of(reply),
            }

    def _of(self, channel: str) -> list[dict[str, str]]:
        return [{"$ref": f"#/channels/{channel}/messages/{m}"} for m in self.channels[channel]["messages"]]

    def request(self, kind: str) -> None:
        asked, answered = requests.REQUESTS[kind]
        noun, verb = kind.split(".")
        name, reply = f"request.{kind}", f"reply.{kind}"
        self.message(name, _schema(asked), f"Ask for {kind}.", examples.REQUESTS.get(kind))
        shown = next((e for e in examples.REPLIES if type(e) is answered), None)
        self.message(reply, _schema(answered), f"Answer to {kind}.", shown)
        address = subjects.request(_DEPARTMENT, _USER, noun, verb)
        self.channel(name, address, [name], f"Requests {kind}.")
        inbox = subjects.inbox(_DEPARTMENT, _USER)
        self.channel(
            reply, None, [reply, PROBLEM], f"Inboxes of callers, below {inbox}; only the server publishes there."
        )
        self.operation(f"receive.{name}", "receive", name, f"A person or program asks for {kind}.", reply)

    def signal(self, signal: str) -> None:
        name = f"signal.{signal}"
        self.message(name, _schema(signals.SIGNALS[signal]), f"Measurement {signal}.", examples.SIGNALS.get(signal))
        self.channel(name, subjects.signal(_DEPARTMENT, _USER, signal), [name], "High rate; not kept.")
        self.operation(f"receive.{name}", "receive", name, "A load balancer or agent reports a measurement.")

    def event(self, kind: str) -> None:
        cls = facts.BY_KIND[kind]
        name = f"event.{kind}"
        narrowed = {"type": "object", "properties": {"kind": {"const": kind}, "fact": _schema(cls)}}
        example = next((examples.event(e) for e in examples.FACTS if type(e) is cls), None)
        self.message(name, {"allOf": [_schema(Event), narrowed]}, f"{kind} has happened.", example)
        description = f"Stream {subjects.EVENTS_STREAM}; in journal order."
        self.channel(name, subjects.event(_DEPARTMENT, kind), [name], description)
        self.operation(f"send.{name}", "send", name, f"The monitor publishes {kind}.")

    def query(self, query: queries.Query) -> None:
        """Rule 5."""
        kind = f"{query.service}.{query.name}"
        name, reply = f"query.{kind}", f"query.{kind}.reply"
        self.message(name, _schema(query.asked), query.text, examples.QUERIES[kind])
        answers = [_schema(cls) for cls in query.answered] or [{"type": "object", "description": query.text}]
        shown = next((e for e in examples.ANSWERS if type(e) in query.answered), None)
        payload = {"anyOf": answers} if len(answers) > 1 else answers[0]
        self.message(reply, payload, f"Answer to {kind}.", shown)
        whom = "Between services." if query.internal else "Read only."
        self.channel(name, subjects.query(query.service, _DEPARTMENT, query.name), [name], whom)
        self.channel(reply, None, [reply, PROBLEM], "Inboxes of callers; only the server publishes there.")
        self.operation(f"receive.{name}", "receive", name, query.text, reply)

    def others(self) -> None:
        audit = self.message("audit", _schema(AuditBatch), "What was asked for, and what came of it.", examples.AUDIT)
        self.channel(
            "audit",
            subjects.audit(_DEPARTMENT, "{outcome}"),
            [audit],
            f"Stream {subjects.AUDIT_STREAM}; operators read it. Records are as they are kept: `at` is in UTC seconds, "
            "in answers to `GET /v1/audit` RFC 3339.",
        )
        self.operation("send.audit", "send", "audit", "Requests were granted or refused.")
        text = f"All facts of one decision, format {ENVELOPE_VERSION}."
        envelope = self.message("journal.envelope", _schema(Envelope), text, examples.ENVELOPE, _MSGPACK)
        description = (
            f"Stream {subjects.JOURNAL_STREAM}; internal: services only, one writer each. Times are UTC seconds."
        )
        self.channel("journal", subjects.journal("{writer}"), [envelope], description)
        self.operation("send.journal", "send", "journal", "A service's leader appends a decision.")
        self.operation("receive.journal", "receive", "journal", "Every service follows the journal.")
