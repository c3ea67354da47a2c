"""`make mutants`: how many mutants of the cores and the shared rules the fast tests notice, and which they do not.

    make mutants [MODULES="services/domain/sharing/max_min.py services/provisioner"] [MINUTES=60]
    python -m tests.mutation [--modules FILE-OR-DIRECTORY …] [--minutes M] [--workers N] [--seed N] [--within S]

Targets are the modules that are held to be pure (`tests/unit/test_frame_purity.py`).  `--minutes 0` tells what is known.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mutation.run import Plan, run
from tests.unit.frame_source import ROOT
from tests.unit.test_frame_purity import pure

STATE = ROOT / ".mutants"
EQUIVALENT = Path(__file__).parent / "equivalent.toml"


def targets() -> list[str]:
    return sorted({str((ROOT / path).relative_to(ROOT)) for path in pure()})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--modules", nargs="*", default=[], help="of the targets, those whose path begins so")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the order in which mutants are tried")
    parser.add_argument(
        "--within", type=float, default=30.0, help="seconds of CPU: a mutant's tests beyond it are left out"
    )
    args = parser.parse_args()
    known = targets()
    for wanted in args.modules:
        if not any(t.startswith(wanted) for t in known):
            parser.error(
                f"--modules {wanted}: no target begins so; targets are those of tests/unit/test_frame_purity.py"
            )
    plan = Plan(
        root=ROOT, targets=known, tests=["tests/unit", "tests/properties", "tests/simulation"], state=STATE,
        equivalent=EQUIVALENT, modules=args.modules, minutes=args.minutes, workers=args.workers, seed=args.seed,
        within_s=args.within,
    )  # fmt: skip
    return run(plan)


if __name__ == "__main__":
    sys.exit(main())
