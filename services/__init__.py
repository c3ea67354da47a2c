"""The five services, the rules that they share (`domain`) and what each runs on (`runtime`).

A process that is started (`python -m services.X`) first imports several hundred modules.  None of that is garbage, and looking
for some in between takes some 6 % of the start, so the collector comes seldom until the program sets its own thresholds
(`runtime.main`).
"""

import gc
import sys
from typing import Final

STARTING: Final = 1_000_000  # new objects between two collections: more than a start makes

if sys.argv[:1] == ["-m"]:  # while Python looks for the module that it was asked to run
    gc.set_threshold(STARTING)
