"""The generated documents: JSON Schemas of every message, and one AsyncAPI document of every subject.

    python -m schemas.generate            writes schemas/*.json
    python -m schemas.generate --check    exit code 1 and the names of files that differ

What it decides: nothing.  The Python types are the contract; the documents say the same to other languages.

Rules
  1. The same types give the same bytes: keys in the order of the definitions, no time, no version of this program.
  2. Every `$ref` resolves inside its own file, so that one file can be handed on.
  3. Everything that a subject carries is here: a fact kind, request or signal that is added appears without further work,
     and `schemas.examples` must have an example of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas import examples, facts, problems, requests, signals
from schemas.asyncapi import asyncapi
from schemas.audit import AuditBatch
from schemas.config import CloudConfig
from schemas.descriptions import schema_components
from schemas.envelope import Envelope
from schemas.events import Event
from schemas.problems import Problem
from schemas.times import as_sent

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
BASE: Final = "urn:phoenix-cloud:schemas:"
DIRECTORY: Final = Path(__file__).resolve().parent


def document(
    name: str, description: str, roots: Mapping[str, Any], shown: Mapping[str, Iterable[Any]], *, sent: bool = False
) -> dict[str, Any]:
    """One schema file: anything of `roots` (title -> type); `shown`: examples by title; `sent`: the server sends it."""
    asked, answered = ((), roots.values()) if sent else (roots.values(), ())
    refs, definitions = schema_components(asked, "#/$defs/{name}", sent=answered)
    for (title, _), ref in zip(roots.items(), refs, strict=True):
        target = definitions[ref["$ref"].rpartition("/")[2]] if "$ref" in ref else None
        if target is not None and title in shown:
            target["examples"] = [as_sent(example) for example in shown[title]]
    return {
        "$schema": DIALECT,
        "$id": f"{BASE}{name}",
        "title": name,
        "description": description,
        **({"anyOf": list(refs)} if len(refs) > 1 else refs[0]),
        "$defs": definitions,
    }


def _facts() -> dict[str, Any]:
    roots: dict[str, Any] = dict(facts.BY_KIND)
    shown = {facts.kind_of(fact): [fact] for fact in examples.FACTS}
    made = document(
        "facts", "Facts of the journal; `kind` tells which. Readers ignore fields they do not know.", roots, shown
    )
    mapping = {kind: f"#/$defs/{cls.__name__}" for kind, cls in facts.BY_KIND.items()}
    owners = {kind: facts.WRITERS[cls] for kind, cls in facts.BY_KIND.items()}
    return {**made, "discriminator": {"propertyName": "kind", "mapping": mapping}, "x-writers": owners}


def _requests() -> dict[str, Any]:
    made = document(
        "requests",
        "Payloads of phoenix.request.<department>.<user>.<noun>.<verb>, as JSON or MessagePack; x-requests: which is which.",
        {cls.__name__: cls for cls, _ in requests.REQUESTS.values()},
        _by_class(examples.REQUESTS.values()),
    )
    return {**made, "x-requests": {kind: f"#/$defs/{cls.__name__}" for kind, (cls, _) in requests.REQUESTS.items()}}


def _replies() -> dict[str, Any]:
    classes: list[type[msgspec.Struct]] = [*(reply for _, reply in requests.REQUESTS.values()), Problem]
    made = document(
        "replies",
        f"Answers to requests: the named struct, or Problem: its type begins with {problems.URN}. x-replies: which is which.",
        {cls.__name__: cls for cls in classes},
        _by_class(examples.REPLIES),
        sent=True,
    )
    return {**made, "x-replies": {kind: f"#/$defs/{cls.__name__}" for kind, (_, cls) in requests.REQUESTS.items()}}


def _signals() -> dict[str, Any]:
    made = document(
        "signals",
        "Payloads of phoenix.signal.<department>.<user>.<name>, as JSON or MessagePack; x-signals: which is which.",
        {cls.__name__: cls for cls in signals.SIGNALS.values()},
        _by_class(examples.SIGNALS.values()),
    )
    return {**made, "x-signals": {name: f"#/$defs/{cls.__name__}" for name, cls in signals.SIGNALS.items()}}


def _by_class(messages: Iterable[msgspec.Struct]) -> dict[str, list[msgspec.Struct]]:
    found: dict[str, list[msgspec.Struct]] = {}
    for message in messages:
        found.setdefault(type(message).__name__, []).append(message)
    return found


def documents() -> dict[str, dict[str, Any]]:
    """Every generated document by file name."""
    return {
        "facts.json": _facts(),
        "envelope.json": document(
            "envelope",
            "A message of phoenix.journal.<writer>: all facts of one decision. MessagePack on the wire.",
            {"Envelope": Envelope},
            {"Envelope": [examples.ENVELOPE]},
        ),
        "config.json": document(
            "config",
            "The configuration as a message: config.adopted, config.apply.",
            {"CloudConfig": CloudConfig},
            {"CloudConfig": [examples.CLOUD]},
        ),
        "requests.json": _requests(),
        "replies.json": _replies(),
        "signals.json": _signals(),
        "events.json": document(
            "events",
            "Payloads of phoenix.event.<department>.<noun>.<verb> (JSON), and of phoenix.audit.<department>.",
            {"Event": Event, "AuditBatch": AuditBatch},
            {
                "Event": [examples.event(fact, n) for n, fact in enumerate(examples.FACTS)],
                "AuditBatch": [examples.AUDIT],
            },
        ),
        "asyncapi.json": asyncapi(),
    }


def render(made: Mapping[str, Any]) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


@cache
def texts() -> dict[str, str]:
    """The same as the files have them."""
    return {name: render(made) for name, made in documents().items()}


def stale(directory: Path = DIRECTORY) -> list[str]:
    """Names of files in `directory` that are not what the types say: different, missing, or left over."""
    wanted = texts()
    found = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.json")}
    return sorted(name for name in {**wanted, **found} if wanted.get(name) != found.get(name))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m schemas.generate", description="Generate schemas/*.json.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file differs")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = stale(options.directory)
    if options.check:
        for name in names:
            print(f"schemas/{name} differs from the types: run python -m schemas.generate", file=sys.stderr)
        return 1 if names else 0
    made = texts()
    for name in names:
        path = options.directory / name
        if name in made:
            path.write_text(made[name], encoding="utf-8")
        else:
            path.unlink()
        print(f"schemas/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
