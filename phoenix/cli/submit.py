"""`phoenix submit`: a script becomes a job.

Rules
  1. It prints the job's id and nothing else on stdout; everything that is for people goes to stderr.
  2. `#SBATCH` and `#PHOENIX` lines count as options in front of those of the command line (`phoenix.cli.sbatch`).
  3. What follows the script's name are the script's arguments; only --json, --wait, --data, --as and --department may stand
     right after it, before a `--`.
  4. Every submission carries a request id, so that asking again after a lost answer cannot submit twice (`retrying`).
  5. --wait ends with the job's exit code (1 if it has none), after writing the files of -o and -e.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
from pathlib import Path
from typing import Any, Final

from phoenix.cli import cloud, environment, printing, sbatch, waiting
from phoenix.cli.errors import CliError, usage
from phoenix.cli.http import query
from phoenix.cli.retrying import ask_again
from schemas.dimensions import DIMENSIONS
from schemas.words import claim_waits

_DASHES: Final = "\0--"  # no argument of a process can hold it
_TRAILING: Final = {"--json": 0, "--wait": 0, "-W": 0, "--data": 1, "--as": 1, "--department": 1}
HELP: Final = """examples:
  phoenix submit job.sh                                 a script with its #SBATCH lines
  phoenix submit -n 4 -t 10 job.sh input.dat            four tasks, ten minutes, one argument
  phoenix submit --gpus 2 -t 4:00:00 train.sh           two GPUs, four hours
  phoenix submit --wrap 'hostname; sleep 5'             a job of one line
  phoenix submit -a 1-100%10 -J sweep sweep.sh          a hundred elements, ten at once
  phoenix submit -d afterok:17 next.sh                  after job 17 has succeeded
  phoenix submit --wait -o out.txt job.sh; echo $?      wait, fetch the output, its exit code

exit code: 0 submitted; 5 no answer within 30 s: whether it is submitted is not known, and the request id to ask again with
           is printed; with --wait the job's own (1 if it was killed, cancelled or timed out without one)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    here = add_job(parser)
    here.add_argument("-W", "--wait", action="store_true", help="wait for the end; the exit code is the job's")
    here.add_argument("--request", metavar="ID", help="client request id: the same id submits only once")


def add_job(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The words that say what the job is (also `phoenix whatif`'s)."""
    sbatch.add_options(parser)
    here = parser.add_argument_group("this command")
    here.add_argument("--department", metavar="D", help="the department (default: yours, or the only batch one)")
    here.add_argument("--wrap", metavar="COMMAND", help="a command line instead of a script")
    parser.add_argument("script", nargs="?", help="the script; - reads it from stdin")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return here


def prepared(argv: list[str]) -> list[str]:
    """With each `--` in a disguise: argparse drops the first one wherever it stands, and here it may belong to the script."""
    return [_DASHES if word == "--" else word for word in argv]


def run(args: argparse.Namespace) -> int:
    trailing(args)
    script = script_of(args)
    found = sbatch.read(script)
    options = merged(args, found.options)
    for name in found.unsupported:
        print(f"phoenix: warning: not supported, so without effect: {name}", file=sys.stderr)
    where = cloud.find(args)
    department = where.department(args.department, "batch")
    client = where.member(department) if department else where.operator()
    request = request_of(args, options, script)
    try:
        answer = ask_again(client, query("/v1/jobs", department=department), request)
    except CliError as error:
        raise sbatch.in_options(error, options) from error
    job = str(answer["job"])
    tell_cost(answer)
    if args.json:
        printing.json(answer)
    else:
        print(job, flush=True)
    return waiting.wait(where.operator(), client, job, options.output, options.error) if args.wait else 0


def tell_cost(answer: dict[str, Any]) -> None:
    """Of a job with a grace of its own: what that costs others."""
    cost = claim_waits(answer.get("claim_waits_s"))
    if cost:
        print(f"phoenix: {cost}", file=sys.stderr)


def trailing(args: argparse.Namespace) -> None:
    """Rule 3."""
    if args.script == _DASHES:  # `submit -- job.sh`
        args.script = args.arguments.pop(0) if args.arguments else None
    words = args.arguments
    while words and words[0] in _TRAILING:
        takes = _TRAILING[words[0]]
        if len(words) <= takes:
            raise usage(f"{words[0]} needs a value")
        name = {"--as": "as_user", "-W": "wait"}.get(words[0], words[0].lstrip("-"))
        setattr(args, name, words[1] if takes else True)
        del words[: 1 + takes]
    if words[:1] == [_DASHES]:
        del words[0]
    args.arguments = ["--" if word == _DASHES else word for word in words]


def script_of(args: argparse.Namespace) -> str:
    if (args.wrap is None) == (args.script is None):
        raise usage("submit what?" if args.wrap is None else "a script or --wrap, not both", "phoenix submit JOB.sh")
    if args.wrap is not None:
        if not args.wrap.strip():
            raise usage("--wrap has no command", "phoenix submit --wrap 'COMMAND'")
        return f"#!/bin/sh\n{args.wrap}\n"
    return read_script(args.script, "name a script, or use --wrap 'COMMAND'")


def read_script(name: str, hint: str) -> str:
    """The text of a script; `-` is standard input.  CliError, with `hint` if there is no such file."""
    if not name:
        raise usage("the script's name is empty", hint)
    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except OSError as error:
        raise usage(f"{name}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise usage(f"{name} is no text: a job is a script", "use --input FILE to bring a program along") from error
    if "\r\n" in text.partition("\n")[0] + "\n":
        print(
            f"phoenix: warning: {name} has DOS line ends (CR LF): it is taken with those of Unix (LF)", file=sys.stderr
        )
        text = text.replace("\r\n", "\n")
    if not text.startswith("#!"):
        raise usage(f"{name}: its first line does not name an interpreter", "start it with #!/bin/sh or the like")
    return text


def merged(args: argparse.Namespace, directives: list[str]) -> argparse.Namespace:
    """The script's options, overridden by those of the command line."""
    merged = sbatch.directives_parser().parse_args(directives)
    if args.memory_mb is not None or args.mem_per_cpu is not None:  # either takes the place of either
        merged.memory_mb = merged.mem_per_cpu = None
    if any(getattr(args, way) is not None for way in sbatch.GPUS):
        merged.gpus = merged.gpus_per_node = merged.gpus_per_task = None
    for name in vars(merged):
        value = getattr(args, name)
        if value is not None:
            setattr(merged, name, value)
    if merged.memory_mb is not None and merged.mem_per_cpu is not None:
        raise usage("--mem is for each node and --mem-per-cpu for each core: not both")
    if sum(getattr(merged, way) is not None for way in sbatch.GPUS) > 1:
        raise usage(
            "--gpus are in all, --gpus-per-node (or --gres) on each node, --gpus-per-task for each task: only one"
        )
    return merged


def request_of(args: argparse.Namespace, options: argparse.Namespace, script: str) -> dict[str, Any]:
    tasks, cpus = options.ntasks or 1, options.cpus_per_task or 1
    nodes = options.nodes
    if options.ntasks_per_node:
        nodes = nodes or -(-tasks // options.ntasks_per_node)
        tasks = options.ntasks or nodes * options.ntasks_per_node
    elif nodes and not options.ntasks:
        tasks = nodes  # as Slurm: one task a node
    return {
        "request": getattr(args, "request", None) or os.urandom(12).hex(),
        "name": options.job_name or (Path(args.script).name if args.script and args.script != "-" else "wrap"),
        "script": script,
        "argv": list(args.arguments),
        "environment": environment.exported(options.export, os.environ),
        "tasks": tasks,
        "nodes": nodes,
        **{dimension.per_node: getattr(options, dimension.per_node) for dimension in DIMENSIONS},
        "cpus_per_task": cpus,
        "memory_per_core_mb": options.mem_per_cpu,
        "gpus": options.gpus,
        "gpus_per_task": options.gpus_per_task,
        "exclusive": bool(options.exclusive),
        "walltime_s": options.time or None,  # Slurm: 0 is no limit of one's own
        "priority": options.priority or 0,
        "retries": options.retries or 0,
        "on_reclaim": options.on_reclaim,
        "on_term": options.on_term,
        "grace_s": options.grace,
        "array": options.array,
        "after": options.dependency,
        "held": bool(options.hold),
        "service": options.service or "",
        "best_effort": bool(options.best_effort),
        "short": bool(options.short),
        "quality": options.quality or "",
        "constraint": options.constraint or "",
        "directory": options.chdir,
        "stdout": options.output,
        "stderr": options.error,
        "stdin": None,
        "inputs": [_input(spec) for spec in options.input or []],
        "keep": options.keep or [],
        "signal": options.signal,
    }


def _input(spec: str) -> dict[str, str]:
    name, separator, path = spec.partition("=")
    file = Path(path if separator else spec)
    try:
        if not file.is_dir() and file.exists() and not file.is_file():  # a device or a pipe may never end
            raise usage(f"--input {spec}: {file} is no regular file", "write what it gives into a file, and name that")
        data = file.read_bytes()
    except OSError as error:
        raise usage(f"--input {spec}: {error.strerror}") from error
    return {"name": name if separator else file.name, "data": base64.b64encode(data).decode()}
