"""What a change of the generated documents means for programs that were written for the last release.

    python -m tests.contracts.compatibility             every difference from the release, with its class
    python -m tests.contracts.compatibility --release   what the documents are now becomes the release (make contracts-release)

What it decides: the class of each difference between two OpenAPI or two AsyncAPI documents (`changes` has the classes and what
a change of a schema is worth), and which breaking ones the changelog does not name.

Rules
  1. What a program calls must stay: operations, channels, parameters, content types, and each way to authorise.  Nothing more
     may be demanded of it.
  2. An answer with 2xx, and its content types, stay as they are, for programs tell them apart.  Of refusals one may be added:
     programs treat a status that is new to them by its class.
  3. The way of a message is that of its operation: received is taken, sent and replied is sent.  The journal is both, so of
     facts nothing is compatible but a property with a default, a kind or a reason more.
  4. A line of the changelog's unreleased part, below "What breaks", names a breaking difference by its place in backticks:
     `JobSubmit.walltime_s`, `DELETE /v1/leases/{lease}`, `GET /v1/queue?state`, `signal.cpu`.  `*` stands for one name or part
     of it: `*.start_at`, `ClaimSignal.*`.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from schemas import generate
from services.admission.http import openapi
from tests.contracts.changes import Class, Difference, Found, Schema, Schemas, Way, default_of, is_editorial

ROOT: Final = Path(__file__).resolve().parents[2]
RELEASED: Final = Path(__file__).with_name("released")
NAMES: Final = ("openapi", "asyncapi")
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_NAMED: Final = frozenset(  # below these keys are names, not keywords
    (
        "properties",
        "schemas",
        "paths",
        "channels",
        "operations",
        "messages",
        "responses",
        "content",
        "parameters",
        "servers",
    )
)
_OPERATION: Final = frozenset(("operationId", "parameters", "requestBody", "responses", "security"))
_PARAMETER: Final = frozenset(("name", "in", "schema", "required"))
_MESSAGE: Final = frozenset(("name", "contentType", "payload"))


def differences(old: Schema, new: Schema) -> list[Difference]:
    """Between two documents of the same kind, sorted by place."""
    found = Found()
    (_openapi if "openapi" in old else _asyncapi)(old, new, found)
    _editorial(found, "", old, new)
    return found.sorted()


def released(name: str) -> dict[str, Any]:
    """A document (`NAMES`) as it was at the last release."""
    document: dict[str, Any] = json.loads(gzip.decompress((RELEASED / f"{name}.json.gz").read_bytes()))
    return document


def present() -> dict[str, dict[str, Any]]:
    """The documents as they are now, by name."""
    return {
        "openapi": json.loads(openapi.document()),
        "asyncapi": json.loads(json.dumps(generate.documents()["asyncapi.json"])),
    }


def unannounced(found: Iterable[Difference], changelog: str) -> list[Difference]:
    """Breaking differences that the changelog does not name (rule 4)."""
    patterns = announced(changelog)
    return [
        one
        for one in found
        if one.of is Class.BREAKING and not any(fnmatch.fnmatchcase(one.place, pattern) for pattern in patterns)
    ]


def announced(changelog: str) -> list[str]:
    """The places that the unreleased part names below "What breaks", as patterns.  A pattern of `*` and dots alone is none."""
    unreleased = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    breaks = re.search(
        r"^(?:### )?What breaks.*?\n(.*?)(?=^\S(?<!-)|\Z)", unreleased[1] if unreleased else "", re.M | re.S
    )
    places = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", breaks[1]) if breaks else []
    return [re.sub(r"[\[\]]", r"[\g<0>]", " ".join(place.split())) for place in places if place.strip("*. ")]


# ------------------------------------------------------------------------------------------------------------------- OpenAPI


def _openapi(old: Schema, new: Schema, found: Found) -> None:
    schemas = Schemas(old, new, found)
    mine, others = _operations(old), _operations(new)
    for key, (place, one) in mine.items():
        if key not in others:
            found.breaking(place, "removed")
        else:
            _operation(schemas, found, place, one, others[key][1])
    for key in others.keys() - mine.keys():
        found.add(others[key][0], "added", Class.COMPATIBLE)
    _named(found, "securitySchemes", old["components"], new["components"])
    _rest(found, "OpenAPI", old, new, {"paths", "components", "security", "servers", "info"})
    _rest(found, "components", old["components"], new["components"], {"schemas", "securitySchemes"})


def _operations(document: Schema) -> dict[str, tuple[str, dict[str, Any]]]:
    """By method and path; how a path calls its parameters does not matter to those who fill them in."""
    found = {}
    for path, item in document["paths"].items():
        for method in (method for method in _METHODS if method in item):
            one = {"security": document.get("security", []), **item[method]}
            one["parameters"] = [*item.get("parameters", ()), *one.get("parameters", ())]
            found[f"{method} {re.sub(r'{[^}]*}', '{}', path)}"] = (f"{method.upper()} {path}", one)
    return found


def _operation(schemas: Schemas, found: Found, place: str, old: Schema, new: Schema) -> None:
    _rest(found, place, old, new, _OPERATION)
    if old.get("operationId") != new.get("operationId"):
        found.breaking(place, f"operationId now {new.get('operationId')}: generated clients name the call by it")
    _security(found, place, old["security"], new["security"])
    _parameters(schemas, found, place, old["parameters"], new["parameters"])
    _body(schemas, found, place, old.get("requestBody"), new.get("requestBody"))
    _answers(schemas, found, place, old["responses"], new["responses"])


def _security(found: Found, place: str, old: list[Any], new: list[Any]) -> None:
    """Ways to authorise, one of which is enough; none: nothing is demanded."""
    mine, others = ({json.dumps(one, sort_keys=True) for one in ways or [{}]} for ways in (old, new))
    if "{}" in others:
        mine -= mine - others  # callers that authorise themselves are let in, too
    for way in sorted(mine - others):
        found.breaking(place, f"security {way} no longer enough")
    for way in sorted(others - mine):
        found.add(place, f"security {way} is enough", Class.COMPATIBLE)


def _parameters(schemas: Schemas, found: Found, place: str, old: list[Any], new: list[Any]) -> None:
    mine, others = _by_name(schemas.old.at, old), _by_name(schemas.new.at, new)
    for key, one in mine.items():
        at = f"{place}{_mark(one)}{one['name']}"
        if key not in others:
            found.breaking(at, "removed")
            continue
        other = others[key]
        if one.get("required", False) != other.get("required", False):
            found.breaking(
                at, "required now" if other.get("required") else "optional now", when=other.get("required", False)
            )
        for name in ("style", "explode", "allowReserved", "content"):
            if one.get(name) != other.get(name):
                found.breaking(at, f"{name} now {other.get(name)}")
        before, after = one.get("schema", {}), other.get("schema", {})
        if default_of(before | _text(one)) != default_of(after | _text(other)):
            found.breaking(at, "default changed")
        schemas.compare(at, before, after, "taken")
        _rest(found, at, one, other, _PARAMETER | {"style", "explode", "allowReserved", "content"})
    for key, other in others.items():
        if key not in mine:
            needed = other.get("required", False)
            found.breaking(
                f"{place}{_mark(other)}{other['name']}", "added, required" if needed else "added", when=needed
            )


def _text(parameter: Schema) -> dict[str, Any]:
    return {"description": parameter.get("description", "")}


def _by_name(at: Any, parameters: list[Any]) -> dict[tuple[str, str], Any]:
    """Those of the path by their order."""
    found = {}
    for index, one in enumerate(at(each["$ref"]) if "$ref" in each else each for each in parameters):
        found[one["in"], str(index) if one["in"] == "path" else one["name"]] = one
    return found


def _mark(parameter: Schema) -> str:
    return {"query": "?", "path": " ", "header": " header ", "cookie": " cookie "}[parameter["in"]]


def _body(schemas: Schemas, found: Found, place: str, old: Schema | None, new: Schema | None) -> None:
    if old is None or new is None:
        if old is not new:
            needed = new is None or bool(new.get("required"))
            found.breaking(place, "body removed" if new is None else "body added", when=needed)
        return
    if old.get("required", False) != new.get("required", False):
        found.breaking(place, "body required now" if new.get("required") else "body optional now", when=new["required"])
    _contents(schemas, found, place, old["content"], new["content"], "taken")
    _rest(found, place, old, new, {"required", "content"})


def _answers(schemas: Schemas, found: Found, place: str, old: Schema, new: Schema) -> None:
    """Rule 2."""
    for status in sorted({*old, *new}):
        at = f"{place} {status}"
        if status not in new:
            found.breaking(at, "removed")
        elif status not in old:
            found.breaking(at, "added", when=status[0] in "23")
        else:
            _contents(schemas, found, at, old[status].get("content", {}), new[status].get("content", {}), "sent")
            _named(found, f"{at} headers", old[status], new[status], key="headers")
            _rest(found, at, old[status], new[status], {"content", "headers"})


def _contents(schemas: Schemas, found: Found, place: str, old: Schema, new: Schema, way: Way) -> None:
    """By content type.  Another one in an answer would come to programs that cannot read it."""
    for kind in sorted({*old, *new}):
        if kind not in new:
            found.breaking(place, f"content type {kind} removed")
        elif kind not in old:
            found.breaking(place, f"content type {kind} added", when=way == "sent")
        else:
            schemas.compare(place, old[kind].get("schema", {}), new[kind].get("schema", {}), way)
            _rest(found, place, old[kind], new[kind], {"schema"})


# ------------------------------------------------------------------------------------------------------------------ AsyncAPI


def _asyncapi(old: Schema, new: Schema, found: Found) -> None:
    schemas = Schemas(old, new, found)
    mine, others = old["channels"], new["channels"]
    for name, channel in mine.items():
        if name not in others:
            found.breaking(name, "removed")
            continue
        if channel.get("address") != others[name].get("address"):
            found.breaking(name, f"address {channel.get('address')}, now {others[name].get('address')}")
        _rest(found, name, channel, others[name], {"address", "messages", "parameters"})
    for name in others.keys() - mine.keys():
        found.add(name, "added", Class.COMPATIBLE)
    for name, operation in old["operations"].items():
        if name not in new["operations"]:
            found.breaking(_channel(operation), f"operation {name} removed")
        else:
            _exchange(schemas, found, operation, new["operations"][name])
    for name in new["operations"].keys() - old["operations"].keys():
        found.add(_channel(new["operations"][name]), f"operation {name} added", Class.COMPATIBLE)
    _named(found, "securitySchemes", old["components"], new["components"])
    _secured(found, old, new)
    _rest(found, "AsyncAPI", old, new, {"channels", "operations", "components", "servers", "info"})
    _rest(
        found,
        "components",
        old["components"],
        new["components"],
        {"schemas", "messages", "parameters", "securitySchemes"},
    )


def _exchange(schemas: Schemas, found: Found, old: Schema, new: Schema) -> None:
    """Rule 3."""
    place = _channel(old)
    for key in ("action", "channel"):
        if old[key] != new[key]:
            found.breaking(place, f"{key} now {new[key]}")
    _messages(
        schemas, found, place, old["messages"], new["messages"], "taken" if old["action"] == "receive" else "sent"
    )
    _rest(found, place, old, new, {"action", "channel", "messages", "reply"})
    mine, others = old.get("reply"), new.get("reply")
    if mine is None or others is None:
        if mine is not others:
            found.breaking(place, "reply removed" if others is None else "reply added", when=others is None)
        return
    for key in ("channel", "address"):
        if _less(mine.get(key)) != _less(others.get(key)):
            found.breaking(place, f"the reply's {key} changed")
    _messages(schemas, found, place, mine["messages"], others["messages"], "sent")


def _messages(schemas: Schemas, found: Found, place: str, old: list[Any], new: list[Any], way: Way) -> None:
    mine, others = _by_ref(schemas.old.at, old), _by_ref(schemas.new.at, new)
    for name, message in mine.items():
        if name not in others:
            found.breaking(place, f"message {name} removed")
            continue
        other = others[name]
        if message.get("contentType") != other.get("contentType"):
            found.breaking(name, f"content type {message.get('contentType')}, now {other.get('contentType')}")
        schemas.compare(name, message.get("payload", {}), other.get("payload", {}), way)
        _rest(found, name, message, other, _MESSAGE)
    for name in others.keys() - mine.keys():
        found.breaking(place, f"message {name} added", when=way == "sent")


def _by_ref(at: Any, refs: list[Any]) -> dict[str, Any]:
    """Messages of an operation: its references lead to those of a channel, and these to the components."""
    found = {}
    for each in refs:
        one, name = each, ""
        while "$ref" in one:
            name = one["$ref"].rpartition("/")[2]
            one = at(one["$ref"])
        found[name] = one
    return found


def _channel(operation: Schema) -> str:
    return str(operation["channel"]["$ref"].rpartition("/")[2])


def _secured(found: Found, old: Schema, new: Schema) -> None:
    """Where the server is, is an example; how one authorises there is not."""
    for name, server in old["servers"].items():
        other = new["servers"].get(name, {})
        for key in ("protocol", "security"):
            if server.get(key) != other.get(key):
                found.breaking(f"servers.{name}", f"{key} now {other.get(key)}")


# ---------------------------------------------------------------------------------------------------------------------- both


def _named(found: Found, place: str, old: Schema, new: Schema, key: str = "") -> None:
    """Things by name that are to stay as they are."""
    mine, others = old.get(key or place, {}), new.get(key or place, {})
    for name in sorted({*mine, *others}):
        if name not in mine:
            found.add(f"{place}.{name}", "added", Class.COMPATIBLE)
        elif _less(mine[name]) != _less(others.get(name)):
            found.breaking(f"{place}.{name}", "changed" if name in others else "removed")


def _rest(found: Found, place: str, old: Schema, new: Schema, known: Iterable[str]) -> None:
    """What is read by no rule here is better read by a person."""
    for key in sorted({*old, *new} - {*known}):
        if not is_editorial(key) and old.get(key) != new.get(key):
            found.breaking(place, f"{key} changed")


def _less(node: Any) -> Any:
    """Without what is editorial."""
    if isinstance(node, Mapping):
        return {key: _less(value) for key, value in node.items() if not is_editorial(key)}
    return [_less(each) for each in node] if isinstance(node, list) else node


def _editorial(found: Found, place: str, old: Any, new: Any, *, names: bool = False) -> None:
    """Words and examples that differ where both documents have the same."""
    if old == new:
        return
    if isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            _editorial(found, f"{place}[{index}]", one, other)
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return
    for key in sorted({*old, *new}):
        if not names and is_editorial(key):
            if old.get(key) != new.get(key):
                found.add(place or "document", f"{key} changed", Class.EDITORIAL)
        elif not names and key in ("info", "default", "enum", "const"):
            if key == "info" and old[key] != new.get(key):
                found.add("info", "changed", Class.EDITORIAL)
        elif key in old and key in new:
            inner = not names and key in _NAMED
            at = place if inner or key == "components" else f"{place}.{key}" if place else key
            _editorial(found, at, old[key], new[key], names=inner and isinstance(old[key], Mapping))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.contracts.compatibility", description="Compare with the release."
    )
    parser.add_argument("--release", action="store_true", help="keep the documents as they are now as the release's")
    options = parser.parse_args(arguments)
    for name, document in present().items():
        if options.release:
            RELEASED.mkdir(exist_ok=True)
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
            (RELEASED / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))
        for one in differences(released(name), document):
            print(f"{name}: {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
