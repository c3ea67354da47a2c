"""`python -m services.scheduler --config FILE --department D`: what department D does with the hosts it holds.

The department's kind, in the configuration file, picks core and edge.
"""

from __future__ import annotations

import sys

from schemas.subjects import scheduler
from services.domain.core import Core
from services.domain.custody.custody import Custody
from services.runtime.config.file import ConfigError
from services.runtime.config.form import Problem
from services.runtime.config.tables import Config
from services.runtime.log import get_log
from services.runtime.main import Options, run
from services.runtime.service import Edge, Service
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge import plugins
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.edge.web import WebEdge


def build(config: Config, options: Options) -> Service:
    name = options.department
    department = config.cloud.department(name)
    if department is None:
        known = ", ".join(d.name for d in config.cloud.departments) or "none"
        problem = Problem(path=("--department",), found=name, right=f"a department of the file ({known})")
        raise ConfigError([problem], str(options.config_path))
    plugins.load_all(get_log(service=scheduler(name), instance=options.instance))
    is_web = department.kind == "web"

    def core(custody: Custody) -> Core:
        return WebCore(custody, name) if is_web else BatchCore(custody, name)

    edge: Edge = WebEdge(name) if is_web else BatchEdge(name)
    return Service(scheduler(name), core, config, edges=[edge], instance=options.instance, reaped=options.reaped)


if __name__ == "__main__":
    sys.exit(run("scheduler", build, department=True))
