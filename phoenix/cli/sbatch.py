"""sbatch's habits: the options of `phoenix submit`, and the `#SBATCH` and `#PHOENIX` lines of a script.

Rules
  1. Directives stand before the script's first command; blank lines and comments may stand between them (as with sbatch).
  2. The same options are understood on the command line and in the script; the command line wins, later lines win over earlier.
  3. An option of Slurm that Phoenix does not have is named in a warning, never ignored in silence.
"""

from __future__ import annotations

import argparse
import re
import shlex
from functools import cache
from typing import Final, NamedTuple

from phoenix.cli.errors import CliError, in_words, usage
from phoenix.cli.parser import Parser, count, whole, worded
from phoenix.cli.units import parse_memory_mb, parse_signal, parse_time_s
from schemas.dimensions import DIMENSIONS
from services.domain import specs

PREFIXES: Final = ("#SBATCH", "#PHOENIX")
ON_RECLAIM: Final = ("kill", "requeue", "suspend", "migrate")
ON_TERM: Final = ("stop", "complete")
GPUS: Final = ("gpus", "gpus_per_node", "gpus_per_task")  # ways to ask for them, of which a job takes one
_COUNT_OR_RANGE: Final = re.compile(r"([1-9]\d*)(?:-([1-9]\d*))?\Z")

memory, time, signal = worded(parse_memory_mb), worded(parse_time_s), worded(parse_signal)


class Directives(NamedTuple):
    """What the script asks for, and the options that are not supported, as written, with their line."""

    options: list[str]
    unsupported: list[str]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that the command line and directives share.  Every default is None: `not said`.  The value of the option for
    a dimension of size has the name of the request's field (`Dimension.per_node`)."""
    size = parser.add_argument_group("size")
    size.add_argument("-n", "--ntasks", type=count, metavar="N", help="tasks in all (default 1)")
    size.add_argument("-N", "--nodes", type=_nodes, metavar="N", help="nodes (default: as few as hold the tasks)")
    size.add_argument("--ntasks-per-node", type=count, metavar="N", help="tasks on each node")
    size.add_argument("-c", "--cpus-per-task", type=count, metavar="N", help="cores of a task (default 1)")
    size.add_argument(
        "--mem", dest="memory_mb", type=memory, metavar="MEM", help="memory on each node: MiB, or 512M, 4G; 0: all"
    )
    size.add_argument("--mem-per-cpu", type=_memory_of_a_core, metavar="MEM", help="memory for each core instead")
    size.add_argument("-G", "--gpus", type=_gpus, metavar="N", help="GPUs in all, as many on each node")
    size.add_argument("--gpus-per-node", type=_gpus, metavar="N", help="GPUs on each node instead")
    size.add_argument("--gpus-per-task", type=_gpus, metavar="N", help="GPUs for each task of a node instead")
    size.add_argument("--gres", dest="gpus_per_node", type=_gres, metavar="gpu:N", help="the same, as Slurm writes it")
    size.add_argument(
        "-t", "--time", type=time, metavar="TIME", help="time limit: minutes, M:SS, H:MM:SS, D-HH:MM, 90s, 2h"
    )
    size.add_argument("--exclusive", action="store_true", default=None, help="exclusive use of whole hosts")
    size.add_argument("-C", "--constraint", metavar="LIST", help="hosts with these labels: gpu=yes&cluster=batch, a|b")
    _add_order(parser.add_argument_group("order"))
    share = parser.add_argument_group("one of the services that share a department")
    share.add_argument("--service", metavar="S", help="whose job it is: one of the department's services")
    share.add_argument(
        "--short", action="store_true", default=None, help="it is short, whatever --time says: it may borrow"
    )
    _add_files(parser.add_argument_group("name and files"))


def _add_order(order: argparse._ArgumentGroup) -> None:
    order.add_argument(
        "-a", "--array", type=_array, metavar="LIST", help="an array of jobs: 1-100, 0-30:2, 1,3,5-7; %%10: ten at once"
    )
    order.add_argument(
        "-d",
        "--dependency",
        type=_after,
        metavar="LIST",
        help="afterok:ID[:ID…], afternotok, afterany, after; comma separated",
    )
    order.add_argument(
        "--priority", type=whole, metavar="P", help="higher first (default 0); managers raise it, users lower it"
    )
    order.add_argument(
        "-q", "--qos", dest="quality", metavar="NAME", help="quality of service, of those of the department"
    )
    order.add_argument("-H", "--hold", action="store_true", default=None, help="hold the job until `phoenix release`")
    order.add_argument("--retries", type=whole, metavar="N", help="how often to retry after a failure (default 0)")
    order.add_argument(
        "--on-reclaim",
        choices=ON_RECLAIM,
        metavar="|".join(ON_RECLAIM),
        help="when its host is needed: end, start again, resume later, resume elsewhere (default: the department's)",
    )
    order.add_argument(
        "--requeue", dest="on_reclaim", action="store_const", const="requeue", help="on reclaim: start again later"
    )
    order.add_argument(
        "--no-requeue", dest="on_reclaim", action="store_const", const="kill", help="on reclaim: end for good"
    )
    order.add_argument(
        "--on-term",
        choices=ON_TERM,
        metavar="|".join(ON_TERM),
        help="how exit code 0 after SIGTERM counts: stopped, or completed early (default: the department's)",
    )
    order.add_argument(
        "--grace",
        type=time,
        metavar="TIME",
        help="grace period when its host is needed, SIGTERM to SIGKILL: 30s (at most the department's grace_max_s)",
    )
    order.add_argument(
        "--signal",
        type=signal,
        metavar="[B:]SIG[@S]",
        help="send SIG S seconds (60) before the time limit, and instead of SIGTERM; B: to the script itself",
    )
    order.add_argument(
        "--best-effort",
        action="store_true",
        default=None,
        help="best-effort: runs on idle capacity and can be preempted",
    )


def _add_files(files: argparse._ArgumentGroup) -> None:
    files.add_argument("-J", "--job-name", metavar="NAME", help="default: the script's name, or wrap")
    files.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where stdout goes when it is fetched; %%j job, %%a index, %%A array, %%x name, %%u user, %%N host, - stdout",
    )
    files.add_argument("-e", "--error", metavar="FILE", help="where stderr is saved (same patterns)")
    files.add_argument(
        "-D",
        "--chdir",
        metavar="DIR",
        help="directory that the script runs in (default, and where it cannot be entered: its own)",
    )
    files.add_argument(
        "--input", action="append", metavar="FILE", help="copy this file into the job's directory; NAME=FILE renames"
    )
    files.add_argument(
        "--keep", action="append", metavar="GLOB", help="keep files that match, for `phoenix output --files`"
    )
    files.add_argument(
        "--export", metavar="LIST", help="ALL (default), NONE, or NAME,NAME=VALUE,… (ALL,NAME=VALUE adds)"
    )


FIELDS: Final = {  # of a request, where its option is not named like it
    "walltime_s": "--time",
    "memory_per_core_mb": "--mem-per-cpu",
    "tasks": "--ntasks",
    "grace_s": "--grace",
    "after": "--dependency",
    "held": "--hold",
    "quality": "--qos",
    "name": "--job-name",
    "directory": "--chdir",
    "stdout": "--output",
    "stderr": "--error",
    "inputs": "--input",
    "environment": "--export",
    "request": "--request",
}


def in_options(refused: CliError, given: argparse.Namespace) -> CliError:
    """What was refused of a job, by the option that said it; `given`: the job's options."""
    parser = directives_parser()
    names = {option[2:].replace("-", "_"): option for option in parser.option_strings() if option.startswith("--")}
    sizes = {dimension.per_node: parser.option_of(dimension.per_node) for dimension in DIMENSIONS}
    return in_words(refused, names | sizes | FIELDS, {"inputs": given.input or [], "keep": given.keep or []})


@cache
def directives_parser() -> Parser:
    """Of the shared options alone."""
    parser = Parser(prog="directive", add_help=False, allow_abbrev=False)
    add_options(parser)
    return parser


def read(script: str) -> Directives:
    """The directives of a script.  CliError names the line of one that is wrong."""
    parser = directives_parser()
    options: list[str] = []
    unsupported: list[str] = []
    for number, words in _lines(script):
        try:
            _, unknown = parser.parse_known_args(words)
        except CliError as error:
            raise usage(f"line {number} of the script: {error.message}", f"it says: {' '.join(words)}") from error
        unsupported += [f"{option} (line {number})" for option in _names(unknown)]
        options += _known(words, unknown)
    return Directives(options, unsupported)


def _lines(script: str) -> list[tuple[int, list[str]]]:
    found = []
    for number, line in enumerate(script.splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break  # the first command: directives below it are comments
        prefix = next((p for p in PREFIXES if text.startswith(p) and text[len(p) : len(p) + 1] in (" ", "\t")), None)
        if prefix is not None:
            found.append((number, _split(text[len(prefix) :], number)))
    return found


def _split(text: str, number: int) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise usage(f"line {number} of the script: {error}", f"it says: {text.strip()}") from error


def _names(unknown: list[str]) -> list[str]:
    """`--mail-user me@x` and `--qos=low` as they were written, the value with its option."""
    joined: list[str] = []
    for word in unknown:
        if word.startswith("-") or not joined:
            joined.append(word)
        else:
            joined[-1] += f" {word}"
    return joined


def _known(words: list[str], unknown: list[str]) -> list[str]:
    left = list(unknown)
    kept = []
    for word in words:
        if word in left:
            left.remove(word)
        else:
            kept.append(word)
    return kept


@worded
def _array(text: str) -> str:
    specs.check_array(text)
    return text


@worded
def _after(text: str) -> str:
    try:
        specs.dependencies(text)
    except specs.TooMany as error:
        raise ValueError(str(error)) from error
    return text


def _memory_of_a_core(text: str) -> int:
    found = memory(text)
    if found == 0:
        raise argparse.ArgumentTypeError("0 MiB for each core are none: --mem 0 asks for all memory of a host")
    return found


def _gpus(text: str) -> int:
    """A number; of Slurm's `TYPE:N` it is said what stands for the type here."""
    kind, colon, number = text.rpartition(":")
    if colon:
        instead = f"ask for {number or 'N'}, and for hosts with a label: -C gpu={kind or 'TYPE'}"
        raise argparse.ArgumentTypeError(f"{text!r}: GPUs have no types here: {instead}")
    return whole(number)


def _gres(text: str) -> int:
    """`gpu:2`, or `gpu` for one (sbatch(1)).  Nothing else is a generic resource here."""
    name, colon, rest = text.partition(":")
    if name != "gpu" or "," in text:
        raise argparse.ArgumentTypeError(f"{text!r}: the only resource is gpu, as in gpu:2")
    return _gpus(rest) if colon else 1


def _nodes(text: str) -> int:
    """`4`, or sbatch's `2-4`, of which the smaller number is taken: it is what the job can surely use."""
    match = _COUNT_OR_RANGE.match(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes")
    return count(match.group(1))
