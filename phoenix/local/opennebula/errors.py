"""How a call is refused: OpenNebula's error codes, and the two XML-RPC faults of its library."""

from __future__ import annotations

AUTHENTICATION = 0x0100
AUTHORIZATION = 0x0200
NO_EXISTS = 0x0400
ACTION = 0x0800
XML_RPC_API = 0x1000
INTERNAL = 0x2000
ALLOCATE = 0x4000

FAULT_TYPE = -501
FAULT_NO_METHOD = -506


class OneError(Exception):
    """A refusal. `text` is without the `[method]` in front; `object_id` is the id that does not exist, else -1."""

    def __init__(self, code: int, text: str, object_id: int = -1) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.object_id = object_id


class Fault(Exception):
    """An XML-RPC fault."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class TemplateError(ValueError):
    """A template that cannot be parsed; the text is OpenNebula's."""


def missing(kind: str, object_id: int) -> OneError:
    """The object does not exist. A negative id is asked of the pool itself, as `oned` words it."""
    where = f"{kind} [{object_id}]." if object_id >= 0 else f"{kind} Pool."
    return OneError(NO_EXISTS, f"Error getting {where}", object_id)
