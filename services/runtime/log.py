"""Structured logs: one event, one line, key=value, to standard error.

Rules
  1. An event is a short constant text; what varies is a field, so that lines can be counted and searched.
  2. A value never breaks the line: it is quoted when it holds a space, a quote or a control character, and cut at VALUE_MAX.
  3. Secrets are never fields.  Fields whose name says that they could be one are refused, not masked: a masked secret is a
     bug that nobody sees.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final

VALUE_MAX: Final = 2000  # characters: a stack trace fits, a payload does not
_SECRET: Final = ("token", "secret", "password", "seed", "credential")
_ROOT: Final = "phoenix"


class Log:
    """A named logger with fields that every line carries."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        """The same log with more fields on every line."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", line(event, {**self._fields, **fields}))


def line(event: str, fields: dict[str, object]) -> str:
    """``event key=value …``.  ValueError for a field that is named like a secret."""
    for name in fields:
        if any(word in name for word in _SECRET):
            raise ValueError(f"log field {name!r} is named like a secret; secrets are never logged")
    return " ".join([event, *(f"{name}={_shown(value)}" for name, value in fields.items())])


def _shown(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if len(text) > VALUE_MAX:
        text = text[:VALUE_MAX] + "…"
    plain = text != "" and text.isprintable() and not any(c in text for c in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


class _Formatter(logging.Formatter):
    def __init__(self) -> None:
        self.converter = time.gmtime
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")


def get_log(**fields: object) -> Log:
    """A log whose lines carry `fields`, for example ``service="admission", instance="admission-1"``."""
    return Log(logging.getLogger(_ROOT), fields)


def configure(level: str) -> None:
    """Send the process's logs to standard error.  `level`: debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    logging.getLogger("nats").addHandler(handler)  # what the client library reports by itself
