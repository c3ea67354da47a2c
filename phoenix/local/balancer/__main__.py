"""`python -m phoenix.local.balancer --config FILE`: the embedded load balancer of one web department."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from phoenix.local.balancer import settings
from phoenix.local.balancer.app import Balancer
from services.domain.exits import Exit, Stop
from services.runtime import log


async def _run(config: settings.Settings) -> int:
    return await Balancer(config).run()


def main() -> int:
    """Run until SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="phoenix.local.balancer", description="The load balancer of a web department."
    )
    parser.add_argument("--config", required=True, type=Path, help="JSON file, readable by its owner only")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    args = parser.parse_args()
    log.configure(args.log_level, args.log_format, service="balancer")
    code = int(Exit.FAILED)
    try:
        config = settings.load(args.config)
    except settings.SettingsError as error:
        print(f"balancer: {error}", file=sys.stderr)
        return int(Exit.USAGE)
    try:
        code = asyncio.run(_run(config))
    except* (Stop, OSError) as group:
        cause = group.exceptions[0]
        print(f"balancer: {cause}", file=sys.stderr)
        code = int(cause.code) if isinstance(cause, Stop) else code
    return code


if __name__ == "__main__":
    sys.exit(main())
