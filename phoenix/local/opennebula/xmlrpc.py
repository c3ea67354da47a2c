"""XML-RPC as `oned` speaks it, with as little Python per call as possible: lxml decodes, strings are joined to encode.

1. An answer is one array: success, value (string, int or boolean), error code; a refusal adds the object's id and -1
   (i8).
2. Bodies are kept escaped (`escape` once per object, when it changes), so that a pool answer is one join.
3. A document type is refused: no entity is ever expanded.
"""

from __future__ import annotations

from typing import Any

from lxml import etree

from phoenix.local.opennebula.errors import FAULT_TYPE, Fault, OneError

PARSER_OPTIONS: dict[str, Any] = {"resolve_entities": False, "no_network": True, "huge_tree": True}

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\r\n<methodResponse>\r\n'
_ARRAY = "<params>\r\n<param><value><array><data>\r\n"
_TAIL = "</data></array></value></param>\r\n</params>\r\n</methodResponse>\r\n"


class Escaped(str):
    """Text that is already escaped for XML."""

    __slots__ = ()


def escape(text: str) -> Escaped:
    """Text to element content."""
    return Escaped(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def has_doctype(root: Any) -> bool:
    """Whether the document declares a type, and with it perhaps entities."""
    info: Any = root.getroottree().docinfo
    return bool(info.doctype)


def _value(element: Any) -> Any:
    if len(element) == 0:
        return element.text or ""
    kind = element[0]
    tag = kind.tag
    if tag == "string":
        return kind.text or ""
    if tag in ("int", "i4", "i8"):
        return int(kind.text or "0")
    if tag == "boolean":
        return (kind.text or "").strip() == "1"
    if tag == "double":
        return float(kind.text or "0")
    if tag == "array":
        return [_value(item) for item in kind.iterfind("data/value")]
    if tag == "struct":
        return {member.findtext("name"): _value(member.find("value")) for member in kind.iterfind("member")}
    raise Fault(FAULT_TYPE, f"Unknown XML-RPC type <{tag}>")


def decode(body: bytes) -> tuple[str, list[Any]]:
    """A call's method and parameters. Raises `Fault` if the body is no XML-RPC call."""
    try:
        root = etree.fromstring(body, etree.XMLParser(**PARSER_OPTIONS))
        if has_doctype(root):
            raise Fault(FAULT_TYPE, "A document type is not accepted")
        name = root.findtext("methodName")
        params = [_value(value) for value in root.iterfind("params/param/value")]
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Fault(FAULT_TYPE, f"The call is not valid XML-RPC: {error}") from error
    if root.tag != "methodCall" or not name:
        raise Fault(FAULT_TYPE, "The call is not valid XML-RPC: no <methodName>")
    return name.strip(), params


def _scalar(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return f"<value><boolean>{int(value)}</boolean></value>\r\n"
    if isinstance(value, int):
        return f"<value><i4>{value}</i4></value>\r\n"
    text = value if isinstance(value, Escaped) else escape(value)
    return f"<value><string>{text}</string></value>\r\n"


def encode(value: str | int | bool) -> bytes:
    """A success."""
    text = f"{_HEAD}{_ARRAY}{_scalar(True)}{_scalar(value)}{_scalar(0)}{_TAIL}"
    return text.encode("utf-8", "replace")


def encode_error(method: str, error: OneError) -> bytes:
    """A refusal."""
    message = _scalar(f"[{method}] {error.text}")
    last = "<value><i8>-1</i8></value>\r\n"
    text = f"{_HEAD}{_ARRAY}{_scalar(False)}{message}{_scalar(error.code)}{_scalar(error.object_id)}{last}{_TAIL}"
    return text.encode("utf-8", "replace")


def encode_fault(fault: Fault) -> bytes:
    """An XML-RPC fault."""
    text = (
        f"{_HEAD}<fault>\r\n<value><struct>\r\n<member><name>faultCode</name>\r\n<value><i4>{fault.code}</i4></value></member>\r\n"
        f"<member><name>faultString</name>\r\n<value><string>{escape(fault.text)}</string></value></member>\r\n"
        "</struct></value>\r\n</fault>\r\n</methodResponse>\r\n"
    )
    return text.encode("utf-8", "replace")
