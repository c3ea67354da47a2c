"""What a job, a lease and a release may ask for, as keyword arguments: the fields of `schemas.requests`, with its names, units
and defaults (a test compares them).  The cloud checks the values; what it refuses is `Invalid` with the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class Signal(TypedDict, total=False):
    """A signal to the job `before_s` seconds (60) before its time limit; `script`: to its script alone."""

    number: int
    before_s: float
    script: bool


class _Program(TypedDict, total=False):
    """What runs.  `script`, `argv` or both (then `argv` are the script's arguments); `inputs`: files that are there before it
    starts, by relative name; `keep`: files that the cloud keeps after its end."""

    name: str
    script: str | None
    argv: Sequence[str]
    environment: Mapping[str, str]
    exclusive: bool
    directory: str | None
    stdout: str | None
    stderr: str | None
    inputs: Mapping[str, bytes]
    keep: Sequence[str]


class JobOptions(_Program, total=False):
    """A job or an array.  Cores on each node are ceil(`tasks` / `nodes`) · `cpus_per_task`; `memory_mb` is for each node, 0 all
    of it; `gpus` are in all, `gpus_per_node` on each, `gpus_per_task` for each task of a node: one of the three.  `array`:
    `1-20`, `1-100%5`.  `held`: it does not start before `release`."""

    tasks: int
    nodes: int | None
    cpus_per_task: int
    memory_mb: int | None
    memory_per_core_mb: int | None
    gpus: int | None
    gpus_per_node: int | None
    gpus_per_task: int | None
    walltime_s: float | None
    priority: int
    retries: int
    on_reclaim: Literal["requeue", "kill", "suspend", "migrate"] | None
    on_term: Literal["stop", "complete"] | None
    grace_s: float | None
    array: str | None
    held: bool
    service: str
    best_effort: bool
    short: bool
    quality: str
    constraint: str
    stdin: str | None
    signal: Signal | None


class LeaseOptions(_Program, total=False):
    """On each of `nodes` hosts `cores`, `memory_mb` and `gpus`.  Without a program the hosts are held until the lease ends."""

    nodes: int
    cores: int
    memory_mb: int | None
    gpus: int


class ReleaseOptions(TypedDict, total=False):
    """What is absent is as in the release that is wanted now; with `configured` as the configuration says, with `undo` as in
    the last complete release before it.  None takes a variable away.  The last three: bounds of the rollout, instead of the
    department's."""

    image: str | None
    command: Sequence[str] | None
    environment: Mapping[str, str | None]
    secrets: Mapping[str, str | None]
    health_path: str | None
    configured: bool
    undo: bool
    max_unavailable: int | None
    max_surge: int | None
    min_ready_s: float | None
