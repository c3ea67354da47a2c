"""`python -m phoenix.dashboards DIRECTORY`: Grafana's dashboards as files, one a dashboard (deploy/grafana/dashboards).

A test compares them with what is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import orjson

from phoenix.dashboards.control import CONTROL
from phoenix.dashboards.department import DEPARTMENT
from phoenix.dashboards.form import Dashboard
from phoenix.dashboards.overview import OVERVIEW

ALL: Final = (OVERVIEW, DEPARTMENT, CONTROL)


def text(dashboard: Dashboard) -> bytes:
    return orjson.dumps(dashboard.json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def main(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    for dashboard in ALL:
        (directory / f"{dashboard.uid}.json").write_bytes(text(dashboard))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m phoenix.dashboards DIRECTORY")
    sys.exit(main(Path(sys.argv[1])))
