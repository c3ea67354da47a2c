"""Structured logs: one event, one line, to standard error, as text (key=value) or as JSON.

Theory of operation
  `Log` hands event and fields to the standard library's logging; one handler writes all lines of the process, also those of
  other libraries and of uncaught errors.  Fields have the names and values of the journal, so that a line leads to
  what stands there: `position`, `request`, `job`, `unit`, `attempt`, `rank`, `vm`, `host`, `department`, `user`, `kind`.

Rules
  1. An event is a short constant text; what varies is a field, so that lines can be counted and searched.
  2. A value never breaks the line: it is quoted when it holds a space, a quote or a control character, and cut at VALUE_MAX;
     a stack trace (`trace`) is a field like others, of which the end stays.  Of a line that cannot be formed, where it is from
     is reported in one line.
  3. Secrets are never fields.  Fields whose name suggests that they could be one are refused, not masked: a masked secret is a
     bug that stays hidden.
  4. Other libraries log warnings and errors only, whatever the level: their debug output may hold what was sent.
  5. The text of an exception may hold what was sent: a header that is refused is quoted, and it may be a token.  So what
     handles requests logs where an exception was raised and its type (`frames_of`), and what libraries log of one is cut to
     that; of those that handle requests (`_QUOTING`) the line's own values are left out, too.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

import orjson

from schemas.control_characters import shown_in_json
from services.runtime.log_flood import Flood

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Form: TypeAlias = Literal["text", "json"]
VALUE_MAX: Final = 2000  # characters: a sentence fits, a payload does not
TRACE_MAX: Final = 12_000  # about 150 calls
_SECRET: Final = ("token", "secret", "password", "seed", "credential")
_HEAD: Final = ("at", "level", "event")  # of a JSON line
_ROOT: Final = "phoenix"
_QUOTING: Final = ("aiohttp", "asyncio")


class Log:
    """A named logger with fields that every line carries."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        """The same log with more fields on every line."""
        return Log(self._logger, {**self._fields, **fields})

    @property
    def is_debug(self) -> bool:
        """For callers whose fields cost something."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            _refuse_secrets(fields)
            self._logger.log(level, "%s", _Said(event, {**self._fields, **fields}), stacklevel=3)


class _Said:
    """Event and fields of a record; as text for handlers that are not ours."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: dict[str, object]) -> None:
        self.event, self.fields = event, fields

    def __str__(self) -> str:
        return _words(self.event, self.fields)


def message_of(error: BaseException) -> str:
    """What it says; its type if it says nothing, as time-outs do."""
    return str(error) or type(error).__name__


def trace_of(error: BaseException) -> str:
    """Its stack trace, for a field `trace`."""
    return "".join(traceback.format_exception(error))


def frames_of(error: BaseException) -> str:
    """Its stack trace without any exception's text (rule 5): the places, the types, and what each was raised for."""
    parts: list[str] = []
    _add_frames(error, parts, set())
    return "\n".join(parts)


def _add_frames(error: BaseException, parts: list[str], seen: set[int]) -> None:
    """The first cause first, as Python shows them."""
    seen.add(id(error))
    before = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    if before is not None and id(before) not in seen:
        _add_frames(before, parts, seen)
        parts.append("which led to")
    parts.extend(frame.rstrip("\n") for frame in traceback.format_tb(error.__traceback__))
    parts.append(type(error).__qualname__)
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        if id(one) not in seen:
            parts.append("which holds")
            _add_frames(one, parts, seen)


def _refuse_secrets(fields: dict[str, object]) -> None:
    """Rule 3.  ValueError."""
    for name in fields:
        if any(word in name for word in _SECRET):
            raise ValueError(f"log field {name!r} is named like a secret; secrets are never logged")


class _Formatter(logging.Formatter):
    """`fields`: of lines that other libraries write."""

    def __init__(self, form: Form, fields: dict[str, object]) -> None:
        super().__init__()
        self._line, self._own = (_json_line if form == "json" else _text_line), fields

    def format(self, record: logging.LogRecord) -> str:
        try:
            return self._formed(record)
        except Exception as error:  # rule 2: what the standard library says of it has many lines, and the values
            fields = {"logger": record.name, "place": f"{record.module}:{record.lineno}", "error": type(error).__name__}
            return self._line(record, "a line that cannot be written", {**self._own, **fields})

    def _formed(self, record: logging.LogRecord) -> str:
        said = record.args[0] if isinstance(record.args, tuple) and len(record.args) == 1 else None
        if isinstance(said, _Said):
            event, fields = said.event, {**self._own, **said.fields}
        else:
            event, fields = _of_library(record), {**self._own, "logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            told = trace_of if record.name == _ROOT else frames_of
            fields = {**fields, "trace": told(record.exc_info[1])}
        return self._line(record, event, fields)


def _of_library(record: logging.LogRecord) -> str:
    """Rule 5.  asyncio puts values into the text itself: into its further lines, and after a callback's name."""
    if record.name.partition(".")[0] not in _QUOTING:
        return record.getMessage()
    return str(record.msg).partition("\n")[0].partition("(")[0].strip()


def _at(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _text_line(record: logging.LogRecord, event: str, fields: dict[str, object]) -> str:
    return f"{_at(record)} {record.levelname} {_words(event, fields)}"


def _words(event: str, fields: dict[str, object]) -> str:
    told = event if event.isprintable() else _quoted(event)
    return " ".join([told, *(f"{name}={_shown(name, value)}" for name, value in fields.items())])


def _json_line(record: logging.LogRecord, event: str, fields: dict[str, object]) -> str:
    head = {"at": _at(record), "level": record.levelname.lower(), "event": _plain("event", event)}
    values = {f"{name}_" if name in _HEAD else name: _plain(name, value) for name, value in fields.items()}
    return shown_in_json(orjson.dumps({**head, **values}).decode())


def _plain(name: str, value: object) -> Any:
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 53):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, one) for one in value]
    return _cut(name, str(value)).encode("utf-8", "replace").decode()  # what is half a character cannot be sent


def _cut(name: str, text: str) -> str:
    if name == "trace":
        return text if len(text) <= TRACE_MAX else "…" + text[-TRACE_MAX:]
    return text if len(text) <= VALUE_MAX else text[:VALUE_MAX] + "…"


def _shown(name: str, value: object) -> str:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    text = _cut(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    plain = text != "" and text.isprintable() and not any(c in text for c in ' "=')
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    """As JSON has it, and without what would still break a line."""
    quoted = orjson.dumps(text.encode("utf-8", "replace").decode()).decode()
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in quoted)


def get_log(**fields: object) -> Log:
    """A log whose lines carry `fields`, for example ``service="admission", instance="admission-1"``."""
    return Log(logging.getLogger(_ROOT), fields)


def configure(level: str, form: Form = "text", **fields: object) -> None:
    """Send the process's logs to standard error.  `level`: debug, info, warning or error; `fields`: of all lines, those
    that libraries write, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form, fields))
    handler.addFilter(Flood(_event_of, _tell_left_out))
    ours, others = logging.getLogger(_ROOT), logging.getLogger()
    ours.handlers[:] = others.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(level.upper())
    others.setLevel(logging.WARNING)  # rule 4
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_of_thread
    sys.unraisablehook = _uncaught_at_all


def _event_of(record: logging.LogRecord) -> str:
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return said.event if isinstance(said, _Said) else ""


def _tell_left_out(record: logging.LogRecord, count: int) -> None:
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    if isinstance(said, _Said):
        said.fields["left_out"] = count


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An uncaught exception is a line as well."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger(_ROOT).critical("not caught", exc_info=(kind, error, trace))


def _uncaught_of_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        logging.getLogger("thread").critical("not caught", exc_info=told.exc_value)


def _uncaught_at_all(told: sys.UnraisableHookArgs) -> None:
    """Of a finaliser."""
    if told.exc_value is not None:
        logging.getLogger("finaliser").error("not caught", exc_info=told.exc_value)
