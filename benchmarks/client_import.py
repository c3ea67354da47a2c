"""How long importing the client library takes: processor time of fresh processes, beside Python's own start.

python -m benchmarks.client_import [--runs 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

RUNS = 15
CODE = "import time; began = time.process_time(); {}; print(time.process_time() - began)"
IMPORTS = (
    "import asyncio",
    "import phoenix.client",
    "from phoenix.client import Client, SyncClient",
    "from phoenix.client import Client, SyncClient; import aiohttp",
)


def measured_ms(code: str) -> float:
    done = subprocess.run([sys.executable, "-c", CODE.format(code)], capture_output=True, text=True, check=True)
    return float(done.stdout) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    for code in IMPORTS:
        found = sorted(measured_ms(code) for _ in range(runs + 1))[:-1]  # the first one compiles
        print(f"{statistics.median(found):6.1f} ms (fastest {found[0]:.1f})  {code}")


if __name__ == "__main__":
    main()
