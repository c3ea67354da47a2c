"""How fast the simulator is: generated jobs on 1,000 nodes, and the sweep of `phoenix-cloud` beside a plain simulator.

    python -m benchmarks.simulate [--generated 10000 100000] [--large] [--jobs LOG.swf] [--web REQUESTS.csv] [--json]
    python -m benchmarks.simulate --profile [jobs|cloud]

First 10,000 and 100,000 generated jobs (with `--large` 1,000,000), first fit, each in a process of its own, start included:
wall, CPU, memory, facts a second, and by how much the cost of a job grows.  Then the 13 runs of the experiment, against
`benchmarks.reference` on the same rules: ours on all cores, as the command does it, the plain one on one; both start from the
files, and both must tell the same of every run.

`--profile` says instead where the time goes, by module and by function, of 10,000 jobs or of one run of the experiment (160
nodes, requeue).  cProfile makes calls dearer than loops: it tells where to look, not how much there is to gain.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.accasim import GENERATED_NODES, ROOT, child
from benchmarks.accasim_logs import SDSC, generated, write
from benchmarks.accasim_ours import scenario
from benchmarks.cloud import table
from phoenix.simulate.engine import run
from phoenix.simulate.workload import Scenario
from phoenix_papers.phoenix_cloud import experiment as phoenix_cloud
from phoenix_papers.phoenix_cloud import inputs, rules

COUNTS = (10_000, 100_000)
LARGE = 1_000_000
PROFILED = 10_000
WEB = SDSC.with_name("wc98-1998-06-07-to-06-20-per-minute.csv")
TOP = 25
ROUNDING_S = 1e-3  # of a mean of some thousand turnarounds that one of the two may have rounded


def growth(counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Each count in a process of its own, start and reading of the log included."""
    found = []
    with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as directory:
        for count in counts:
            log = Path(directory) / f"{count}.swf"
            write(log, generated(count, GENERATED_NODES))
            given = [str(log), "--nodes", str(GENERATED_NODES), "--order", "first-fit"]
            found.append({"jobs": count, **child([sys.executable, "-m", "benchmarks.accasim_ours", *given])})
    return found


def show_growth(results: list[dict[str, Any]]) -> None:
    rows: list[list[object]] = [["jobs", "completed", "wall s", "CPU s", "peak MiB", "facts/s", "us a job", "growth"]]
    for n, r in enumerate(results):
        cost = r["run_cpu_s"] / r["jobs"]
        before = results[n - 1]["run_cpu_s"] / results[n - 1]["jobs"] if n else cost
        facts = r["facts"] / r["run_cpu_s"]
        rows.append(
            [r["jobs"], r["completed"], r["wall_s"], r["cpu_s"], r["peak_mb"], round(facts), 1e6 * cost, cost / before]
        )
    table(rows)


def sweep(jobs: Path, web: Path, repeat: int = 3) -> dict[str, Any]:
    """The 13 runs by both, from the files, each `repeat` times; the fastest counts, for both."""
    given = ["--jobs", str(jobs), "--web", str(web)]
    ours = [sys.executable, "-m", "phoenix.cli", "simulate", "phoenix-cloud", *given, "--json"]
    theirs = [sys.executable, "-m", "benchmarks.reference", *given, "--json"]
    answers = [(child(ours), child(theirs)) for _ in range(repeat)]
    mine, plain = (min((a[side] for a in answers), key=lambda a: a["wall_s"]) for side in (0, 1))
    return {
        "runs": len(mine["runs"]),
        "differing": differences(mine["runs"], plain["runs"]),
        "ours_wall_s": mine["wall_s"],
        "ours_cpu_s": mine["cpu_s"],
        "plain_wall_s": plain["wall_s"],
        "plain_run_s": plain["run_s"],
        "ratio": mine["wall_s"] / plain["wall_s"],
        "ratio_of_run": mine["wall_s"] / plain["run_s"],
    }


def differences(ours: list[dict[str, Any]], plain: list[dict[str, Any]]) -> list[str]:
    """What the two simulators do not agree on; nothing if both read the rules in the same way."""
    exact = ("configuration", "nodes", "on_reclaim", "completed", "killed", "requeued", "unfinished")
    found = [] if len(ours) == len(plain) else [f"{len(ours)} runs and {len(plain)}"]
    for a, b in zip(ours, plain, strict=False):
        found += [
            f"{a['nodes']} nodes, {a['on_reclaim']}: {key} {a[key]} and {b[key]}" for key in exact if a[key] != b[key]
        ]
        if abs(a["mean_turnaround_s"] - b["mean_turnaround_s"]) > ROUNDING_S:
            found.append(f"{a['nodes']} nodes, {a['on_reclaim']}: mean turnaround {a['mean_turnaround_s']}")
    return found


def profiled(what: str, jobs: Path, web: Path) -> Scenario:
    if what == "jobs":
        return scenario(tuple(generated(PROFILED, GENERATED_NODES)), GENERATED_NODES, "first-fit")
    read = inputs.read(jobs, web)
    return rules.dynamic(phoenix_cloud.PAPER_NODES, "requeue", rules.lay_out(read.jobs), read.demand)


def profile(given: Scenario) -> None:
    """Where the time goes, by module and by function."""
    profiler = cProfile.Profile()
    profiler.runcall(run, given)
    stats: Any = pstats.Stats(profiler)
    modules: dict[str, tuple[int, float]] = {}
    functions = []
    for (file, line, name), (_, calls, own_s, _, _) in stats.stats.items():
        path = Path(file)
        module = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else "Python and its libraries"
        before = modules.get(module, (0, 0.0))
        modules[module] = (before[0] + calls, before[1] + own_s)
        functions.append((own_s, f"{module}:{line} {name}" if line else name, calls))
    total = stats.total_tt
    ranked = sorted(modules.items(), key=lambda item: (-item[1][1], item[0]))
    table([["module", "calls", "own s", "%"], *([m, c, s, 100 * s / total] for m, (c, s) in ranked[:TOP])])
    print()
    functions.sort(key=lambda item: (-item[0], item[1]))
    table([["function", "calls", "own s", "us a call"], *([f, c, s, 1e6 * s / c] for s, f, c in functions[:TOP])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--generated", type=int, nargs="+", default=COUNTS, metavar="N", help="generated jobs, ascending"
    )
    parser.add_argument("--large", action="store_true", help="a million jobs too")
    parser.add_argument("--jobs", type=Path, default=SDSC)
    parser.add_argument("--web", type=Path, default=WEB)
    parser.add_argument("--profile", nargs="?", const="jobs", choices=["jobs", "cloud"], help="where the time goes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.profile:
        profile(profiled(given.profile, given.jobs, given.web))
        return
    found: dict[str, Any] = {"growth": growth((*given.generated, *((LARGE,) if given.large else ())))}
    if given.jobs.exists() and given.web.exists():
        found["sweep"] = sweep(given.jobs, given.web)
    else:
        print("no logs of the experiment: give them with --jobs and --web", file=sys.stderr)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    show_growth(found["growth"])
    if "sweep" in found:
        s = found["sweep"]
        print(f"\nphoenix-cloud, {s['runs']} runs: {s['ours_wall_s']:.2f} s wall, {s['ours_cpu_s']:.2f} s CPU")
        print(f"plain simulator: {s['plain_wall_s']:.2f} s wall, start included; {s['plain_run_s']:.2f} s without")
        print(f"ratio {s['ratio']:.1f}, start included; {s['ratio_of_run']:.1f} against its bare run (goal 20)")
        for line in s["differing"]:
            print("NOT THE SAME:", line, file=sys.stderr)


if __name__ == "__main__":
    main()
