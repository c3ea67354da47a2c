"""The text of a VM's template, as sent to OpenNebula, with every value quoted so that none can break out of its place.

Theory of operation
  OpenNebula's template syntax knows ``NAME = "value"`` and ``NAME = [ A = "1", B = "2" ]``; within quotes only ``\\"`` is an
  escape, and a backslash before the closing quote would swallow it.  ``$NAME`` in CONTEXT is replaced by the server, and
  nothing quotes it: such a value is refused.

Rules
  1. A value's quotes are escaped; a backslash at its end or before a quote is refused, since nothing can express it.
  2. Names are ``[A-Z_][A-Z0-9_]*`` after upper-casing; everything else is refused when the configuration is read.
  3. The site's attributes come first and may never replace ours: NAME, CPU, VCPU, MEMORY, PHOENIX_ID and CONTEXT's PHOENIX_*.
  4. A release's image takes the place of the first IMAGE among the site's DISKs, if there is one; CONTEXT contains it in any
     case (PHOENIX_IMAGE), so that a site's own start script may look at it.
  5. A department's attributes (`[department.web] template`) take the place of the site's of the same name; of CONTEXT each
     value does.  The configuration was refused if they could not be written, or were ours.
  6. The guest's token is made here and goes nowhere but into the template.
  7. CONTEXT says who ends the machine when its work is done (PHOENIX_END, `ends_itself`), so that no site can have it wrong:
     "cloud" unless both the configuration's hypervisor and the template's HYPERVISOR, where they are given, are ones whose
     machines may power themselves off.  A VM that waits is ended by X4 in any case; one that must not power off and does leaves
     things on its host.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.dimensions import vm_attributes
from schemas.ids import vm_tag
from services.domain.capabilities import Hypervisor, ends_itself
from services.executor.core.calls import Allocate
from services.runtime.config.web import CONTEXT, KEEPS_NO_DOLLAR, OURS, replaced, unwritable

TAG: Final = "PHOENIX_ID"
CLOUD_ENDS: Final = {"PHOENIX_END": "cloud"}  # rule 7
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
VALUE_CHARS_MAX: Final = 64 * 1024  # OpenNebula has no limit; no attribute of a site comes near


class TemplateError(ValueError):
    """An attribute cannot be written; the message names it and says what would be right."""


def quoted(name: str, value: object) -> str:
    """``"value"`` as OpenNebula reads it back unchanged.  Raises `TemplateError`."""
    text = str(value)
    if len(text) > VALUE_CHARS_MAX:
        raise TemplateError(f"{name}: {len(text)} characters; at most {VALUE_CHARS_MAX}")
    what = unwritable(text)
    if what:
        raise TemplateError(f"{name}: OpenNebula's templates cannot express {what}")
    return '"' + text.replace('"', '\\"') + '"'


def checked(name: str) -> str:
    """The attribute name, upper-cased.  Raises `TemplateError`."""
    if not _NAME.match(name):
        raise TemplateError(f"{name!r}: an attribute name has letters, digits and '_' and does not begin with a digit")
    return name.upper()


def attribute(name: str, value: Any) -> str:
    """One line, or several for a list.  A mapping becomes a vector."""
    if isinstance(value, list | tuple):
        return "".join(attribute(name, item) for item in value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{checked(k)} = {quoted(f'{name}.{k}', v)}" for k, v in value.items())
        return f"{checked(name)} = [ {pairs} ]\n"
    return f"{checked(name)} = {quoted(name, value)}\n"


class Templates:
    """Templates of one site.  `key`: the guests' key; `hypervisor`: of its hosts; None: not known.  Raises `TemplateError` if
    the site's attributes cannot be used."""

    def __init__(self, key: bytes, url: str, site: Mapping[str, Any], hypervisor: Hypervisor | None = None) -> None:
        self._key, self._url, self._hypervisor = key, url, hypervisor
        upper = {checked(name): value for name, value in site.items()}
        ours = sorted(name for name in upper if name in OURS)
        if ours:
            raise TemplateError(f"opennebula.template: {', '.join(ours)} is set for each VM and cannot be given")
        context = upper.pop(CONTEXT, {})
        if not isinstance(context, Mapping) or any(checked(k).startswith("PHOENIX_") for k in context):
            raise TemplateError("opennebula.template: CONTEXT must be a table without PHOENIX_ names")
        self._context = {checked(k): str(v) for k, v in context.items()}
        for name, value in self._context.items():
            if expanded := replaced(value):
                raise TemplateError(
                    f"opennebula.template.CONTEXT.{name}: should be without {expanded}: {KEEPS_NO_DOLLAR}"
                )
        attribute("CONTEXT", self._context | {"PHOENIX_URL": url})  # says now what would be refused later
        self._attributes = upper
        self._site = "".join(attribute(name, value) for name, value in upper.items())

    def token(self, tag: str) -> str:
        """The secret of the VM with this PHOENIX_ID: hex HMAC-SHA256 under the guests' key."""
        return hmac.new(self._key, tag.encode(), hashlib.sha256).hexdigest()

    def of(self, cloud: str, call: Allocate, own: Mapping[str, Any] | None = None) -> str:
        """The whole template of one VM.  `own`: its department's attributes.  Raises `TemplateError`."""
        overlay = {checked(name): value for name, value in (own or {}).items()}
        ours = sorted(name for name in overlay if name in OURS)
        if ours:
            raise TemplateError(f"department.web.template: {', '.join(ours)} is set for each VM and cannot be given")
        tag = vm_tag(cloud, call.unit, call.attempt, call.rank)
        context = {
            **self._context,
            **{checked(k): str(v) for k, v in overlay.pop(CONTEXT, {}).items()},
            "PHOENIX_ID": tag,
            "PHOENIX_URL": self._url,
            "PHOENIX_TOKEN": self.token(tag),
            **({"PHOENIX_IMAGE": call.image} if call.image else {}),
            **({} if self._ends_itself(overlay) else CLOUD_ENDS),
        }
        return self._site_with(overlay, call.image) + "".join(
            (
                attribute("NAME", f"{cloud}-{call.unit}-{call.attempt}-{call.rank}"),
                *(attribute(name, value) for name, value in vm_attributes(call.size)),
                attribute(TAG, tag),
                attribute("CONTEXT", context),
            )
        )

    def _ends_itself(self, own: Mapping[str, Any]) -> bool:
        """Rule 7."""
        named = (self._hypervisor, own.get("HYPERVISOR", self._attributes.get("HYPERVISOR")))
        return ends_itself(*(str(name).lower() for name in named if name))

    def _site_with(self, own: Mapping[str, Any], image: str) -> str:
        """Rules 4 and 5."""
        if not image and not own:
            return self._site
        found = {**self._attributes, **own}
        if image:
            found["DISK"] = _booting(found.get("DISK", ()), image)
        return "".join(attribute(name, value) for name, value in found.items())


def _booting(disks: Any, image: str) -> list[Any]:
    """The DISKs with `image` instead of the first IMAGE."""
    found = list(disks) if isinstance(disks, list | tuple) else [disks]
    for index, disk in enumerate(found):
        names = [name for name in disk if name.upper() == "IMAGE"] if isinstance(disk, Mapping) else []
        if names:
            found[index] = {**disk, names[0]: image}
            break
    return found
