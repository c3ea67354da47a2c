"""A load balancer with a valid credential that lies: the real cores of a cloud, and the real edge of its department's
scheduler, on a virtual clock.

What follows stays within what its department may have: its bounds, its rules' steps, its part of the hosts.  Nobody else's
number changes, batch jobs go on, and every signal that does not count is counted.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from schemas import facts as f
from schemas.config import CloudConfig, User
from schemas.envelope import decode
from schemas.signal_drops import Drop
from schemas.signals import SIGNALS
from schemas.times import exact
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.log import get_log
from services.runtime.signal_line import Message, Newest
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge.claims import Claims
from services.scheduler.edge.web import WebEdge
from tests.hostile.fuzz import Fuzz
from tests.support.world import World, batch, web

SECONDS = 240 * int(os.environ.get("HOSTILE_ROUNDS", "1"))
HOSTS, GUARANTEE, MOST, FLOOR = 12, 4, 5, 1
STEP, STEP_S = 2, 60.0
RUN_S = 7.0  # of a job
ERAS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-12:00")  # neither has a year in UTC
LIES = ("flap", "bounds", "clock", "names", "shape", "sources", "same", "silence")


class Cloud:
    """Departments hpc (batch), web (whose balancer lies) and shop (web too)."""

    def __init__(self) -> None:
        limits = {
            "up_limits": (f"{STEP} in {STEP_S:g}s",),
            "down_limits": (f"{STEP} in {STEP_S:g}s",),
            "down_window_s": 30.0,
        }
        bounds = {"instances_min": FLOOR, "instances_max": MOST, "requests_per_instance": 100.0}
        users = (User(name="mallory", department="web"), User(name="lou", department="shop"))
        departments = (batch("hpc", guarantee=GUARANTEE), web("web", maximum=MOST, **limits, **bounds), web("shop"))
        self.world = world = World(CloudConfig(name="test", departments=departments, users=users))
        world.strict = False
        world.hosts(HOSTS)
        world.seat("provisioner", ProvisionerCore)
        world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
        world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
        world.seat("scheduler.shop", lambda custody: WebCore(custody, "shop"))
        world.executor()
        world.guests(run_s=RUN_S)
        self.edges = {name: self.edge(name) for name in ("web", "shop")}
        self.sent: Counter[str] = Counter()
        for _ in range(2 * HOSTS):
            world.submit()
        world.advance(5.0)

    def edge(self, name: str) -> WebEdge:
        """As it is after a start: the service around it is the test's."""
        world, seat = self.world, self.world.seats[f"scheduler.{name}"]
        now = lambda: world.now  # noqa: E731

        async def propose(compose: Any, _why: str) -> None:
            world.write(f"scheduler.{name}", *compose(world.now, []))

        edge = WebEdge(name)
        edge._claims = Claims(name, lambda _record: None, now)
        service = SimpleNamespace(
            now=now, custody=seat.custody, core=seat.core, is_leader=True, log=get_log(service="test"), propose=propose
        )
        edge.service = service  # type: ignore[assignment]
        edge.meter.since, edge.meter.answers.release_of = world.now - 60.0, edge._release_of
        core = seat.core.state
        edge.meter.inherit(core.claim, core.claim_by, core.heard_at + seat.core.policy.signal_timeout_s)
        return edge

    def hear(self, name: str, user: str, said: list[tuple[str, bytes]]) -> None:
        """As the line hands it on: of each signal the newest few, and how many more there were."""
        kept = Newest()
        for signal, data in said:
            kept.put(f"phoenix.signal.{name}.{user}.{signal}", Message(data, "", self.world.now))
        for heard in kept.take():
            self.edges[name]._on_signals(heard)
        self.sent[name] += len(said)

    async def second(self) -> None:
        """It passes; what was heard is observed, and everybody decides."""
        for edge in self.edges.values():
            if (fact := edge._due(self.world.now)) is not None:
                await edge._write(fact, self.world.now)
        self.world.advance(1.0)

    def targets(self, name: str) -> list[tuple[float, int]]:
        """When its number changed, and to what."""
        envelopes = [decode(data, writer) for writer, data in self.world.journal]
        said = [(one.at, fact) for one in envelopes for fact in one.facts if isinstance(fact, f.DemandChanged)]
        return [(at, fact.instances) for at, fact in said if fact.dept == name and fact.instances is not None]

    def instances(self, name: str) -> list[str]:
        return sorted(self.world.custody.index.open.get(name, ()))


class Liar:
    def __init__(self, seed: int, cloud: Cloud) -> None:
        self.dice, self.fuzz, self.cloud = random.Random(seed), Fuzz(seed), cloud
        self.before: list[tuple[str, bytes]] = []

    def says(self) -> list[tuple[str, bytes]]:
        """What it says in a second."""
        how = self.dice.choice(LIES)
        if how == "silence":
            return []
        said = [one for _ in range(self.dice.choice((1, 20, 1000))) for one in getattr(self, f"_{how}")()]
        self.before += said[:50]
        return said

    def _json(self, name: str, **fields: Any) -> tuple[str, bytes]:
        return name, json.dumps(fields).encode()

    def _flap(self) -> list[tuple[str, bytes]]:
        load = self.dice.choice((0.0, 100.0))
        return [self._json("cpu", utilisation=load), self._json("requests", rate=load * 1e5, target=100, source="b")]

    def _bounds(self) -> list[tuple[str, bytes]]:
        odd: Any = self.dice.choice(
            (float("nan"), float("inf"), -float("inf"), -1, 1e300, 10**400, None, "1", True, [], 2**63, *ERAS)
        )
        name, field = self.dice.choice(
            (("cpu", "utilisation"), ("requests", "rate"), ("claim", "instances"), ("cpu", "at"))
        )
        return [self._json(name, **({"utilisation": 1.0} | {field: odd}))]

    def _clock(self) -> list[tuple[str, bytes]]:
        off = self.dice.choice((-1e9, -3600.0, -6.0, 1.5, 3600.0, 1e9))
        return [
            self._json("cpu", utilisation=100, at=exact(self.cloud.world.now + off), source=str(self.dice.random()))
        ]

    def _names(self) -> list[tuple[str, bytes]]:
        unit = self.dice.choice(("shop.1", "web.999999", "hpc.1", "1", "web.1", "web.2", "", "web.-1", "x" * 300))
        counts = {unit: self.dice.choice((0, 5, 10**7, 10**9))}
        return [self._json("sessions", sessions=counts), self._json("answers", instances={unit: [9, 9]})]

    def _shape(self) -> list[tuple[str, bytes]]:
        name = self.dice.choice(list(SIGNALS))
        return [(name, self.fuzz.message(SIGNALS[name]))]

    def _sources(self) -> list[tuple[str, bytes]]:
        return [
            self._json("cpu", utilisation=100, instances=self.dice.choice((1, 10**6)), source=str(self.dice.random()))
        ]

    def _same(self) -> list[tuple[str, bytes]]:
        return [self._json("cpu", utilisation=50, at=exact(self.cloud.world.now), source="one")] * 3 + self.before[-5:]

    def reports(self) -> None:
        """Of instances that are well it says that they are not, and the other way round."""
        known, world = self.cloud.instances("web"), self.cloud.world
        if known and self.dice.random() < 0.5:
            unit = self.dice.choice(known)
            state: Any = self.dice.choice(("unready", "unready", "ready", "drained"))
            attempt = world.unit(unit).attempt
            world.write(
                "admission", f.InstanceReported(unit=unit, attempt=attempt, state=state, user="mallory", why="x")
            )


def unbounded(targets: list[tuple[float, int]], initially: int) -> list[str]:
    """Where the number leaves its bounds, or rises faster than its steps allow."""
    found = [f"{number} at {at:.0f}" for at, number in targets if not FLOOR <= number <= MOST]
    numbers = [initially, *(number for _, number in targets)]
    rises = [(at, max(0, new - old)) for (at, _), (old, new) in zip(targets, itertools.pairwise(numbers), strict=True)]
    for at, _ in rises:
        risen = sum(more for when, more in rises if at - STEP_S < when <= at)
        if risen > STEP:
            found.append(f"{risen} more in {STEP_S:g} s at {at:.0f}")
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_who_lies_about_the_load_gets_no_more_than_its_department_may_have(seed: int) -> None:
    cloud = Cloud()
    world, liar = cloud.world, Liar(seed, cloud)
    began, shop = len(cloud.targets("web")), cloud.targets("shop")
    initially = cloud.targets("web")[-1][1]
    completed = [0]
    for second in range(SECONDS):
        liar.reports()
        cloud.hear("web", "mallory", liar.says())
        cloud.hear("shop", "lou", [("cpu", b'{"utilisation": 0.75, "source": "honest"}')])
        await cloud.second()
        if second == SECONDS // 2:  # its scheduler starts again, and hears all of it once more
            world.restart("scheduler.web")
            told = cloud.edges["web"].meter.gate
            before = sum(told.taken.values()) + sum(told.dropped.values())
            assert before == cloud.sent["web"]
            cloud.edges["web"], cloud.sent["web"] = cloud.edge("web"), 0
            cloud.hear("web", "mallory", liar.before)
        assert world.custody.held("hpc") >= GUARANTEE
        assert world.custody.held("web") <= MOST
        assert cloud.instances("web"), "somebody serves"
        if second % 30 == 29:
            states = Counter(world.states().values())
            completed.append(states["completed"])
            for _ in range(2 * HOSTS - states["pending"]):
                world.submit()
    assert unbounded(cloud.targets("web")[began:], initially) == []
    assert cloud.targets("shop") == shop, "another department's number is its own load's"
    assert all(after > before for before, after in itertools.pairwise(completed)), "batch jobs go on"
    gate = cloud.edges["web"].meter.gate
    assert sum(gate.taken.values()) + sum(gate.dropped.values()) == cloud.sent["web"]
    reasons = {reason for _, reason in gate.dropped}
    assert {Drop.MALFORMED, Drop.LATE, Drop.FUTURE, Drop.OUT_OF_ORDER, Drop.TOO_OFTEN, Drop.IMPLAUSIBLE} <= reasons
    for seat in world.seats.values():
        assert seat.core.check() == []
