"""The boot document: what a guest has to do.  Pure: from custody, configuration and the job's payload.

Rules
  1. Size is that of the attempt (`unit.placed`), not of the request.
  2. A job without a script runs its arguments as a command, by a script of one line that hands over to it; an instance the
     command of its release likewise.  A release without a command is the guest's default web program (script null).  Its
     number and image are PHOENIX_RELEASE and PHOENIX_IMAGE in its environment, whatever that says itself.
  3. `grace_s` (SIGTERM to SIGKILL) is the job's own; else the policy's, or the longest that a contract grants the department.
     An instance drains before it gets the order to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.config import CloudConfig, WebPolicy
from schemas.ids import ELEMENT, instance_parts, is_instance
from schemas.releases import Release
from schemas.requests import StoredSignal
from schemas.times import TimeText
from services.admission.core.admission import Job
from services.admission.storage.payloads import Payload
from services.domain.custody.state import Unit
from services.domain.sharing import lending

COMMAND_SCRIPT: Final = '#!/bin/sh\nexec "$@"\n'


class BootInput(msgspec.Struct, frozen=True, kw_only=True):
    """A file to fetch before the script starts.  `name`: relative path in the job's directory; `size`: size in bytes."""

    name: str
    size: int


class BootCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The unit's last checkpoint.  `attempt`: the attempt that made it; `at`: when it was made; `percent`: part
    of the job that was done, in percent; `files`: files to fetch before the script starts."""

    attempt: int
    at: TimeText
    percent: float | None = None
    files: tuple[BootInput, ...] = ()


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """What a VM has to run (docs/reference/guests.md).  `kind`: `job` or `instance`; `rank`: rank of this VM in the attempt,
    from 0; `ranks`: number of VMs of the attempt; `name`: name of the job, or of the instance; `cores`: cores of this VM;
    `memory_mb`: memory of this VM, in MiB; `gpus`: GPUs of this VM; `nodes`: names of the attempt's hosts, by rank; `script`:
    the script, as text; null: `argv` is the command, or an instance runs the guest's own web program.

    `secrets`: of an instance, environment variables whose values must appear nowhere else; `directory`: working directory, as
    requested; `stdout`: name for the file of its standard output, as requested; `stderr`: name for the file of its standard
    error, as requested; `stdin`: file for standard input, as requested; `inputs`: files to fetch before the script starts;
    `keep`: patterns of files to store at the end; `grace_s`: time from SIGTERM to SIGKILL, in seconds; `walltime_s`: time
    limit in seconds, for the script's information; `health_path`: of an instance, path of its health check.

    `array_job`: of an array element, the array's job; `array_index`: of an array element, its index; `tasks`: number of
    tasks, as requested; `checkpoint`: the unit's last checkpoint; null: none; `signal`: a signal before the time limit, and
    instead of SIGTERM; null: none; `port`: of an instance, the port that its program listens on; null: the guest chooses;
    `usage_interval_s`: of a job, how often to send `used`, in seconds; 0: only at the end."""

    kind: str
    unit: str
    attempt: int
    rank: int
    ranks: int
    department: str
    user: str
    name: str
    cores: int
    memory_mb: int
    gpus: int = 0
    nodes: tuple[str, ...]
    script: str | None
    argv: tuple[str, ...]
    environment: dict[str, str]
    secrets: dict[str, str] = {}
    directory: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdin: str | None = None
    inputs: tuple[BootInput, ...] = ()
    keep: tuple[str, ...] = ()
    grace_s: float
    walltime_s: float | None = None
    health_path: str | None = None
    array_job: str | None = None
    array_index: int | None = None
    tasks: int = 1
    cpus_per_task: int = 1
    checkpoint: BootCheckpoint | None = None
    signal: StoredSignal | None = None
    port: int | None = None
    usage_interval_s: float | None = None


def boot_of(
    config: CloudConfig,
    unit: Unit,
    rank: int,
    job: Job | None,
    payload: Payload | None,
    checkpoint: BootCheckpoint | None = None,
    release: Release | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Boot | None:
    """`release`: what an instance runs; `secrets`: variable -> value of those
    that it names.  None if there is nothing to run: department, release or job is not known any more."""
    if is_instance(unit.id):
        department = config.department(instance_parts(unit.id)[0])
        if department is None or release is None:
            return None
        grace_s = lending.grace_s(config, unit.dept)
        return _of_instance(unit, rank, department.web or WebPolicy(), grace_s, release, secrets or {})
    return None if job is None or payload is None else _of_job(config, unit, rank, job, payload, checkpoint)


def _of_job(
    config: CloudConfig, unit: Unit, rank: int, job: Job, payload: Payload, checkpoint: BootCheckpoint | None
) -> Boot:
    element = ELEMENT.match(unit.id)
    return Boot(
        kind="job",
        unit=unit.id,
        attempt=unit.attempt,
        rank=rank,
        ranks=len(unit.hosts),
        department=job.dept,
        user=job.user,
        name=job.name,
        **unit.size.fields(),
        nodes=unit.hosts,
        script=payload.script or COMMAND_SCRIPT,
        argv=payload.argv,
        environment=payload.environment,
        directory=payload.directory,
        stdout=payload.stdout,
        stderr=payload.stderr,
        stdin=payload.stdin,
        inputs=tuple(BootInput(name=x.name, size=x.size) for x in payload.inputs),
        keep=payload.keep,
        grace_s=lending.grace_s(config, job.dept) if unit.grace_s is None else unit.grace_s,
        walltime_s=job.walltime_s,
        array_job=element[1] if element else None,
        array_index=int(element[2]) if element else None,
        tasks=job.tasks,
        cpus_per_task=job.cpus_per_task,
        checkpoint=checkpoint,
        signal=payload.signal,
        usage_interval_s=config.limits.usage_interval_s,
    )


def _of_instance(
    unit: Unit, rank: int, web: WebPolicy, grace_s: float, release: Release, secrets: Mapping[str, str]
) -> Boot:
    fields = {"PHOENIX_RELEASE": str(unit.release), "PHOENIX_IMAGE": release.image}
    return Boot(
        kind="instance",
        unit=unit.id,
        attempt=unit.attempt,
        rank=rank,
        ranks=len(unit.hosts),
        department=unit.dept,
        user=unit.dept,
        name=unit.id,
        **unit.size.fields(),
        nodes=unit.hosts,
        script=COMMAND_SCRIPT if release.command else None,
        argv=release.command,
        environment={**release.environment, **fields},
        secrets=dict(secrets),
        port=web.port or None,
        grace_s=grace_s,
        health_path=release.health_path,
    )
