"""What of OpenNebula's interface is in scope, written from the server's own table of methods and from the recordings.

    python -m tests.conformance.scope             writes the two tables of docs/reference/opennebula.md
    python -m tests.conformance.scope --check     ends with 1 if the file says something else

A method is there because the server's table has it; its answers were compared because a recorded case asks for it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lxml import etree

from phoenix.local.opennebula.calls import METHODS, Method
from phoenix.local.opennebula.methods_steer import METHOD as STEERING
from phoenix.local.opennebula.server import METHOD_MODULES
from tests.conformance.harness import ZERO_OR_SET, load, masked

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = ROOT / "docs" / "reference" / "opennebula.md"
_TYPES: Final = {"s": "string", "i": "int", "b": "bool", "a": "array"}
_CALLED: Final = re.compile(r"\b([a-z]+)\.([a-z]+)\(")
_CALLERS: Final = ("services/executor/opennebula/client.py",)
_SHOWN: Final = ("one.vm.info", "one.vmpool.info", "one.host.info", "one.hostpool.info")
_FREE: Final = ("TEMPLATE", "USER_TEMPLATE")  # what is in there is the user's, or a host's own


def recorded() -> Counter[str]:
    """Compared answers by method."""
    assert METHOD_MODULES
    return Counter(case["method"] for name in ("calls", "state-action-matrix") for case in load(name))


def used() -> set[str]:
    """Methods that the executor calls."""
    text = "\n".join((ROOT / file).read_text() for file in _CALLERS)
    return {f"one.{kind}.{name}" for kind, name in _CALLED.findall(text)} & set(METHODS)


def _parameters(method: Method) -> str:
    needed, optional = ([_TYPES[kind] for kind in kinds] for kinds in (method.needed, method.optional))
    return ", ".join([*needed, *(f"[{kind}]" for kind in optional)]) or "–"


def _words(method: Method) -> str:
    return (method.handler.__doc__ or "").strip().splitlines()[0].rstrip(".").replace("|", "\\|")


def methods() -> Iterator[str]:
    """The first table."""
    cases, calls = recorded(), used()
    yield "| method | parameters after the session | | recorded answers | executor |"
    yield "|---|---|---|---|---|"
    for name in sorted(METHODS):
        if name != STEERING:
            method = METHODS[name]
            count, by_us = cases.get(name, 0) or "none", "calls it" if name in calls else ""
            yield f"| `{name}` | {_parameters(method)} | {_words(method)} | {count} | {by_us} |"


def _leaves(element: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    here = (*path, element.tag)
    if len(element) == 0 or (path and element.tag in _FREE):
        yield "/".join(here[1:]), element
        return
    for child in element:
        yield from _leaves(child, here)


def _elements(method: str) -> dict[str, str]:
    """Paths below a VM or HOST in the recorded answers -> how they are compared."""
    found: dict[str, str] = {}
    for case in load("calls"):
        if case["method"] == method and case["response_ok"] and str(case["response_body"]).startswith("<"):
            root = etree.fromstring(case["response_body"])
            for thing in [root] if root.tag in ("VM", "HOST") else list(root):
                for path, leaf in _leaves(thing):
                    found[path] = "there" if masked(leaf) == "*" else "set" if leaf.tag in ZERO_OR_SET else "value"
    return found


def _told(paths: list[str]) -> str:
    """Paths, those of one parent together."""
    by_parent: dict[str, list[str]] = {}
    for path in paths:
        parent, _, name = path.rpartition("/")
        by_parent.setdefault(parent, []).append(name)
    return ", ".join(
        f"{parent}/{{{', '.join(names)}}}"
        if parent and len(names) > 1
        else ", ".join(f"{parent}/{n}".lstrip("/") for n in names)
        for parent, names in by_parent.items()
    )


def attributes() -> Iterator[str]:
    """The second table."""
    yield "| answer of | compared by value | set or not | only there |"
    yield "|---|---|---|---|"
    for method in _SHOWN:
        kinds: dict[str, list[str]] = {"value": [], "set": [], "there": []}
        for path, kind in _elements(method).items():
            kinds[kind].append(path)
        yield f"| `{method}` | " + " | ".join(_told(paths) or "–" for paths in kinds.values()) + " |"


def written(text: str) -> str:
    """The document with its tables as they should be."""
    for name, rows in (("methods", methods()), ("attributes", attributes())):
        begin, end = f"<!-- {name}: python -m tests.conformance.scope -->", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = head + begin + "\n" + "\n".join(rows) + "\n" + end + rest.split(end)[1]
    return text


def main(arguments: list[str]) -> int:
    text = DOCUMENT.read_text()
    wanted = written(text)
    if text == wanted:
        return 0
    if "--check" in arguments:
        print("opennebula.md is not what the server has: python -m tests.conformance.scope", file=sys.stderr)
        return 1
    DOCUMENT.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
