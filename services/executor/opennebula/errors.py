"""What a call to OpenNebula may raise, and the name of each (`call_errors.Failure`).

Rules
  1. The class of the exception decides where it can; then OpenNebula's message, as in a recorded `oned` 7.4: one code
     stands for a quota, a missing permission and a template that is not allowed.
  2. A fault which shows that the request was not understood has surely not happened; of any other that is unknown.
"""

from __future__ import annotations

import http.client
import re
import ssl
from typing import Final

import pyone

from services.executor.core.call_errors import Failure
from services.executor.opennebula.template import TemplateError
from services.runtime.log import message_of

_NOT_UNDERSTOOD: Final = (-501, -503, -506)  # type, parse and method errors of xmlrpc-c: it never reached OpenNebula
_QUOTA: Final = re.compile(r"\blimit of \S+ reached for .* quota\b|\bquota\b.*\bexceeded\b", re.IGNORECASE)
_CAPACITY: Final = re.compile(r"does not fit in host|Not enough (CPU|memory|space|capacity)", re.IGNORECASE)
_TEMPLATE: Final = re.compile(
    r"restricted attribute|\battribute must be\b|Parse error|Image with ID|Virtual network with|Invalid NAME"
    r"|does not own an? (image|network) with name|Cannot acquire image|cannot be used as DISK",
    re.IGNORECASE,
)


class Unreachable(Exception):
    """No answer that is one: the connection failed, broke or was too slow, or something else answered.  The call may have
    happened."""

    def __init__(self, why: str, failure: Failure = Failure.MALFORMED) -> None:
        super().__init__(why)
        self.failure = failure


class Faulted(pyone.OneException):  # type: ignore[misc]
    """An XML-RPC fault."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


ERRORS: Final = (pyone.OneException, Unreachable, TemplateError)  # what a call may raise


def unreachable(error: Exception) -> Unreachable:
    """The transport's errors."""
    text = message_of(error)
    if isinstance(error, ssl.SSLError):
        return Unreachable(text, Failure.TLS)
    if isinstance(error, TimeoutError):
        return Unreachable(text, Failure.TIMEOUT)
    if isinstance(error, http.client.IncompleteRead):
        return Unreachable("the answer is cut short", Failure.MALFORMED)
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return Unreachable(text, Failure.BROKEN)
    if isinstance(error, http.client.HTTPException):
        return Unreachable(text, Failure.MALFORMED)
    return Unreachable(
        text, Failure.REFUSED
    )  # what is left is an OSError of connecting: refused, no route, no such name


def failure_of(error: Exception) -> Failure:
    """The name of what was raised: one of `ERRORS`."""
    if isinstance(error, Unreachable):
        return error.failure
    if isinstance(error, TemplateError):
        return Failure.TEMPLATE
    if isinstance(error, Faulted):
        return Failure.REQUEST if error.code in _NOT_UNDERSTOOD else Failure.FAULT
    if isinstance(error, pyone.OneAuthenticationException):
        return Failure.LOGIN
    if isinstance(error, pyone.OneNoExistsException):
        return Failure.GONE
    return _by_words(error)


def _by_words(error: Exception) -> Failure:
    """By what OpenNebula says: the same code is used for a quota, a permission and a wrong template."""
    words = str(error)
    for pattern, failure in ((_QUOTA, Failure.QUOTA), (_CAPACITY, Failure.CAPACITY), (_TEMPLATE, Failure.TEMPLATE)):
        if pattern.search(words):
            return failure
    if isinstance(error, pyone.OneAuthorizationException):
        return Failure.STATE if "VM is locked" in words else Failure.PERMISSION
    if isinstance(error, pyone.OneActionException):
        return Failure.STATE
    return Failure.REQUEST if isinstance(error, pyone.OneApiException) else Failure.OTHER
