"""`make fuzz EXAMPLES=100`: requests made from the documents, that many for each operation, against clouds of their own.

    python -m tests.contracts.fuzz_run [--examples 100] [--seed 0]

Every caller that there is asks: a user, a manager, an operator, the guest of a job that runs, and one without a token.  Ends
with 1 if an answer is not as the documents say, and prints each such request as a line that can be pasted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from schemas.ids import vm_tag
from services.admission.guests.tokens import GuestTokens, job_token
from services.admission.http import openapi
from tests.contracts import nats_fuzz
from tests.contracts.http_fuzz import PHASES, Outcome, fuzz
from tests.hostile.campaign_after import folded
from tests.integration.up_cloud import Cloud, signpost, until

SITE: Final = """
[cloud]
name = "fuzz"
[[department]]
name = "hpc"
kind = "batch"
guarantee = 2
[department.batch]
order = "leases"
[[department]]
name = "web"
kind = "web"
[department.web]
instances_max = 3
[[user]]
name = "alice"
department = "hpc"
[[user]]
name = "wendy"
department = "web"
role = "manager"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
"""
DEAR: Final = "^/v1/whatif$"  # admission lets each caller have a few of them a second
MONITORS: Final = "^/v1/session"  # the monitor's alone
GUESTS: Final = "^/v1/guest/"
OTHERS: Final = "^/v1/(?!whatif$|session|guest/)|^/(?!v1/)"


@cache
def document() -> dict[str, Any]:
    return dict(json.loads(Path(openapi.__file__).with_name("openapi.json").read_bytes()))


@contextlib.contextmanager
def cloud() -> Iterator[Cloud]:
    """Job 1 completes, 2 is an array, 3 runs until the test is over; 4 is a lease; web has instances."""
    with tempfile.TemporaryDirectory(prefix="phoenix-fuzz-") as directory, signpost() as enough:
        place = Path(directory)
        place.chmod(0o711)
        (place / "site.toml").write_text(SITE)
        made = Cloud(place / "data")
        made.ok("up", "--detach", "--hosts", "5", "--cores", "2", "--config", str(place / "site.toml"))
        try:
            made.ok("submit", "--as", "alice", "--wrap", "echo hello")
            made.ok("submit", "--as", "alice", "-a", "1-3", "--wrap", "true")
            made.ok("submit", "--as", "alice", "-t", "60", "--wrap", f"until [ -e {enough} ]; do sleep 1; done")
            made.ok("lease", "create", "--as", "alice", "--start", "+50m", "--duration", "10m")
            made.ok("scale", "web", "1")
            until(lambda: made.json("show", "3")["state"] == "running", "job 3 does not run")
            yield made
        finally:
            made.close()


KNOWN: Final[Mapping[str, list[str]]] = {
    "job": ["1", "2", "2_1", "3"],
    "lease": ["4", "1"],
    "unit": ["web.1", "web.2"],
    "department": ["hpc", "web"],
    "host": ["host000", "host004"],
    "name": ["cpu", "claim", "1", "hpc", "host000"],
    "entity": ["1", "2_1", "web.1", "hpc", "host000"],
}


def tokens(made: Cloud, user: str) -> dict[str, str]:
    return {"bearer": Path(made.status()["credentials"][user]["token"]).read_text().strip()}


def guest(made: Cloud, unit: str) -> dict[str, str]:
    """Of the VM, and of the job in it."""
    data = made.data
    cloud = asyncio.run(folded(data)).custody.state.cloud
    token = GuestTokens.load(data / "credentials" / "guest.key").of(vm_tag(cloud, unit, 1, 0))
    return {"guest": token, "job": job_token(token)}


def http(examples: int, seed: int) -> Outcome:
    """All callers; the operator, who may everything, last."""
    found = Outcome()
    with cloud() as made:
        url, monitor = made.status()["http_url"], made.status()["monitor_url"]
        job: dict[str, list[Any]] = {
            "unit": ["3"],
            "attempt": [1],
            "rank": [0],
            "launch": ["tasks"],
            "stream": ["stdout"],
        }
        options: dict[str, Any] = {"examples": examples, "seed": seed}
        fuzzing = {**options, "phases": ("fuzzing",)}
        found.join(fuzz(document(), url, {}, known=KNOWN, only=f"{OTHERS}|{GUESTS}", **{**fuzzing, "examples": 1}))
        for user in ("alice", "wendy"):
            found.join(fuzz(document(), url, tokens(made, user), known=KNOWN, only=OTHERS, **fuzzing))
        for part in (f"{GUESTS}.*(?<!report)$", f"{GUESTS}.*report$"):  # a report ends the attempt
            found.join(fuzz(document(), url, guest(made, "3"), known=job, only=part, phases=PHASES, **options))
        oscar = tokens(made, "oscar")
        found.join(fuzz(document(), monitor, oscar, only=MONITORS, phases=PHASES, **options))
        found.join(fuzz(document(), url, oscar, only=DEAR, **fuzzing))
        found.join(fuzz(document(), url, oscar, known=KNOWN, only=OTHERS, phases=PHASES, **options))
    return found


def nats(examples: int, seed: int) -> Outcome:
    """Requests and queries over NATS."""
    with cloud() as made, nats_fuzz.bridge(made.status()) as bridge:
        options: dict[str, Any] = {
            "examples": examples,
            "seed": seed,
            "phases": ("fuzzing",),
            "meant": nats_fuzz.meant(),
        }
        return fuzz(
            nats_fuzz.document(), bridge.url, {}, line=lambda curl: nats_fuzz.line(bridge.status, curl), **options
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found = http(args.examples, args.seed)
    found.join(nats(args.examples, args.seed))
    print("\n\n".join(found.failures))
    print(f"{found.count()} requests, seed {args.seed}: {len(found.failures) or 'no'} failures")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
