"""`phoenix whatif`: two questions about what has not happened.

    phoenix whatif job.sh [options of submit]      when and where would this job start?      (`whatif_job`)
    phoenix whatif --config FILE --since 24h       what would this configuration have done?  (`whatif_replay`)

Which one is asked, the words say: --config, --hosts, --since, --until, --by, --unknown and --plot are of the second one alone.
"""

from __future__ import annotations

import argparse
from typing import Final

from phoenix.cli import submit, whatif_job, whatif_replay
from phoenix.cli.errors import usage

HELP: Final = """examples:
  phoenix whatif job.sh                                   when and where the job would start; nothing is submitted
  phoenix whatif -N 4 --time 2:00:00 --wrap true          the same of four hosts for two hours
  phoenix whatif --config new.toml --since 24h            the last day under new.toml, compared with the present one
  phoenix whatif --config new.toml --since 7d --by user   the same, a row for each user
  phoenix whatif --hosts 20 --since 24h                   the present configuration on 20 hosts
  phoenix whatif --since 1h                               how far the replay is from what happened

exit code: 0 done, 1 the job would be refused, the file has problems, or the replay failed (docs/howto/whatif.md)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whatif_job.add_options(parser)
    whatif_replay.add_options(parser.add_argument_group("another configuration, instead of a job"))


def prepared(argv: list[str]) -> list[str]:
    return submit.prepared(argv)


def run(args: argparse.Namespace) -> int:
    is_job = args.script is not None or args.wrap is not None
    replays = whatif_replay.asked(args)
    if not replays:
        if not is_job:
            raise usage("what if what?", "phoenix whatif JOB.sh, or phoenix whatif --config FILE --since 24h")
        return whatif_job.run(args)
    if is_job:
        job = "--wrap" if args.wrap is not None else args.script
        raise usage(f"{job} is a job, {replays} asks for a replay: one of them", "phoenix whatif --help shows both")
    return whatif_replay.run(args)
