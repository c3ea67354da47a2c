"""The environment of what a guest starts: scripts, launched tasks, web instances.

Rules: the job's own variables come first, ours are laid over them (a job cannot lie to itself about its size); names
that Slurm has are given under both names, so that existing scripts run; the token is never in the environment, only
the path of the file that holds it, because environments end up in logs.
"""

from __future__ import annotations

from phoenix.local.guest.door import Boot, Command
from phoenix.local.guest.machine import Machine
from schemas.dimensions import variables
from schemas.size import size_of
from schemas.slurm_names import of_job, with_slurm_names


def common(boot: Boot, machine: Machine, url: str, phoenix_id: str) -> dict[str, str]:
    """What every process of a VM sees."""
    room = machine.room
    path = boot.environment.get("PATH")
    return {
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        "USER": boot.user,
        "LOGNAME": boot.user,
        **boot.environment,
        **boot.secrets,
        "PATH": machine.programs.path if path is None else f"{machine.programs.path.split(':', 1)[0]}:{path}",
        "HOME": room.work,
        "TMPDIR": room.tmp,
        "PHOENIX_ROOM": room.path,
        "PHOENIX_URL": url,
        "PHOENIX_ID": phoenix_id,
        "PHOENIX_TOKEN_FILE": room.file("token"),
        "PHOENIX_DEPARTMENT": boot.department,
        "PHOENIX_USER": boot.user,
        "PHOENIX_ATTEMPT": str(boot.attempt),
        "PHOENIX_CORE_SHARE": f"{machine.core_share:g}",
        **variables(size_of(boot)),
        **machine.environment,
    }


def for_job(boot: Boot, machine: Machine, url: str, phoenix_id: str) -> dict[str, str]:
    """The environment of a job's script (and, on every rank, the ground of its launched tasks)."""
    return with_slurm_names({**common(boot, machine, url, phoenix_id), **of_job(boot)})


def for_task(job: dict[str, str], command: Command, task: int, local: int) -> dict[str, str]:
    """The environment of one launched task: the caller's, over this rank's, under the task's own names."""
    # Where the caller and this rank differ in what is the rank's own, the rank is right.
    own: dict[str, str] = {name: job[name] for name in ("HOME", "TMPDIR", "PATH") if name in job}
    own |= {name: value for name, value in job.items() if name.startswith(("PHOENIX_", "SLURM_", "CUDA_VISIBLE_"))}
    own |= {name: command.environment[name] for name in ("PHOENIX_NTASKS", "PATH") if name in command.environment}
    task_names = {"PHOENIX_TASK_ID": str(task), "PHOENIX_LOCAL_ID": str(local), "SLURM_LOCALID": str(local)}
    return with_slurm_names({**job, **command.environment, **own, **task_names})


def for_instance(boot: Boot, machine: Machine, url: str, phoenix_id: str, port: int) -> dict[str, str]:
    """The environment of a web instance."""
    return {
        **common(boot, machine, url, phoenix_id),
        "PHOENIX_PORT": str(port),
        "PORT": str(port),
        "PHOENIX_INSTANCE": boot.unit,
        "PHOENIX_CORES": str(boot.cores),
        "PHOENIX_SELF_LIMIT": "0" if machine.limited else "1",
    }
