"""`phoenix whatif --config FILE`: the cloud's recorded demand played again under another configuration, and compared.

Exit codes: 0 done; 1 the configuration has problems, or the replay failed; 2 mistyped; 3 no cloud; 4 not an operator.
"""

from __future__ import annotations

import argparse
from typing import Final

from phoenix.cli import whatif_replay

HELP: Final = """examples:
  phoenix whatif --config new.toml --since 24h            the last day under new.toml, compared with the present one
  phoenix whatif --config new.toml --since 7d --by user   the same, a row for each user
  phoenix whatif --hosts 20 --since 24h                   the present configuration on 20 hosts
  phoenix whatif --since 1h                               how far the replay is from what happened

exit code: 0 done, 1 the file has problems, or the replay failed (docs/whatif.md)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whatif_replay.add_options(parser.add_argument_group("another configuration"))


def run(args: argparse.Namespace) -> int:
    return whatif_replay.run(args)
