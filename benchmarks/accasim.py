"""Side by side with AccaSim 1.1.3, a simulator of batch dispatching: the same log, the same policy, CPU seconds.

    python -m benchmarks.accasim [--generated 10000] [--large] [--log SDSC.swf] [--order first-fit|fcfs] [--repeat 3] [--json]

Each case is one log in Standard Workload Format that both read from the same file, each in a process of its own, one after the
other, `--repeat` times; the median counts.  AccaSim gets an environment of its own under `.tools/accasim` (from PyPI, at first
use).  CPU seconds are user and system of the whole child; `run` is the same without start and imports.

Rules
  1. Both tell jobs completed, when the last one ended and the sum of all waiting times; if these differ, nothing is compared.
  2. What they do alike: queue in order of submission, first fit past a job that does not fit (or not, with `fcfs`), whole
     nodes, run time as in the log; at one instant ends, then submissions, then one pass.
  3. Where they differ: `docs/explanation/benchmarks-simulator.md`. Ours also folds every fact as production does.
  4. The log of SDSC Blue is given as nodes: ceil(processors / 8), at least 1 s; the others come from our own generator.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.accasim_logs import SDSC, SDSC_NODES, generated, sdsc, write
from benchmarks.cloud import table
from phoenix.simulate.workload import LogJob

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".tools" / "accasim"
VERSION = "1.1.3"
INSTALL_S = 600.0
CHILD_S = 1800.0  # AccaSim takes 150 s for 100,000 jobs on an idle core
GENERATED_NODES = 1000
SAME = ("completed", "refused", "last_end_s", "wait_s")


class Case(NamedTuple):
    name: str
    jobs: list[LogJob]
    nodes: int
    repeat: int
    goal: float | None


def environment() -> Path:
    """The Python that has AccaSim; made at first use."""
    python = HOME / "bin" / "python"
    if not python.exists():
        print(f"installing AccaSim {VERSION} from PyPI into {HOME.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True, timeout=INSTALL_S)
    found = subprocess.run([python, "-c", "import accasim"], capture_output=True, check=False, timeout=INSTALL_S)
    if found.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", f"accasim=={VERSION}"], check=True, timeout=INSTALL_S)
    return python


def child(command: list[str]) -> dict[str, Any]:
    """What the child says, and the CPU seconds that the system counted for it."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        deadline = threading.Timer(CHILD_S, process.kill)
        deadline.start()
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)  # Popen itself does not tell what a child used
        process.returncode = os.waitstatus_to_exitcode(status)
        deadline.cancel()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    answer: dict[str, Any] = json.loads(said)
    answer["wall_s"] = time.perf_counter() - began
    answer["cpu_s"] = usage.ru_utime + usage.ru_stime
    return answer


def compare(case: Case, order: str, python: Path, scratch: Path) -> dict[str, Any]:
    """Rule 1: runs of both, in turn."""
    log = scratch / f"{case.nodes}-{len(case.jobs)}.swf"
    write(log, case.jobs)
    given = [str(log), "--nodes", str(case.nodes), "--order", order]
    theirs, ours = [], []
    for _ in range(case.repeat):
        theirs.append(child([str(python), "-m", "benchmarks.accasim_theirs", *given, "--scratch", str(scratch)]))
        ours.append(child([sys.executable, "-m", "benchmarks.accasim_ours", *given]))
    differing = [
        f"{key}: AccaSim {theirs[0][key]}, ours {ours[0][key]}" for key in SAME if theirs[0][key] != ours[0][key]
    ]
    return {
        "case": case.name,
        "jobs": len(case.jobs),
        "nodes": case.nodes,
        "order": order,
        **{key: ours[0][key] for key in SAME},
        "differing": differing,
        "accasim": medians(theirs),
        "ours": medians(ours),
        "goal": case.goal,
    }


def medians(answers: list[dict[str, Any]]) -> dict[str, float]:
    return {
        key: statistics.median(answer[key] for answer in answers)
        for key in ("cpu_s", "run_cpu_s", "run_wall_s", "peak_mb")
    }


def cases(log: Path | None, count: int, large: bool, repeat: int) -> list[Case]:
    found = []
    if log is not None and log.exists():
        found.append(Case("14 days of SDSC Blue", sdsc(log), SDSC_NODES, repeat, 3.0))
    else:
        print("no log of SDSC Blue: give one with --log", file=sys.stderr)
    found.append(Case("generated", generated(count, GENERATED_NODES), GENERATED_NODES, repeat, None))
    if large:
        found.append(Case("generated", generated(100_000, GENERATED_NODES), GENERATED_NODES, 1, 10.0))
    return found


def show(results: list[dict[str, Any]]) -> None:
    rows: list[list[object]] = [
        [
            "case",
            "jobs",
            "completed",
            "last end s",
            "waited s",
            "AccaSim CPU s",
            "ours",
            "ratio",
            "ratio of run",
            "goal",
        ]
    ]
    for r in results:
        theirs, ours = r["accasim"], r["ours"]
        same = [r["case"], r["jobs"], r["completed"], round(r["last_end_s"]), round(r["wait_s"])]
        if r["differing"]:
            print(f"NOT THE SAME WORK in {r['case']}: {'; '.join(r['differing'])}", file=sys.stderr)
            rows.append([*same, theirs["cpu_s"], ours["cpu_s"], "-", "-", "-"])
            continue
        ratios = [theirs["cpu_s"] / ours["cpu_s"], theirs["run_cpu_s"] / ours["run_cpu_s"]]
        rows.append([*same, theirs["cpu_s"], ours["cpu_s"], *ratios, r["goal"] or "-"])
    table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, default=SDSC, help="the 14 days of SDSC Blue")
    parser.add_argument("--generated", type=int, default=10_000, metavar="N", help="generated jobs")
    parser.add_argument("--large", action="store_true", help="100,000 jobs too: minutes")
    parser.add_argument("--order", choices=["first-fit", "fcfs"], default="first-fit")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    python = environment()
    with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as scratch:
        results = [
            compare(case, given.order, python, Path(scratch))
            for case in cases(given.log, given.generated, given.large, given.repeat)
        ]
    if given.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)
    if any(r["differing"] for r in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
