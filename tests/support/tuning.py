"""A small log and a small web load for `phoenix tune`: a run takes milliseconds, and policies differ."""

from __future__ import annotations

from pathlib import Path

OWN_JOBS = 40  # of own.swf
MINUTES = [3, 3, 9, 30, 90, 100, 80, 30, 9, 3, 60, 100, 20, 3]  # requests; 100 of them want 64 nodes
SPACE = """
[axis]
cluster.hosts = [110, 150]
hpc.order = ["first-fit", "easy", "shortest-first", "multi-factor"]
hpc.on_reclaim = ["kill", "requeue", "suspend"]
hpc.multi_factor.weight_size = { from = -20000, to = 20000, step = 20000, when = { hpc.order = "multi-factor" } }
"""
POINTS = 2 * 3 * (3 + 3)  # of that space
GOAL = ("--goal", "min hpc.mean_turnaround_s", "max hpc.completed")

SITE = """
[experiment]
window = "12h"
seeds = [1, 2]
[cluster]
hosts = 24
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 80, processors = 16, load = 2.0 }
[[department]]
name = "web"
kind = "web"
demand = { generator = "daily", peak = 8, days = 1.0 }
[goal]
hpc.p95_wait_s = "<= 2h"
"""


def swf(count: int, step: int = 37) -> str:
    """Jobs of 8 to 800 processors, four a minute."""
    lines = ["; MaxNodes: 144", "; MaxProcs: 1152"]
    for number in range(1, count + 1):
        processors, run_s = 8 * (1 + number * step % 100), 60 + number * 97 % 600
        user = number % 5
        lines.append(
            f"{number} {15 * number} -1 {run_s} {processors} -1 -1 {processors} -1 -1 1 {user} -1 -1 -1 -1 -1 -1"
        )
    return "\n".join([*lines, ""])


def written(directory: Path, space: str = SPACE) -> list[str]:
    """The files, and the words of `phoenix tune` that name them."""
    (directory / "own.swf").write_text(swf(OWN_JOBS))
    (directory / "other.swf").write_text(swf(50, step=53))
    rows = [f"1998-06-07 00:{minute:02}:00,{requests}" for minute, requests in enumerate(MINUTES)]
    (directory / "own.csv").write_text("\n".join(["minute_gmt,requests", *rows, ""]))
    (directory / "space.toml").write_text(space)
    files = ["--jobs", str(directory / "own.swf"), "--web", str(directory / "own.csv")]
    out = ["--space", str(directory / "space.toml"), "--out", str(directory / "trials.jsonl")]
    return ["tune", "--experiment", "phoenix-cloud", *files, *out, "--workers", "1"]
