"""`python -m services.executor --config FILE`: the only one that touches OpenNebula."""

from __future__ import annotations

import sys

from services.executor.core.executor import ExecutorCore
from services.executor.edge.executor import ExecutorEdge
from services.runtime.config.tables import Config
from services.runtime.main import Options, run
from services.runtime.service import Service


def build(config: Config, options: Options) -> Service:
    edges = [ExecutorEdge()]
    return Service("executor", ExecutorCore, config, edges=edges, instance=options.instance, reaped=options.reaped)


if __name__ == "__main__":
    sys.exit(run("executor", build))
