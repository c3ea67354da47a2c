"""`python -m services.provisioner --config FILE`: who holds which host."""

from __future__ import annotations

import sys

from services.provisioner.core.provisioner import ProvisionerCore
from services.provisioner.edge import ConfigEdge
from services.runtime.config.tables import Config
from services.runtime.main import Options, run
from services.runtime.service import Service


def build(config: Config, options: Options) -> Service:
    edge = ConfigEdge(config.cloud)
    return Service(
        "provisioner", ProvisionerCore, config, edges=[edge], instance=options.instance, reaped=options.reaped
    )


if __name__ == "__main__":
    sys.exit(run("provisioner", build))
