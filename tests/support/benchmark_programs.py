"""The programs in `benchmarks`, each with options for its smallest run, and what such a run prints beside figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.unit.frame_source import ROOT

LOG: Final = "{log}"  # a log of jobs, and one of web requests, that the test makes
WEB: Final = "{web}"
SCRATCH: Final = "{scratch}"  # a directory
LIBRARIES: Final = ("__init__", "accasim_logs", "busy_day", "cloud")  # what programs share


class Small(NamedTuple):
    """`says`: words of its output, the head of a column or row; `needs`: a program that not every machine has."""

    options: str
    says: str
    needs: str = ""


SMALL: Final[Mapping[str, Small]] = {
    "accasim": Small("--generated 20 --repeat 1", "AccaSim CPU s", "accasim"),
    "accasim_ours": Small(f"{LOG} --nodes 64 --order fcfs", "last_end_s"),
    "accasim_theirs": Small(f"{LOG} --nodes 64 --order fcfs --scratch {SCRATCH}", "last_end_s", "accasim"),
    "accounting": Small("--facts 300 --users 3", "us a fact"),
    "against": Small("--quick --pairs 1", "CPU ms a submission"),
    "client_import": Small("--runs 1", "import phoenix.client"),
    "decisions": Small("--hosts 10 --queue 20 --orders first-fit --repeats 1", "one freed"),
    "executor": Small("--vms 10 --adopted 10 --releases 4", "hosts at once"),
    "explain": Small("--hosts 10 --queue 20 --orders fcfs --repeats 1", "in one piece s"),
    "flood": Small("--kinds submit --seconds 1", "submit, NATS"),
    "fold": Small("--facts 500", "load it"),
    "journal": Small("--hops 20 --proposals 20 --facts 100", "supervised start"),
    "monitoring": Small("--hosts 10 --jobs 100 --rate 20 --seconds 1", "CPU"),
    "page": Small("--sizes 10x100 --loads 1 --facts 2 --rate 10", "picture painted", "chromium"),
    "polling": Small("--vms 5 --idle-s 1", "started ms p50"),
    "queue": Small("--jobs 20", "phoenix queue"),
    "reads": Small("--jobs 200 --seconds 1", "they are cancelled"),
    "rebuild": Small("--facts 500 --users 3", "and fold the read model"),
    "reference": Small(f"--jobs {LOG} --web {WEB} --json", "mean_turnaround_s"),
    "scrape": Small("--hosts 20 --jobs 100 --runs 2", "over HTTP"),
    "simulate": Small(f"--generated 20 --jobs {LOG} --web {WEB}", "plain simulator"),
    "spike": Small("--spikes 1 --hosts 10", "demand.changed"),
    "submit": Small("--jobs 20 --at-once 20", "acceptance"),
    "throughput": Small("--jobs 20 --hypervisor dummy", "dummy"),
    "warm": Small("--jobs 5 --every 0.01", "VMs started"),
    "whatif": Small("--hosts 10 --queue 20 --orders fcfs", "answer s"),
    "whatif_replay": Small("--jobs 50 --hosts 20", "played again, s"),
}


def programs() -> set[str]:
    """All of them, by their files."""
    return {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - set(LIBRARIES)
