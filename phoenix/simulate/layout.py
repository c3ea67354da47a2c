"""From a log's jobs, which have processors, to a cluster's jobs, which have hosts, cores and a time limit.

It decides a job's shape, its limit and its place in time.  It must never drop a job but for the window, and never make one
fit: a job that no host can hold keeps its size, and the simulated admission refuses it.

  1. Mode `whole-hosts`: ceil(processors / cores of a host) hosts, alone on each (Phoenix Cloud, §III-D).  Mode `cores`: as few
     hosts as possible, the same number of cores on each, beside others; where they do not divide, some cores stay unused.
  2. Memory, where the log knows it, counts for each processor: hosts get fewer processors if they have too little.  Unknown
     memory is the host's share for its cores, so that it never binds before cores do.
  3. Limit `requested`: what the user asked for, 3 × run time if that is unknown (as simulations of logs without estimates do);
     `exact`: the run time; `unlimited`: none.  Logs hold jobs that ran longer than they had asked for: their limit is the run
     time, unless `kill_overruns` asks for what a strict system would have done.
  4. Time: the window [from, to) of submissions is cut out, and `from` becomes time 0; gaps between submissions are divided by
     `load_factor`; then everything is multiplied by `time_factor`, and run times and limits by `run_factor` as well.  A load
     factor of 1.2 offers 20 % more load; run_factor 0.5 stands for hosts twice as fast.
  5. Jobs that checkpoint (`checkpointing`) ask for the time that this takes, on top of their limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from phoenix.simulate.checkpointing import Habit
from phoenix.simulate.text_input import InputError
from phoenix.simulate.workload import UNLIMITED_S, LogJob, Work
from schemas.config import OnReclaim

Mode = Literal["whole-hosts", "cores"]
Walltime = Literal["requested", "exact", "unlimited"]
UNKNOWN_FACTOR: Final = 3.0  # limit over run time where the log does not know what was asked for
MEMORY_MB: Final = 1 << 20  # of a host, as Scenario has it


def lay_out(
    jobs: Iterable[LogJob],
    *,
    cores_per_host: int,
    memory_per_host_mb: int = MEMORY_MB,
    mode: Mode = "whole-hosts",
    walltime: Walltime = "requested",
    kill_overruns: bool = False,
    use_memory: bool = True,
    window: tuple[float, float] | None = None,
    load_factor: float = 1.0,
    time_factor: float = 1.0,
    run_factor: float = 1.0,
    priority: int = 0,
    on_reclaim: OnReclaim | None = None,
    checkpoint_s: float = 0.0,
    checkpoint_cost_s: float = 0.0,
) -> list[Work]:
    """Jobs as they are submitted to a simulated department, in the log's order and with its numbers.

    `cores_per_host`, `memory_per_host_mb`: of the simulated hosts.  `use_memory`: False leaves the log's memory aside.  Raises
    InputError for values without meaning and for a window without a job; ValueError for jobs that are not in order.
    """
    _check(cores_per_host, memory_per_host_mb, load_factor, time_factor, run_factor)
    habit = Habit(checkpoint_s, checkpoint_cost_s) if checkpoint_s > 0 else None
    start_s, end_s = window or (0.0, math.inf)
    arrival_factor, length_factor = time_factor / load_factor, time_factor * run_factor
    works = []
    for job in _within(jobs, start_s, end_s):
        memory_mb = job.memory_mb if use_memory else None
        nodes, cores, node_memory_mb = shape(job.processors, memory_mb, cores_per_host, memory_per_host_mb)
        works.append(
            Work(
                number=job.number,
                submit_s=(job.submit_s - start_s) * arrival_factor,
                run_s=job.run_s * length_factor,
                nodes=nodes,
                cores=cores,
                memory_mb=node_memory_mb,
                exclusive=mode == "whole-hosts",
                walltime_s=_limit_s(job, walltime, kill_overruns, length_factor) + _saving_s(job, habit, length_factor),
                user=job.user or "user",
                priority=priority,
                on_reclaim=on_reclaim,
                checkpoint_s=checkpoint_s,
                checkpoint_cost_s=checkpoint_cost_s,
            )
        )
    if not works:
        raise InputError(
            "there is no job" if window is None else f"no job is submitted in [{start_s:g} s, {end_s:g} s)"
        )
    return works


def shape(processors: int, memory_mb: int | None, cores_per_host: int, memory_per_host_mb: int) -> tuple[int, int, int]:
    """(hosts, cores on each, MiB on each) for that many processors with that much memory each: rules 1 and 2."""
    per_host = cores_per_host
    if memory_mb is not None:
        per_host = max(1, min(per_host, memory_per_host_mb // memory_mb))
    nodes = -(-processors // per_host)
    cores = -(-processors // nodes)
    if memory_mb is not None:
        return nodes, cores, cores * memory_mb
    return nodes, cores, memory_share_mb(cores, cores_per_host, memory_per_host_mb)


def memory_share_mb(cores: int, cores_per_host: int, memory_per_host_mb: int) -> int:
    """The memory that comes with `cores` of a host if the log does not state how much is needed."""
    return max(1, memory_per_host_mb * cores // cores_per_host)


def offered_load(jobs: Sequence[LogJob], processors: int) -> float:
    """Work of all jobs over what the machine could do until the last submission; what `load_factor` multiplies.  Infinite if
    all are submitted at once."""
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    work_s = math.fsum(job.run_s * job.processors for job in jobs)
    return work_s / processors / span_s if span_s > 0 else math.inf


def _limit_s(job: LogJob, walltime: Walltime, kill_overruns: bool, factor: float) -> float:
    if walltime == "unlimited":
        return UNLIMITED_S
    if walltime == "exact":
        return job.run_s * factor
    asked_s = job.run_s * UNKNOWN_FACTOR if job.requested_s is None else job.requested_s
    return (asked_s if kill_overruns else max(asked_s, job.run_s)) * factor


def _saving_s(job: LogJob, habit: Habit | None, factor: float) -> float:
    """Rule 5."""
    return 0.0 if habit is None else habit.count(job.run_s * factor) * habit.cost_s


def _within(jobs: Iterable[LogJob], start_s: float, end_s: float) -> Iterator[LogJob]:
    """Those of the window; refuses what is not a log in order."""
    number, at = 0, -math.inf
    for job in jobs:
        if job.number <= number or job.submit_s < at:
            raise ValueError(f"job {job.number} is not in order: numbers and times of submission must rise")
        number, at = job.number, job.submit_s
        if start_s <= at < end_s:
            yield job


def _check(cores: int, memory_mb: int, load_factor: float, time_factor: float, run_factor: float) -> None:
    if cores < 1 or memory_mb < 1:
        raise InputError(f"a host has at least 1 core and 1 MiB, not {cores} and {memory_mb}")
    for name, factor in (("load", load_factor), ("time", time_factor), ("run time", run_factor)):
        if not 0 < factor < math.inf:
            raise InputError(f"the {name} factor must be above 0, not {factor:g}")
