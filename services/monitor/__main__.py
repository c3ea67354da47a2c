"""`python -m services.monitor --config FILE`: what people see."""

from __future__ import annotations

import sys

from services.monitor.core.monitor import MonitorCore
from services.monitor.edge import MonitorEdge
from services.runtime.config.tables import Config
from services.runtime.main import Options, run
from services.runtime.service import Service


def build(config: Config, options: Options) -> Service:
    if options.rebuild_snapshot:  # the fold alone: history and events have their own
        return Service(None, MonitorCore, config, instance=options.instance, name="monitor")
    edge = MonitorEdge(config, options.config_path)
    return Service(None, edge.make_core, config, edges=[edge], instance=options.instance, name="monitor")


if __name__ == "__main__":
    sys.exit(run("monitor", build))
