"""`make hostile ROUNDS=10`: departments' users say 100,000 things a round that no program would say, at every door there is.

    python -m tests.hostile.campaign [--rounds 10] [--messages 100000] [--seed 0]

What is said is made from the schemas (`fuzz`): requests, signals and queries over NATS, odd subjects and headers among them
(`campaign_nats`); every route of every HTTP door with odd paths, headers and bodies, those of a job with its token too, and raw
bytes at every port (`campaign_http`).  Meanwhile somebody of another department submits jobs.  After each round

    no process has ended, or grown by more than what folds remember; all jobs of the other department have completed;
    no credential is in a log, an argument list or the journal (`campaign_after`);

and in the end the journal folds from its beginning.  Ends with 1 if one of these is not so.  It prints what each door answered,
by class, and what the services counted.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.cloud import cloud
from tests.hostile.campaign_after import Processes, Victim, folded, told_secrets, unsound
from tests.hostile.campaign_http import Visitors
from tests.hostile.campaign_nats import Talker
from tests.hostile.fuzz import Fuzz

USERS: Final = 8  # of each hostile department: each is served at a pace of its own
JOBS: Final = 4  # a round: one may have to make way for a web department
COUNTED: Final = re.compile(
    r"^phoenix_(signals_dropped|turns_refused|nats_malformed|replies_dropped|http_connections_\w+)_total"
    r"(?:\{([^}\n]*)\})? (\S+)$",
    re.MULTILINE,
)
CONFIG: Final = """
[cloud]
name = "hostile"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "bio"
kind = "batch"
guarantee = 2
[[department]]
name = "lab"
kind = "batch"
guarantee = 2
[[department]]
name = "web"
kind = "web"
[[user]]
name = "bea"
department = "bio"
[[user]]
name = "gus"
department = "lab"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
""" + "".join(
    f'[[user]]\nname = "{name}{number}"\ndepartment = "{department}"\n'
    for name, department in (("mallory", "hpc"), ("mona", "web"))
    for number in range(1, USERS + 1)
)


class Campaign:
    def __init__(self, status: dict[str, Any], cloud: str, seed: int) -> None:
        self.status = status
        known = status["credentials"]
        tokens = {name: Path(one["token"]).read_text().strip() for name, one in known.items()}
        hostile = [name for name, one in known.items() if one["department"] in ("hpc", "web")]
        self.talkers = [
            Talker(
                status["nats_url"],
                name,
                known[name]["department"],
                Path(known[name]["nkey"]),
                Fuzz(seed * 100 + number),
            )
            for number, name in enumerate(hostile)
        ]
        self.visitors = Visitors(status, cloud, {name: tokens[name] for name in hostile}, Fuzz(seed * 100 + 99))
        self.victim = Victim(status, tokens["bea"])
        self.processes = Processes(status)
        self._tokens = tokens
        self.problems: list[str] = []

    async def round(self, messages: int) -> None:
        victim = asyncio.create_task(self.victim.submit_forever())
        with self._timed("NATS"):
            await asyncio.gather(*(one.talk(messages * 8 // 10 // len(self.talkers)) for one in self.talkers))
        await asyncio.gather(*(one.close() for one in self.talkers))
        with self._timed("HTTP"):
            for _ in range(JOBS):
                await self.visitors.run_a_job(self._tokens["gus"])
                await self.visitors.visit(messages * 17 // 100 // JOBS)
        with self._timed("bytes"):
            await self.visitors.knock(messages * 3 // 100)
        victim.cancel()
        await asyncio.gather(victim, return_exceptions=True)
        with self._timed("after"):
            self.problems += self.visitors.problems
            self.problems += await self.victim.problems()
            self.problems += await self.processes.problems(self._position())
            self.problems += told_secrets(Path(self.status["data"]))

    def _position(self) -> int:
        with urllib.request.urlopen(self.status["metrics"]["admission"], timeout=30) as answer:
            (found,) = re.findall(r"^phoenix_reader_position\S* (\S+)$", answer.read().decode(), re.MULTILINE)
        return int(float(found))

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        print(f"  {what}: {time.monotonic() - began:.0f} s", flush=True)

    def told(self) -> list[str]:
        """What was sent and how it was answered, by class."""
        sent, answers = Counter(self.visitors.sent), Counter(self.visitors.answers)
        for one in self.talkers:
            sent.update(one.sent)
            answers.update(one.answers)
        counted: Counter[str] = Counter()
        for url in self.status["metrics"].values():
            with urllib.request.urlopen(url, timeout=30) as answer:
                for name, labels, value in COUNTED.findall(answer.read().decode()):
                    counted[f"{name} {labels.replace(chr(34), '')}"] += int(float(value))
        return [
            f"  sent {sum(sent.values())}: {_listed(sent)}",
            f"  answered: {_listed(answers)}; connections ended by the broker: {sum(one.ended for one in self.talkers)}",
            f"  counted: {_listed(counted)}",
            f"  memory, MiB: {_listed(Counter({name: round(mb) for name, mb in self.processes.rounds[-1].items()}))}",
            f"  {self.victim.told()}",
        ]


def _listed(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()) if count)


async def campaign(status: dict[str, Any], rounds: int, messages: int, seed: int) -> list[str]:
    data = Path(status["data"])
    here = Campaign(status, (await folded(data)).custody.state.cloud, seed)
    for number in range(1, rounds + 1):
        began = time.monotonic()
        await here.round(messages)
        print("\n".join([f"round {number}: {time.monotonic() - began:.0f} s", *here.told()]), flush=True)
        if here.problems:
            break
    return here.problems + unsound(await folded(data), here.victim.jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with cloud(config=CONFIG) as status:
        problems = asyncio.run(campaign(status, args.rounds, args.messages, args.seed))
    for problem in problems[:50]:
        print(problem)
    print(f"{args.rounds} rounds of {args.messages}, seed {args.seed}: " + ("PROBLEMS" if problems else "all well"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
