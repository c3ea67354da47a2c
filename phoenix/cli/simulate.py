"""`phoenix simulate EXPERIMENT.toml` and `phoenix simulate NAME`: what a cloud would have done, on a virtual clock.

A word that is no option says which: an experiment that is installed (`phoenix.simulate.experiments`), which has options of its
own, or a file.  Everything is imported when it is needed: `--help` must not wait for the simulator.

Exit codes: 0 done; 1 a run failed, `--verify` found a difference, or no cluster keeps the goal; 2 the file or an option is
wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from phoenix.cli import files, suggest
from phoenix.cli.errors import FAILED, INTERRUPTED, OK, CliError, usage
from phoenix.cli.parser import Parser, count, make
from phoenix.cli.units import count as count_of
from phoenix.simulate import experiments

if TYPE_CHECKING:  # the simulator is imported when something is simulated
    from phoenix.simulate.experiment import Experiment
    from phoenix.simulate.scenarios import Case, Inputs

_HELP: Final = """experiments that are installed (see phoenix simulate NAME --help):
{experiments}

examples:
  phoenix simulate site.toml                          every run of the file, as a table
  phoenix simulate site.toml --json > site.json       with every metric
  phoenix simulate site.toml --plots figures          SVG and PNG
  phoenix simulate site.toml --explain 17             why job 17 waited, and what became of it
  phoenix simulate site.toml --smallest               the smallest cluster that keeps the file's [goal]

docs/reference/experiment-file.md describes the file; deploy/experiments/site.toml is one to start from."""


def help_text() -> str:
    found = [f"  {name:<20} {one.about}" for name, one in experiments.experiments().items()]
    return _HELP.format(experiments="\n".join(found))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", metavar="EXPERIMENT.toml|NAME", help="a file, or an experiment that is installed")
    parser.add_argument(
        "--jobs-csv", type=files.text_out, metavar="FILE", help="every job of every run; - is standard output"
    )
    parser.add_argument("--plots", type=files.named, metavar="DIR", help="plots, as SVG and PNG")
    parser.add_argument("--explain", type=count, metavar="JOB", help="one job's story")
    parser.add_argument("--run", metavar="LABEL", help="only this run (as in the table's first column)")
    parser.add_argument("--detail", action="store_true", help="everything about each run")
    parser.add_argument("--smallest", action="store_true", help="the smallest cluster that keeps the [goal]")
    parser.add_argument("--verify", action="store_true", help="replay each run's facts apart: the same bytes?")
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def main(argv: list[str]) -> int:
    """Parse and run; the front door calls it with everything behind the command's name."""
    name = chosen(argv)
    if name not in experiments.experiments():
        return caught(run, parser_of(argv).parse_args(argv))
    module, rest = experiments.module(name), list(argv)
    rest.remove(name)
    args = parser_of(argv).parse_args(rest)
    about = "the space has problems" if getattr(args, "sweep", None) is not None else "the experiment has problems"
    return caught(module.run, args, about)


def parser_of(words: Sequence[str]) -> Parser:
    """The parser for these words: that of the experiment that they name, or that of files."""
    name = chosen(words)
    if name not in experiments.experiments():
        parser = make("simulate", help_text())
        add_arguments(parser)
        return parser
    module, about = experiments.module(name), experiments.experiments()[name].about
    parser = make("simulate", module.HELP)
    parser.prog = f"phoenix simulate {name}"
    parser.description = about[0].upper() + about[1:] + "."
    module.add_arguments(parser)
    return parser


def chosen(words: Sequence[str]) -> str:
    """Which experiment: the name of one that is installed, else the first word that is neither an option nor an option's
    value; empty if there is none."""
    takes = {"--data", "--as", "--jobs-csv", "--plots", "--explain", "--run", "--workers"}
    free = [word for before, word in pairwise(["", *words]) if not word.startswith("-") and before not in takes]
    return next((word for word in free if word in experiments.experiments()), free[0] if free else "")


def caught(act: Any, args: argparse.Namespace, about: str = "the experiment has problems") -> int:
    """What may go wrong in any experiment, as a sentence."""
    from concurrent.futures.process import BrokenProcessPool

    from phoenix.simulate.engine import Restless
    from phoenix.simulate.sweep import Interrupted
    from phoenix.simulate.text_input import InputError
    from services.domain.exits import Stop
    from services.runtime.config.file import ConfigError

    try:
        _check_places(args)
        return int(act(args))
    except ConfigError as error:
        raise CliError(2, f"{about}:\n{error}") from error
    except InputError as error:
        raise usage(str(error)) from error
    except Restless as error:
        raise CliError(
            FAILED, "; ".join([str(error), *getattr(error, "__notes__", [])]), "that is a bug in a policy"
        ) from error
    except Stop as error:
        raise CliError(FAILED, "; ".join([error.why, *getattr(error, "__notes__", [])])) from error
    except BrokenProcessPool as error:
        hint = "most likely there was too little memory: try --workers 1"
        raise CliError(FAILED, "a process that simulated was killed", hint) from error
    except Interrupted as error:
        _print_finished(args, error.finished)
        raise CliError(INTERRUPTED, str(error)) from error


def _print_finished(args: argparse.Namespace, finished: Sequence[object]) -> None:
    """The runs that Ctrl-C has left, for a person: a program that asked for JSON must not take a part for the whole."""
    from phoenix.simulate.report import Run
    from phoenix.simulate.tables import runs_table

    runs = [run for result in finished if isinstance(run := getattr(result, "run", None), Run)]
    if runs and not args.json and not getattr(args, "smallest", False):
        print(runs_table(runs))


def _check_places(args: argparse.Namespace) -> None:
    """Before anything is simulated."""
    from phoenix.simulate import places

    if getattr(args, "jobs_csv", None) is not None:
        files.check_alone("--jobs-csv", args.jobs_csv, as_json=args.json)
        places.check_file("--jobs-csv", args.jobs_csv)
    if getattr(args, "plots", None) is not None:
        places.check_directory("--plots", args.plots)


# ----------------------------------------------------------------------------------------------------------------- files


def run(args: argparse.Namespace) -> int:
    _check(args)
    experiment = _load(args.experiment)
    if args.smallest:
        return _smallest(args, experiment)
    from phoenix.simulate import scenarios

    cases = scenarios.cases(experiment)
    if not cases:
        raise usage(
            f"{args.experiment}: [cluster] names no number of hosts", "add hosts or sizes, or ask for --smallest"
        )
    cases = _wanted(cases, args.run, one=args.explain is not None)
    inputs = scenarios.Inputs(experiment)
    if args.explain is not None:
        return _explain(args, inputs, cases[0])
    return _sweep(args, experiment, inputs, cases)


def _check(args: argparse.Namespace) -> None:
    """An option that would do nothing is an error."""
    alone = "--smallest" if args.smallest else "--explain" if args.explain is not None else ""
    others = ["--jobs-csv", "--plots", "--detail", "--verify", *(["--run", "--explain"] if args.smallest else [])]
    given = [name for name in others if getattr(args, name[2:].replace("-", "_"))]
    if alone and given:
        raise usage(f"{given[0]} does nothing beside {alone}", f"leave it out, or run it without {alone} as well")


def _load(word: str) -> Experiment:
    path = Path(word)
    if path.is_dir():
        raise usage(f"{word} is a directory", f"name a file in it{_toml_hint(path)}")
    if not path.is_file():
        meant = f"did you mean {word}.toml?" if Path(f"{word}.toml").is_file() else ""
        if path.suffix or "/" in word:
            raise usage(f"{word}: there is no such file", meant)
        if why := experiments.problem(word):
            raise usage(f"experiment {word!r} {why}")
        hint = suggest.hint(word, experiments.experiments())
        raise usage(f"there is no experiment {word!r}", meant or f"{hint}; or name a file: site.toml")
    from phoenix.simulate.experiment import load

    return load(path)


def _toml_hint(directory: Path) -> str:
    """The first experiments in there."""
    found = sorted(each.name for each in directory.glob("*.toml"))[:3]
    return f": {', '.join(str(directory / name) for name in found)}" if found else ""


def _wanted(cases: list[Case], label: str | None, *, one: bool) -> list[Case]:
    labels = [case.label for case in cases]
    if label is not None:
        if label not in labels:
            raise usage(f"there is no run {label!r}", suggest.hint(label, labels))
        return [cases[labels.index(label)]]
    if one and len(cases) > 1:
        shown = ", ".join(repr(each) for each in labels[:12]) + (", …" if len(labels) > 12 else "")
        raise usage(f"the experiment has {len(cases)} runs: of which one?", f"--run LABEL, one of {shown}")
    return cases


def _note(inputs: Inputs) -> None:
    for note in inputs.notes:
        print(f"phoenix: {note}", file=sys.stderr)


def _explain(args: argparse.Namespace, inputs: Inputs, case: Case) -> int:
    from phoenix.simulate import explain, report

    scenario = inputs.scenario(case)
    _note(inputs)
    try:
        told = explain.story(scenario, args.explain, inputs.started_at)
    except explain.NoSuchJob as error:
        raise usage(str(error)) from error
    print(report.as_json(explain.as_data(told)).rstrip() if args.json else explain.render(told))
    return OK


def _sweep(args: argparse.Namespace, experiment: Experiment, inputs: Inputs, cases: list[Case]) -> int:
    from phoenix.simulate import outputs, report

    out = files.beside(args.jobs_csv)
    keep = args.jobs_csv is not None or args.plots is not None
    results = outputs.simulate(inputs, cases, keep=keep, verify=args.verify, workers=args.workers)
    _note(inputs)
    try:
        if args.jobs_csv is not None:
            outcomes = [result.outcome for result in results if result.outcome is not None]
            report.write_jobs_csv(args.jobs_csv, outcomes)
        if args.plots is not None:
            outputs.plot(args.plots, experiment.name, results, args.workers)
    finally:  # a full disk, or Ctrl-C while it draws, must not cost what was simulated
        if args.json:
            print(report.as_json(outputs.document(experiment, inputs, cases, results, verified=args.verify)), end="")
        else:
            print(
                outputs.table(outputs.seeded(cases, results), experiment.goal, detail=args.detail), file=out, flush=True
            )
    problems = [problem for result in results for problem in result.problems]
    if problems:
        raise CliError(FAILED, "the replay differs:\n" + "\n".join(problems), "that is a bug: please report it")
    if args.verify and not args.json:
        print(f"verified: {count_of(len(results), 'run')}, replayed through separate folds to the same bytes", file=out)
    return OK


def _smallest(args: argparse.Namespace, experiment: Experiment) -> int:
    from phoenix.simulate import report, smallest
    from phoenix.simulate.scenarios import Inputs

    if not experiment.goal:
        raise usage(f"{args.experiment} has no [goal]", 'for example: [goal] "hpc.mean_wait_s" = "<= 1h"')
    inputs = Inputs(experiment)
    answers = smallest.answers(experiment, inputs, args.workers)
    _note(inputs)
    if args.json:
        print(report.as_json(smallest.document(experiment, inputs, answers)), end="")
    else:
        print("\n\n".join(smallest.render(answer, experiment.goal) for answer in answers))
    return OK if all(answer.found.smallest is not None for answer in answers) else FAILED
