"""The jobs' network in an embedded cloud: whether they have one of their own, and what gives it a way out.

Rules
  1. As root jobs have a network of their own, unless `--job-network machine` or isolation `none`, where they could leave it.
     Where the kernel refuses one they share the machine's, and that is reported; where it was asked for by name nothing starts.
  2. Without a way out (no `pasta`, or a machine without a default route) jobs reach the doors of the cloud and each other.
"""

from __future__ import annotations

import os
import sys
from typing import Final
from urllib.parse import urlsplit

from phoenix.local.network.namespace import JobsNetwork, NetworkError
from phoenix.local.programs import program
from phoenix.local.stack_settings import Settings
from phoenix.local.supervisor_child import Spec
from services.runtime.config.tables import Config

PASTA: Final = "pasta"
AGAIN: Final = "`phoenix up --job-network machine` lets them share the machine's"
NO_PASTA: Final = (
    "jobs reach the cloud's services and each other, but no other network: there is no pasta; as root, apt-get install passt "
    f"(in a checkout, make setup), then start again; {AGAIN}"
)
WAY_OUT_S: Final = 10.0  # pasta takes a tenth of a second; the cloud does not wait longer for it
NO_WAY_OUT: Final = f"jobs reach the cloud's services and each other, but no other network: pasta {{why}}; {AGAIN}"


def made(settings: Settings) -> tuple[JobsNetwork | None, str]:
    """The jobs' own network; or None, and why they share the machine's.  Raises `NetworkError` (rule 1)."""
    if settings.job_network == "machine" or not settings.runs_jobs:
        return None, ""
    why = _hindered(settings)
    if not why:
        try:
            return JobsNetwork(), ""
        except NetworkError as error:
            why = str(error)
    if settings.job_network == "own":
        raise NetworkError(
            f"jobs cannot have a network of their own: {why}; --job-network auto or machine starts without"
        )
    return None, why


def _hindered(settings: Settings) -> str:
    if os.geteuid() != 0:
        return "only root can make one"
    return "with isolation none jobs are root, and could leave it" if settings.isolate == "none" else ""


def name_doors(network: JobsNetwork, config: Config) -> None:
    """A door that listens everywhere is reached at the machine's address which its URL has, whatever the way out is."""
    for url in (config.http.url, config.monitor.url):
        network.have(urlsplit(url).hostname or "")


def way_out(network: JobsNetwork) -> Spec | None:
    """None: there is no `pasta`."""
    found = program(PASTA)
    if found is None:
        return None
    descriptors = network.net, network.user

    async def is_up() -> bool:
        return network.has_way_out()

    return Spec(
        name=PASTA,
        argv=(sys.executable, "-m", "phoenix.local.network.pasta", *map(str, descriptors), str(found)),
        keeps=descriptors,
        probe=is_up,
    )
