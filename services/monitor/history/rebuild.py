"""`python -m services.monitor.history.rebuild --config FILE`: the history rebuilt, beside the running
monitor, which takes it over at its next start (`takeover`).  Exit codes as of a service; `phoenix history rebuild` calls it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

import nats.errors
from nats.js.errors import Error as JetStreamError

from services.domain.exits import Exit, Stop
from services.monitor.history.takeover import make_anew
from services.runtime.broker.connect import connect, service_key
from services.runtime.config.file import ConfigError, load
from services.runtime.config.tables import Config
from services.runtime.log import configure, get_log, message_of

REBUILD_S: Final = 24 * 3600.0  # of years of a busy cloud; a million facts take about two minutes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m services.monitor.history.rebuild", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration (TOML)")
    try:
        config = load(parser.parse_args().config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return int(Exit.USAGE)
    configure(config.runtime.level_of("monitor"), config.runtime.log_format, service="monitor", instance="rebuild")
    try:
        print(asyncio.run(_rebuild(config)))
    except Stop as stop:
        print(stop.why, file=sys.stderr)
        return int(stop.code)
    return int(Exit.OK)


async def _rebuild(config: Config) -> int:
    """The position up to which it is."""
    log = get_log(service="monitor", instance="rebuild")
    inbox, seed_file = service_key(config, "monitor")
    client = await connect(config.nats.url, name="monitor/history", inbox=inbox, log=log, seed_file=seed_file)
    try:
        async with asyncio.timeout(REBUILD_S):
            return await make_anew(config, client, log)
    except (nats.errors.Error, JetStreamError, TimeoutError, OSError) as error:
        raise Stop(Exit.FAILED, f"no new history: {message_of(error)}") from error
    finally:
        await client.close()


if __name__ == "__main__":
    sys.exit(main())
