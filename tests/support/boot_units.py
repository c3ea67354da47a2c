"""Units of a VM for `systemd-analyze verify`: those of OpenNebula's contextualisation package, as far as their order goes."""

from __future__ import annotations

BEFORE_SHUTDOWN = "Conflicts=shutdown.target\nBefore=shutdown.target\n"
SERVICE = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
LOCAL = "After=local-fs.target\nBefore=network-pre.target\nWants=network-pre.target local-fs.target\n"
EARLY = "After=one-context-local.service systemd-networkd.service\nBefore=network.target\nWants=network.target\n"
# Its last step is wanted by multi-user.target, and ordered after it.
LAST = "After=multi-user.target one-context-local.service one-context-online.service network-online.target\n"
PACKAGE = {
    "one-context-local.service": "DefaultDependencies=no\n" + LOCAL + SERVICE,
    "one-context-online.service": "Requires=one-context-local.service\n" + EARLY + SERVICE,
    "one-context.service": "Requires=one-context-local.service one-context-online.service\nWants=network-online.target\n"
    + LAST
    + SERVICE,
}


def faults(text: str) -> list[str]:
    """The programs of the units are not installed here."""
    return [x for x in text.splitlines() if x and "is not executable" not in x]
