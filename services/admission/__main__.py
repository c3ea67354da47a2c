"""``python -m services.admission --config FILE``: runs admission."""

from __future__ import annotations

import sys

from services.admission.core.admission import AdmissionCore
from services.admission.edge import Doors
from services.runtime.config.tables import Config
from services.runtime.main import Options, run
from services.runtime.service import Service


def build(config: Config, options: Options) -> Service:
    return Service(
        "admission",
        AdmissionCore,
        config,
        edges=(Doors(),),
        instance=options.instance,
        reaped=options.reaped,
    )


if __name__ == "__main__":
    sys.exit(run("admission", build))
