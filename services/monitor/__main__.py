"""`python -m services.monitor --config FILE`: what people see."""

from __future__ import annotations

import sys

from services.monitor.edge import MonitorEdge
from services.runtime.config import Config
from services.runtime.main import Options, run
from services.runtime.service import Service


def build(config: Config, options: Options) -> Service:
    edge = MonitorEdge(config, options.config_path)
    service = Service(None, edge.make_core, config, edges=[edge], instance=options.instance, name="monitor")
    service.use_snapshots = False  # the history and the events must see every fact
    return service


if __name__ == "__main__":
    sys.exit(run("monitor", build))
