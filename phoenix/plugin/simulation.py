"""What an experiment imports: the simulator on production cores, its inputs, reports, searches and plots.

| | |
|---|---|
| a run | `simulate` a `Scenario` of `Work` and `WebInput` to its `Outcome`; `engine.Simulation`, `facts`, `explain`, `verify` |
| many runs | `sweep.run_all` on all cores; `mean`, `interval`, `spread`, `verdict` over seeds |
| inputs | job logs (`swf`, `layout`, `traces`), generated jobs (`lublin`, `Variates`), web load (`web_csv`, `web_model`) |
| figures | `report` (JSON and CSV), `render` and the other tables, `plots`, and `plots_style` for one of your own |
| a search | `Space`, `grid`, `evaluate`, `trials`; `Document` and `measured` for what `phoenix tune` searches |
| the command line | types of options (`count`, `amount`, `files`), `usage` and `CliError` with their exit codes |

A module that stands here stands for its public names.
"""

from phoenix.cli import files
from phoenix.cli.errors import FAILED, OK, USAGE, CliError, usage
from phoenix.cli.parser import amount, at_least_zero, count, whole, worded
from phoenix.cli.tables import render
from phoenix.cli.units import parse_time_s
from phoenix.policies import names as policy_names
from phoenix.search import trials
from phoenix.search.evaluate import Job, evaluate
from phoenix.search.space import Point, Space, grid
from phoenix.search.space import load as load_space
from phoenix.search.trials import digest
from phoenix.simulate import (
    engine,
    explain,
    layout,
    lublin,
    plots,
    plots_style,
    report,
    sweep,
    swf,
    traces,
    web_csv,
    web_model,
)
from phoenix.simulate.checkpointing import Habit
from phoenix.simulate.engine import run as simulate
from phoenix.simulate.goal import Limit
from phoenix.simulate.intervals import Verdict, interval, mean, spread, verdict
from phoenix.simulate.metrics import bounded_slowdown, load_and_service, stretches, turnaround_s
from phoenix.simulate.report import Run, beats
from phoenix.simulate.tables import duration, host_hours, ratio, runs_table, share
from phoenix.simulate.text_input import InputError
from phoenix.simulate.variates import Variates
from phoenix.simulate.verify import verify
from phoenix.simulate.workload import (
    UNLIMITED_S,
    JobRecord,
    Latencies,
    LogJob,
    Outcome,
    Scenario,
    Series,
    WebInput,
    WebRecord,
    Work,
)
from phoenix.tune.bench import Document, measured, seeds_of
from schemas import facts
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Leases, LeaseVictims, OnReclaim, WebPolicy
from schemas.facts import Disposal
from schemas.validation import words_of
from services.domain.capabilities import ALL as ALL_CAPABILITIES
from services.domain.custody.meta import Meta
from services.runtime.config.checks import check_cloud
from services.runtime.config.form import suggestion

__all__ = [
    "ALL_CAPABILITIES",
    "FAILED",
    "OK",
    "UNLIMITED_S",
    "USAGE",
    "BatchPolicy",
    "CliError",
    "CloudConfig",
    "Department",
    "Disposal",
    "Document",
    "Habit",
    "InputError",
    "Job",
    "JobRecord",
    "Latencies",
    "LeaseVictims",
    "Leases",
    "Limit",
    "LogJob",
    "Meta",
    "OnReclaim",
    "Outcome",
    "Point",
    "Run",
    "Scenario",
    "Series",
    "Space",
    "Variates",
    "Verdict",
    "WebInput",
    "WebPolicy",
    "WebRecord",
    "Work",
    "amount",
    "at_least_zero",
    "beats",
    "because",
    "bounded_slowdown",
    "check_cloud",
    "count",
    "digest",
    "duration",
    "engine",
    "evaluate",
    "explain",
    "facts",
    "files",
    "grid",
    "host_hours",
    "interval",
    "layout",
    "load_and_service",
    "load_space",
    "lublin",
    "mean",
    "measured",
    "parse_time_s",
    "plots",
    "plots_style",
    "policy_names",
    "ratio",
    "render",
    "report",
    "runs_table",
    "seeds_of",
    "share",
    "simulate",
    "spread",
    "stretches",
    "suggestion",
    "sweep",
    "swf",
    "traces",
    "trials",
    "turnaround_s",
    "usage",
    "verdict",
    "verify",
    "web_csv",
    "web_model",
    "whole",
    "worded",
    "words_of",
]
