"""Where the programs are that Phoenix runs and that are not Python's: HAProxy today.

1. An installed one goes first: ``PATH``, then the directories of administration, which a user's ``PATH`` often lacks.
2. Then ``.tools/bin`` of a checkout, into which ``deploy/tools.sh`` brings it.  An installed Phoenix has no such directory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BROUGHT = CHECKOUT / ".tools" / "bin"
ADMINISTRATION = "/usr/local/sbin:/usr/sbin:/sbin"


class PartMissingError(Exception):
    """Something that must be installed is not; the message says what, and how to get it."""


def program(name: str) -> Path | None:
    """The program of this name, or None."""
    directories = os.pathsep.join([os.environ.get("PATH", os.defpath), ADMINISTRATION, str(BROUGHT)])
    found = shutil.which(name, path=directories)
    return Path(found) if found else None
