"""The five services, the rules that they share (`domain`) and what each runs on (`runtime`).

A process that is started (`python -m services.X`) first imports several hundred modules.  None of that is garbage, and looking
for some in between takes a sixth of the start, so the collector waits until the program begins (`runtime.main.run`).
"""

import gc
import sys

if sys.argv[:1] == ["-m"]:  # while Python looks for the module that it was asked to run
    gc.disable()
