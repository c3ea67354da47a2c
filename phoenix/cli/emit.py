"""JSON on stdout: indented for one thing, one line for lists that may be long."""

from __future__ import annotations

import sys

import orjson


def json(value: object) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def line(value: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()
