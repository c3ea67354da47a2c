"""Writes docs/reference/lifecycle.md from the tables of `lifecycle`: a diagram of the aims, and what is asked in each phase.

python -m services.executor.diagram            # writes it
python -m services.executor.diagram --check    # exit 1 if it differs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from services.executor.core.calls import Phase
from services.executor.core.lifecycle import ASKED, TOLD, Aim

FILE: Final = Path(__file__).parents[2] / "docs" / "reference" / "lifecycle.md"
PHASES: Final = (None, *Phase)
_MEANS: Final = {
    None: "not observed yet",
    Phase.HELD: "on hold",
    Phase.MOVING: "on its way",
    Phase.RUNNING: "running",
    Phase.ELSEWHERE: "running elsewhere",
    Phase.UNKNOWN: "unknown",
    Phase.SAVED: "saved",
    Phase.OFF: "powered off",
    Phase.FAILED: "failed",
    Phase.OVER: "gone",
}
_HEAD: Final = """# The life of a VM

This page is made from `services/executor/core/lifecycle.py` by `python -m services.executor.diagram`; the executor decides
by the same tables. `tests/unit/test_executor_lifecycle.py` tries every pair of them, and every pair that is not in them.

## What the journal demands

Each open VM has an *aim*. Facts change it, and time does. What is not drawn changes nothing.

```mermaid
stateDiagram-v2
    [*] --> running: allocated
"""
_ASKED: Final = """```

## What the executor asks of OpenNebula

Aim (rows) and what OpenNebula showed last (columns) give what follows. Capitals are calls and facts; the rest waits.

"""
_TAIL: Final = """
`DEPLOY` waits until X3 allows it, and for a host that rests after a failed start. `TERMINATE` is asked once, `TERMINATE HARD`
again after two seconds if it came to nothing, and after `[opennebula] end_again_s` (300 s; 20 s for an embedded OpenNebula) if
it is still under way; a VM that outlives it by `stuck_s` makes its host lost. *doubt*: its host does not say whether it runs;
after `stuck_s` it is condemned. *condemn*: it does not run though it should; it is terminated, and `vm.ended` is written when
it is gone.

On a lost host nothing is waited for that was to be saved or moved from there: `vm.ended` says *left behind*, and the job begins
again. What may still run there is found and ended when the host is back, before it is cleared.
"""


def document() -> str:
    """The whole page."""
    arrows = "".join(f"    {aim} --> {to}: {told}\n" for (aim, told), to in sorted(TOLD.items()))
    ends = "".join(f"    {aim} --> [*]: gone\n" for aim in Aim)
    head = "| | " + " | ".join(_MEANS[phase] for phase in PHASES) + " |\n" + "|---" * (len(PHASES) + 1) + "|\n"
    rows = "".join(f"| **{aim}** | " + " | ".join(ASKED[aim, phase] for phase in PHASES) + " |\n" for aim in Aim)
    return _HEAD + arrows + ends + _ASKED + head + rows + _TAIL


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m services.executor.diagram", description="Write the page lifecycle.md."
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it differs")
    parser.add_argument("--file", type=Path, default=FILE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.check:
        options.file.write_text(document(), encoding="utf-8")
        return 0
    if options.file.exists() and options.file.read_text(encoding="utf-8") == document():
        return 0
    print(f"{options.file.name} differs from the tables: run python -m services.executor.diagram", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
