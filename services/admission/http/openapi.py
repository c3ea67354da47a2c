"""The OpenAPI 3.1 document: every HTTP call, generated from the routes and the structs.

    python -m services.admission.http.openapi > services/admission/http/openapi.json

The file is kept beside this module so that a change of the contract is seen in review; a test compares both, and another
compares the routes with what admission really serves.

Rules
  1. Schemas have no `default`: generated clients would send it, also to a server whose default is another one, or take its
     property for one that is always there.  The description of a property that may be absent names its default in words,
     unless that is null or empty.
  2. An answer that is a stream is text; of JSON lines `contentSchema` says what they are, as an array.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from schemas import examples, ids, problems, reads, signals
from schemas import requests as r
from schemas.between_fields import RELATIVE
from schemas.descriptions import schema_components
from schemas.problems import Problem
from schemas.reads import READS, Read
from schemas.times import as_sent
from services.admission.guests.launch import LAUNCH_ID
from services.admission.http.guest_routes import BASE, Content, GuestRoute
from services.admission.http.guest_routes import ROUTES as GUESTS
from services.admission.http.operations import GROUPS, group, operation_id
from services.admission.http.routes import ROUTES, Header, Route
from services.admission.storage.output import STREAMS

_BODY: Final = "Body"
_REF: Final = "#/components/schemas/{name}"
_ERRORS: Final = (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)  # of any route with a token
_GONE: Final = 410
_CASES: Final = {kind.status: kind.title for kind in problems.KINDS.values()} | {
    status: case for kind in problems.KINDS.values() for status, case in kind.others
}
_WITHOUT_TOKEN: Final = (400, 503)
_IN_PATH: Final = {
    "job": "jobs",
    "lease": "lease",
    "host": "host",
    "instance": "unit",
}  # noun of a kind -> field of its request
_AGAIN: Final = (Header(name="Retry-After", type="integer", text="seconds until the request may be sent again"),)
_OF_ERRORS: Final[dict[int, tuple[Header, ...]]] = {
    401: (Header(name="WWW-Authenticate", text="Bearer"),),
    429: _AGAIN,
    503: _AGAIN,
}
_MONITOR: Final = {
    "url": "http://127.0.0.1:7481",
    "description": "The monitor, where the page is: `[monitor] url` of the configuration.",
}
_SEGMENT: Final = "[^/]+"


def _text(*patterns: str) -> dict[str, Any]:
    """Text of one of these patterns of `schemas.ids`."""
    found = [pattern.removesuffix(ids.END) for pattern in patterns]
    return {"type": "string", "pattern": f"^(?:{'|'.join(found)})$"}


_JOB: Final = _text(ids.JOB.pattern, ids.ELEMENT.pattern)
# Name in a path, and the paths where it means that -> its schema.
_PATHS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("job", "/v1/jobs/{job}/output", _text(ids.JOB.pattern, ids.ELEMENT.pattern, ids.INSTANCE.pattern)),
    ("launch", BASE, _text(LAUNCH_ID)),
    ("department", "/", _text(ids.DEPARTMENT.pattern)),
    ("host", "/", _text(ids.HOST.pattern)),
    ("unit", BASE, _text(ids.JOB.pattern, ids.ELEMENT.pattern, ids.INSTANCE.pattern)),
    ("unit", "/", _text(ids.INSTANCE.pattern)),
    ("attempt", BASE, {"type": "integer", "minimum": 0, "maximum": 999_999_999}),
    ("rank", BASE, {"type": "integer", "minimum": 0, "maximum": 99_999}),
    ("stream", BASE, {"type": "string", "enum": list(STREAMS)}),
    ("name", "/v1/signals/", {"type": "string", "enum": list(signals.SIGNALS)}),
    ("name", BASE, {"type": "string", "pattern": RELATIVE, "minLength": 1}),
    ("job", "/", _JOB),
    ("lease", "/", _text(ids.JOB.pattern)),
    ("", "/", {"type": "string", "pattern": f"^{_SEGMENT}$"}),
)
_OF_READS: Final = (400, 401, 403, 429, 503)
_OF_PATH: Final = frozenset(
    ("job.cancel", "job.hold", "job.release", "lease.cancel", "host.cordon", "host.drain", "host.uncordon")
)


@cache
def document() -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(_document()), indent=1) + b"\n"


def _document() -> dict[str, Any]:
    kinds = [route.kind for route in ROUTES if route.kind]
    asked = [*(r.REQUESTS[kind][0] for kind in kinds), *signals.SIGNALS.values()]
    asked += [call.body for call in GUESTS if isinstance(call.body, type)]
    asked += [read.body for read in READS if read.body is not None]
    answered: list[type[msgspec.Struct]] = [*(r.REQUESTS[kind][1] for kind in kinds), Problem]
    answered += [call.answer for call in GUESTS if isinstance(call.answer, type)]
    answered += [answer for read in READS for answer in _answers(read)]
    _, schemas = schema_components(asked, _REF, sent=answered)
    schemas = {name: _without_defaults(schema) for name, schema in schemas.items()}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    for read in READS:
        paths.setdefault(read.path, {})[read.method.lower()] = _read(read)
    for call in GUESTS:
        paths.setdefault(call.path, {})[call.method.lower()] = _guests(call)
    schemas |= {f"{name}{_BODY}": _body(schemas[name], field) for name, field in _named_by_paths().items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Phoenix Cloud",
            "version": "1",
            "description": "Requests and reads of people and programs, and the calls of VMs (/v1/guest/…, "
            "docs/reference/guests.md). Times are RFC 3339: in UTC and to the millisecond in answers, with any offset in "
            "requests; facts have UTC seconds, as the journal has them, but for the reasons in them. "
            "Durations are seconds. A property that is absent has the default that its description names, else it is "
            "null or empty. What holds between the properties of a request is in `x-all-of`: JSON Schemas that it fits, too.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The address from which this document comes."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": text} for name, text in GROUPS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "guest": {"type": "http", "scheme": "bearer", "description": "PHOENIX_TOKEN of this VM"},
                "job": {"type": "http", "scheme": "bearer", "description": "The job's: in PHOENIX_TOKEN_FILE"},
            },
            "schemas": dict(sorted(used(paths, schemas).items())),
        },
    }


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Rule 1."""
    if "properties" not in schema:
        return schema
    required = schema["required"]
    told = {name: _told(value, absent=name not in required) for name, value in schema["properties"].items()}
    return {**schema, "properties": told}


def _told(value: dict[str, Any], *, absent: bool) -> dict[str, Any]:
    """A property with its default in words, if it may be absent."""
    kept = {key: part for key, part in value.items() if key != "default"}
    default = value.get("default")
    if absent and default not in (None, "", (), [], {}):
        kept["description"] += f"; default: {msgspec.json.encode(default).decode()}"
    return kept


def _named_by_paths() -> dict[str, str]:
    """Requests of which the path names a part: that may be left out of the body."""
    found = {}
    for route in ROUTES:
        field = _IN_PATH.get(route.kind.partition(".")[0])
        asked = r.REQUESTS[route.kind][0] if route.kind else r.Message
        if field in asked.__struct_fields__ and "{" in route.path:
            found[asked.__name__] = field
    return found


def _body(schema: dict[str, Any], field: str) -> dict[str, Any]:
    """Of one thing that the path names, the body says nothing; of several, it may name more."""
    required = [name for name in schema["required"] if name != field]
    fields = {name: value for name, value in schema["properties"].items() if name != field}
    if field == "jobs":
        named = schema["properties"][field]
        fields[field] = {**named, "minItems": 0, "maxItems": named["maxItems"] - 1}
    return {**schema, "title": f"{schema['title']}{_BODY}", "required": required, "properties": fields}


def used(paths: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Those of `schemas` that the paths need."""
    found: dict[str, Any] = {}
    open_ = [paths]
    while open_:
        text = msgspec.json.encode(open_.pop()).decode()
        for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
            if name not in found:
                found[name] = schemas[name]
                open_.append(schemas[name])
    return found


def _named(method: str, path: str, kind: str = "") -> dict[str, Any]:
    return {"operationId": operation_id(method, path, kind), "tags": [group(path)]}


def _described(text: str) -> dict[str, str]:
    """What a call is for: its first words as the summary, and all of them if there are more."""
    summary = re.split(r"[.:;](?= |$)", text, maxsplit=1)[0]
    return {"summary": summary} if len(summary) >= len(text) - 1 else {"summary": summary, "description": text}


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        **_named(route.method, route.path, route.kind),
        **_described(route.text),
        "parameters": _in_path(route.path) + [_in_query(parameter) for parameter in route.query],
        "responses": {str(route.status): _answer(route), **_errors(*(_ERRORS if route.token else _WITHOUT_TOKEN))},
    }
    if not route.token:
        found["security"] = []
    if route.method == "POST":
        schema: dict[str, Any] = {"type": "object"}
        if route.kind:
            name = r.REQUESTS[route.kind][0].__name__
            schema = {"$ref": _REF.format(name=f"{name}{_BODY}" if name in _named_by_paths() else name)}
        elif route.bodies:
            schema = {"anyOf": [{"$ref": _REF.format(name=name)} for name in route.bodies]}
        # Where the path names the jobs or the host, the body may be left out or incomplete.
        found["requestBody"] = {
            "required": route.kind not in _OF_PATH,
            "content": {"application/json": {"schema": schema, **_asked_example(route)}},
        }
    return found


def _read(read: Read) -> dict[str, Any]:
    """A read of the monitor's."""
    named = any(parameter.name == "department" for parameter in read.query)  # which may be unknown
    refused = _errors(*dict.fromkeys((*_OF_READS, *read.refuses, *((404,) if named else ()))))
    body = {} if read.body is None else {"requestBody": {"required": True, **_content(read.body)}}
    return {
        **_named(read.method, read.path),
        **_described(read.text),
        "parameters": _in_path(read.path) + [_in_query(parameter) for parameter in read.query],
        "responses": {"200": {"description": "done", "content": {read.content: {"schema": _shown(read)}}}, **refused},
        **body,
        **({"servers": [_MONITOR]} if read.path.startswith("/v1/session") and read.method != "GET" else {}),
        **({} if read.token else {"security": []}),
    }


def _shown(read: Read) -> dict[str, Any]:
    """The schema of a read's answer (rule 2)."""
    shown = [{"$ref": _REF.format(name=answer.__name__)} for answer in _answers(read)]
    if read.content in (reads.JSON_LINES, reads.EVENT_STREAM):
        lines = {"contentSchema": {"type": "array", "items": shown[0]}} if shown else {}
        return {"type": "string", "contentMediaType": read.content, **lines}
    return {"anyOf": shown} if len(shown) > 1 else shown[0] if shown else {}


def _answers(read: Read) -> tuple[type[msgspec.Struct], ...]:
    if read.answer is None:
        return ()
    return read.answer if isinstance(read.answer, tuple) else (read.answer,)


def _guests(route: GuestRoute) -> dict[str, Any]:
    """A call of a VM's guest, or of its job."""
    answer = _content(route.answer) if route.answer is not None else {}
    found: dict[str, Any] = {
        **_named(route.method, route.path),
        **_described(route.text),
        "parameters": _in_path(route.path) + [_in_query(parameter) for parameter in route.query],
        "responses": {
            str(route.status): {"description": "done", **answer},
            **({"204": {"description": "none yet"}} if route.none_yet else {}),
            **_errors(*_ERRORS, _GONE),
        },
        "security": [{"guest": []}, *([{"job": []}] if route.job else [])],
    }
    if route.body is not None:
        found["requestBody"] = {"required": _has_to_be(route.body), **_content(route.body)}
    return found


def _has_to_be(content: Content) -> bool:
    """Without a body a file is empty, and a struct has its defaults."""
    return isinstance(content, type) and any(field.required for field in msgspec.structs.fields(content))


def _content(content: Content) -> dict[str, Any]:
    if isinstance(content, type):
        return {"content": {"application/json": {"schema": {"$ref": _REF.format(name=content.__name__)}}}}
    kind = "text/plain" if content == "text" else "application/octet-stream"
    return {"content": {kind: {"schema": {}}}}


def _headers(headers: Iterable[Header]) -> dict[str, Any]:
    found = {
        one.name: {"description": one.text, "required": one.always, "schema": {"type": one.type}} for one in headers
    }
    return {"headers": found} if found else {}


def _answer(route: Route) -> dict[str, Any]:
    if route.status == 204:
        return {"description": "yes"}
    schema: dict[str, Any] = {}
    if route.kind:
        schema = {"$ref": _REF.format(name=r.REQUESTS[route.kind][1].__name__)}
    content = {route.answers: {"schema": schema, **_answer_example(route)}}
    return {"description": "done", "content": content, **_headers(route.headers)}


def _asked_example(route: Route) -> dict[str, Any]:
    if route.kind:
        shown = _meant(examples.REQUESTS[route.kind])
        shown.pop(_named_by_paths().get(r.REQUESTS[route.kind][0].__name__, ""), None)
        return {"example": shown}
    names = {cls.__name__: name for name, cls in signals.SIGNALS.items()}
    shown = {names[body]: {"value": _meant(examples.SIGNALS[names[body]])} for body in route.bodies}
    return {"examples": shown} if shown else {}


def _meant(message: msgspec.Struct) -> dict[str, Any]:
    """The message without what is as it is by default: a program sends what it means."""
    sent: dict[str, Any] = as_sent(message)
    fields = {field.name: field for field in msgspec.structs.fields(message)}
    return {name: value for name, value in sent.items() if getattr(message, name) != _default(fields[name])}


def _default(field: msgspec.structs.FieldInfo) -> object:
    """`msgspec.NODEFAULT` if the field is required."""
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _answer_example(route: Route) -> dict[str, Any]:
    answered = r.REQUESTS[route.kind][1] if route.kind else None
    return next(({"example": as_sent(one)} for one in examples.REPLIES if type(one) is answered), {})


def _errors(*statuses: int) -> dict[str, Any]:
    content = {problems.JSON: {"schema": {"$ref": _REF.format(name="Problem")}}}
    return {
        str(status): {"description": _CASES[status], "content": content, **_headers(_OF_ERRORS.get(status, ()))}
        for status in sorted(statuses)
    }


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": next(schema for of, at, schema in _PATHS if of in ("", name) and path.startswith(at)),
        }
        for name in re.findall(r"{(\w+)}", path)
    ]


def _in_query(parameter: reads.Parameter) -> dict[str, Any]:
    made: dict[str, Any] = {"name": parameter.name, "in": "query", "description": parameter.text}
    made |= {"required": True} if parameter.required else {}
    made["schema"] = parameter.schema()
    return {**made, "explode": False} if parameter.several else made


if __name__ == "__main__":
    sys.stdout.buffer.write(document())
