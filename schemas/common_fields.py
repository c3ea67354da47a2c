"""Names of fields that mean the same in every struct, for the generated documents (`schemas.descriptions`).

Rules
  1. An entry holds for every struct that has the field.  A struct in which it means something else says so in its docstring,
     which counts before the table.
  2. An entry has its unit where there is one.  A test refuses entries that no document needs.
"""

from __future__ import annotations

from typing import Final

COMMON: Final[dict[str, str]] = {
    # What messages are about
    "unit": "a job (`17`), an element of an array (`17_3`) or an instance (`web.5`)",
    "job": "number of the job, as text; of an array's element `<job>_<index>`",
    "attempt": "number of the attempt to run the unit, from 1",
    "rank": "number of the VM in its attempt, from 0",
    "host": "name of the host",
    "hosts": "names of the hosts",
    "dept": "name of the department",
    "department": "name of the department",
    "user": "name of the user who asked for it, or to whom it belongs",
    "service": "the department's service that the job belongs to; empty: none",
    "quality": "the job's quality of service; empty: none",
    "release": "number of the release in its department; 0: as configured",
    "task": "number of the task in its launch, from 0",
    "config": "the whole configuration",
    # Messages themselves
    "v": "version of this form",
    "ok": "whether the request was granted",
    "request": "id that the client chooses: a request that is repeated with the same id is granted once",
    "reason": "why this was decided; null: not recorded",
    "epoch": "number of the service's leader; each new leader has a higher one",
    "source": "name of the publisher; each has its own",
    "at": "end of the measurement; null: when the signal arrives",
    # Sizes and limits of jobs
    "nodes": "number of hosts",
    "tasks": "number of tasks in all",
    "cpus_per_task": "cores for each task",
    "argv": "command with its arguments, or the script's arguments",
    "environment": "environment variables by name",
    "exclusive": "whether its hosts run nothing else",
    "constraint": "labels that its hosts must have; empty: any host",
    "walltime_s": "time limit, in seconds",
    "grace_s": "time from SIGTERM to SIGKILL, in seconds",
    "priority": "the job's own priority; higher goes first",
    # Hosts of departments
    "held": "hosts that the department holds",
    "quota": "hosts that the department may keep",
    "demand": "hosts that the department wants",
    # Instances of web departments
    "instances": "number of instances of the department",
    "target": "number of instances that the department is to have",
    "minimum": "instances that the department has at least",
    "maximum": "instances that the department may have at most",
    "by": "name of the user who claims this number of instances; empty: no claim",
    "utilisation": "mean utilisation of the instances, 1: all their cores were busy",
    "requests_per_instance": "requests per second that one instance is to serve",
    "unreachable_s": "an instance whose health check fails for this long is replaced, in seconds",
    "boot_timeout_s": "time that it had to start, in seconds",
    "min_ready_s": "time that an instance serves before it counts, in seconds",
    "answer": "last answer of the health check, as text",
    "answered": "requests that its instances answered",
    "errors": "requests that its instances answered with 5xx or not at all",
    "over_s": "time over which requests were counted, in seconds",
    # How programs and attempts end
    "signal": "number of the signal that ended the program; null: none",
    "oom": "whether it was killed because the memory was full",
    "said": "the last lines that it wrote",
    "cpu_seconds": "CPU time used, in seconds; null: unknown",
    "max_rss_mb": "most memory used at a time, in MiB; null: unknown",
    "vm": "how its VM ended, in OpenNebula's words",
    "refused": "name of the failure with which OpenNebula refused a VM; empty: it did not",
    "refused_why": "the refusal in OpenNebula's words",
    # Checkpoints
    "checkpoint_ago_s": "age of its last checkpoint, in seconds; null: none",
    "checkpoint_attempt": "the attempt that made its last checkpoint",
    "safe_s": "run time that its last checkpoint saves, in seconds",
    "percent": "part of the job that was done at its last checkpoint, in percent",
    # Time slots and shares
    "starts_at": "start of the time slot",
    "ends_at": "end of the time slot",
    "late_s": "how late it is, in seconds",
    "in_s": "seconds until then",
    "used_pct": "part of the department's hosts that the service uses with it, in percent",
    "share_pct": "part of the department's hosts that the service may use, in percent",
    "claimable": "hosts of the department that web departments may claim before",
}
