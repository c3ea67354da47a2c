"""How patient a cloud is with its OpenNebula, where the file does not say it: the embedded one is quick, a site's own is not.

Theory of operation
  The defaults of the configuration's structs are for the embedded cloud, whose VMs are processes: they start in a tenth of a
  second and end when they are signalled.  The drivers of a site's OpenNebula copy images, boot guests and press power buttons,
  over ssh, on hosts that do other work too.  Its settings differ by tables here, as `policy.save_s` does by the hypervisor
  (`machines`): a value that the file names always holds.

Measured on an OpenNebula of one machine with twice as many busy processes as cores, without a copy of an image: a container was
RUNNING after 8 s and its guest called after up to 41 s; a VM of QEMU after 14 s and 33 s; suspending took 2 s, resuming 3 s,
moving 7 s, an end by the power button 8.5 s.

Rules
  1. A site is what has hosts of its own: any hypervisor but those of the embedded cloud, or none that is named.
  2. `grace_s` follows `kill_s` and every `grace_max_s`, `quarantine_s` follows `quarantine_max_s`, where the file names only
     those and they are less: a default is never the reason why a file is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from schemas.config import Department
from services.domain.capabilities import Hypervisor
from services.runtime.config.machines import EMBEDDED_HAS

S = TypeVar("S", bound=msgspec.Struct)

SITE: Final[dict[str, dict[str, float]]] = {
    "policy": {
        # A job ends by its guest, which hears of it only when the power button was pressed: twice what that took.
        "grace_s": 20.0,
        # A guest's own shutdown, of a job without a say: what a distribution needs to unmount and stop services.
        "kill_s": 60.0,
        # OpenNebula's drivers give up on a shutdown after three minutes (SHUTDOWN_TIMEOUT).
        "stuck_s": 180.0,
    },
    # Each start that fails takes minutes there: a host that is tried each minute would be tried without a pause.
    "hosts": {"quarantine_s": 300.0},
    # Drivers take seconds for each step, and oned serialises most calls: more looks see nothing new.
    "opennebula": {"poll_s": 5.0},
}
# The copy of an image of 10 GiB at a gigabit takes 90 s, several at once minutes; then the boot.
BOOT_S: Final = 600.0


def is_site(hypervisor: Hypervisor | None) -> bool:
    """Rule 1."""
    return hypervisor not in EMBEDDED_HAS


def paced(name: str, table: S, said: object, departments: tuple[Department, ...] = ()) -> S:
    """A table of a site's file, with the settings that it does not name.  `said`: what the file has there."""
    told = said if isinstance(said, Mapping) else {}
    values = {key: value for key, value in SITE.get(name, {}).items() if key not in told}
    for key, bound in (("grace_s", "kill_s"), ("quarantine_s", "quarantine_max_s")):  # rule 2
        if key in values and bound in told:
            values[key] = min(values[key], getattr(table, bound))
    if "grace_s" in values:
        most = [d.batch.grace_max_s for d in departments if d.batch is not None and d.batch.grace_max_s is not None]
        values["grace_s"] = min([values["grace_s"], *most])
    return replace(table, **values) if values else table


def patient(department: Department, said: object) -> Department:
    """A department of a site, whose VMs may take long to boot."""
    kind = department.kind
    policy, table = getattr(department, kind, None), said.get(kind) if isinstance(said, Mapping) else None
    if policy is None or (isinstance(table, Mapping) and "boot_timeout_s" in table):
        return department
    changed: dict[str, Any] = {kind: replace(policy, boot_timeout_s=BOOT_S)}
    return replace(department, **changed)
