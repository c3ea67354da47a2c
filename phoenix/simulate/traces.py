"""Where the public traces are, if they are on this machine.

They are not part of the product: experiments take a person's own files, else look for the well-known ones, else generate.

Rules
  1. The directory that PHOENIX_TRACES names, if it is set, and nowhere else.
  2. Else `traces` and `../shared/traces` beside the source checkout.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SDSC_BLUE: Final = "sdsc-blue-reconstructed-14days.swf"
WORLD_CUP: Final = "wc98-1998-06-07-to-06-20-per-minute.csv"


WHERE: Final = "the directory that PHOENIX_TRACES names; else traces or ../shared/traces beside the source"  # for help


def find(name: str) -> Path | None:
    """The file, or None."""
    return next((place / name for place in places() if (place / name).is_file()), None)


def places() -> list[Path]:
    """The directories that are looked in, in that order."""
    chosen = os.environ.get("PHOENIX_TRACES")
    return [Path(chosen)] if chosen else [ROOT / "traces", ROOT.parent / "shared" / "traces"]


def looked_in() -> str:
    """Those directories, and how to name another, for a message."""
    named = " and ".join(map(str, places()))
    return f"looked in {named}; the environment variable PHOENIX_TRACES names another directory"
