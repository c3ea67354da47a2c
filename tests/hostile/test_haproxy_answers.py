"""A stats socket that says anything: the agent beside HAProxy has no look then, or one that it can work with."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from phoenix.haproxy.flow import Flow
from phoenix.haproxy.keeper import Keeper
from phoenix.haproxy.metrics import Counts
from phoenix.haproxy.runtime_api import RuntimeApi
from phoenix.haproxy.table import Table
from phoenix.haproxy.watch import Watch
from tests.unit.test_haproxy_parts import INFO, STAT, STATE

ROUNDS = 1500 * int(os.environ.get("HOSTILE_ROUNDS", "1"))
MAP = "0x1 phoenix1 /healthz\n0x2 phoenix2 /well\n"
ODD = (
    "", " ", "-", "-1", "0", "9" * 19, "9" * 30, "9" * 320, "9" * 5000, "nan", "inf", "1e400", "0x10", "1.5", "\u0663",
    "\ufffd", "x" * 200_000, "#", "# ", "\n", "\r", "\x00", "\x0b", ",", '"', '""', "phoenix1", "phoenix99999999999", "BACKEND",
    "web", "::1", "fe80::1%eth0", "10.0.0.1", "999.1.1.1", ": ", "Pid: 7", "/", "a b", ";", "\u202e",
)  # fmt: skip


class Haproxy(RuntimeApi):
    """Says what it is given, broken in some places."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(Path("/nowhere"), "web", "phoenix", "health.map")
        self.dice = dice

    async def ask(self, command: str) -> str:
        for words, answer in (("show servers", STATE), ("show stat", STAT), ("show info", INFO), ("show map", MAP)):
            if command.startswith(words):
                return self.broken(answer)
        return self.dice.choice(("", "", *ODD))

    def broken(self, text: str) -> str:
        dice = self.dice
        for _ in range(dice.choice((0, 0, 0, 1, 1, 2, 5))):
            match dice.randrange(6):
                case 0 | 1 | 2:  # another field
                    mark = "," if text.count(",") > text.count(" ") else " "
                    parts = text.split(mark)
                    parts[dice.randrange(len(parts))] = dice.choice(ODD)
                    text = mark.join(parts)
                case 3:  # a line less, twice, or cut
                    lines = text.split("\n")
                    at = dice.randrange(len(lines))
                    lines[at] = dice.choice(("", lines[at] + "\n" + lines[at], lines[at][: dice.randrange(40)]))
                    text = "\n".join(lines)
                case 4:
                    text = text[: dice.randrange(len(text) + 1)]
                case 5:
                    at = dice.randrange(len(text) + 1)
                    text = text[:at] + dice.choice(ODD) + text[at:]
        return text


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_it_says_the_agent_goes_on(seed: int) -> None:
    dice, table = random.Random(seed), Table()
    keeper, watch, flow = Keeper(Haproxy(dice), table, Counts()), Watch(5.0), Flow("lb")
    table.audited([], 0.0, 0.0)
    for number, address in enumerate(("10.0.0.1:80", "10.0.0.2:80", "[::1]:80", "x:1")):
        table.began(f"web.{number}", 1, [address], 0.0)
    looks = 0
    for _ in range(ROUNDS):
        seen = await keeper.look()
        if seen is None:
            continue
        looks += 1
        wanted = table.all()
        watch.look(wanted, seen.plan, seen.reading)
        for signal in (
            flow.requests(seen.reading, seen.now, seen.at),
            flow.sessions(wanted, seen.plan, seen.at),
            flow.answers(wanted, seen.plan, seen.reading, seen.at),
        ):
            if signal is not None:  # what it is worth can be published
                msgspec.json.encode(signal)
    assert ROUNDS / 20 < looks < ROUNDS
