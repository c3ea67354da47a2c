"""Instances as people see them: their states, the last ones that are gone, and what is said of them at the moment."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phoenix.cli.instances import render
from schemas import facts as f
from schemas import reasons as because
from schemas.measures import Measured, Measures
from schemas.signals import SessionsSignal
from schemas.times import exact
from services.monitor.views import instances as module
from services.monitor.views.instances import instances
from services.monitor.views.levels import BYTES_PER_S, SESSIONS_MAX, SOURCES_MAX, STALE_S, Levels
from tests.unit.test_custody_rules import Step
from tests.unit.test_monitor_core import ADOPTED, Desk
from tests.unit.test_releases_shown import SERVES, instance


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def measures(utilisation: float, unit: str = "web.1") -> bytes:
    one = Measured(unit=unit, attempt=1, utilisation=utilisation, memory_mb=64.0, at=exact(0.0))
    return msgspec.json.encode(Measures(instances=(one,)))


def sessions(source: str, **counts: int) -> bytes:
    told = {f"web.{name[1:]}": count for name, count in counts.items()}
    return msgspec.json.encode(SessionsSignal(sessions=told, source=source))


def test_levels_are_the_last_word_and_sessions_of_several_balancers_add_up() -> None:
    clock = Clock()
    levels = Levels(clock)
    assert levels.of("web.1", 1).cpu is None
    levels.measured(measures(0.5))
    levels.counted("web", "lb", sessions("a", n1=3, n2=0))
    levels.counted("web", "lb", sessions("b", n1=4))
    levels.counted("shop", "lb", sessions("a", n1=9))
    levels.measured(b"rubbish")
    levels.counted("web", "lb", b"rubbish")
    one = levels.of("web.1", 1)
    assert (one.cpu, one.memory_mb, one.sessions) == (0.5, 64.0, 7)
    assert (levels.of("web.2", 1).sessions, levels.of("web.3", 1).sessions, levels.of("web.1", 2).cpu) == (
        0,
        None,
        None,
    )
    clock.now += STALE_S + 0.1
    levels.counted("web", "lb", sessions("b", n1=4))
    one = levels.of("web.1", 1)
    assert (one.cpu, one.sessions) == (None, 4)


def test_who_says_too_much_takes_no_others_room_or_time() -> None:
    clock = Clock()
    levels = Levels(clock)
    for number in range(SOURCES_MAX + 5):
        levels.counted("web", "lb", sessions(f"s{number}", n1=1))
    levels.counted("shop", "lb", sessions("a", n1=9))
    assert levels.of("web.1", 1).sessions == SOURCES_MAX
    levels.counted("web", "wendy", sessions("s0", n1=2))
    assert levels.of("web.1", 1).sessions == SOURCES_MAX + 2
    levels.counted("web", "wendy", sessions("s0", n1=0))
    levels.counted("web", "lb", sessions("s0", n1=10))  # one of those that are known
    assert levels.of("web.1", 1).sessions == SOURCES_MAX + 9
    named = msgspec.json.encode(SessionsSignal(sessions={f"web.{n}": 1 for n in range(1, 10_001)}, source="s0"))
    for number in range(SESSIONS_MAX // 10_000 + 1):
        levels.counted("many", "lb", named.replace(b"s0", b"t%d" % number).replace(b"web.", b"many."))
    assert sum(len(told) for _, told in levels._open["many"].values()) == SESSIONS_MAX
    for _ in range(BYTES_PER_S // (512 << 10)):
        levels.counted("loud", "lb", b"[" + b" " * (512 << 10))
    levels.counted("loud", "lb", sessions("a", n1=1))
    levels.counted("web", "lb", sessions("s0", n1=1))
    assert (levels.of("loud.1", 1).sessions, levels.of("web.1", 1).sessions) == (None, SOURCES_MAX)


def drains(unit: str) -> Step:
    return "scheduler.web", f.InstanceDraining(unit=unit, attempt=1, until=9e9, reason=because.ScaleDown())


def closed(unit: str, code: because.Kind, disposal: f.Disposal = f.Disposal.STOPPED) -> Step:
    return "scheduler.web", f.AttemptClosed(unit=unit, attempt=1, disposal=disposal, why=code())


LIFE: tuple[Step, ...] = (
    *SERVES,
    *instance(1, 0),
    *instance(2, 3),
    drains("web.2"),
    *instance(3, 0, begins=False),
    *instance(4, 0),
    drains("web.4"),
    closed("web.4", because.Drained),
    *instance(5, 0, begins=False),
    closed("web.5", because.BootTimeout, f.Disposal.FAILED),
)


def shown(ended: bool = True, department: str | None = "web") -> list[dict[str, Any]]:
    desk = Desk().play(ADOPTED, *LIFE)
    levels = Levels(Clock())
    levels.measured(measures(0.42))
    levels.counted("web", "lb", sessions("lb", n1=3))
    found: list[dict[str, Any]] = instances(desk.core, levels, department, ended=ended)["instances"]
    return found


def test_each_instance_has_its_state_and_those_that_are_gone_are_shown_if_asked_for() -> None:
    states = {one["instance"]: one["state"] for one in shown()}
    assert states == {
        "web.1": "in-service",
        "web.2": "draining",
        "web.3": "booting",
        "web.5": "failed",
        "web.4": "stopped",
    }
    assert [one["instance"] for one in shown(ended=False)] == ["web.1", "web.2", "web.3"]
    assert shown(department=None) == shown()
    first, second, third, fifth, fourth = shown()
    assert (first["cpu"], first["sessions"], first["address"], first["host"]) == (0.42, 3, "127.0.0.1:1", "h1")
    assert (second["release"], second["drains_until"] is not None, second["since"] > first["since"]) == (3, True, True)
    assert (third["address"], third["cpu"]) == (None, None)
    assert (fourth["why"]["code"], fourth["host"], fourth["cpu"]) == ("drained", "h1", None)
    assert fifth["why"]["code"] == "boot_timeout"


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (("executor", f.HostLost(host="h1", reason="no answer")), "failed"),
        (("executor", f.VmEnded(unit="web.1", attempt=1, rank=0, why="gone")), "failed"),
        (("provisioner", f.HostSeized(host="h1", dept="web")), "stopped"),
    ],
)
def test_what_loses_its_vm_has_failed_and_what_is_taken_back_has_not(end: Step, state: str) -> None:
    lowered = ("provisioner", f.QuotaChanged(dept="web", hosts=0, by=1.0))
    runs = ("executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=7, host="h1"))
    desk = Desk().play(ADOPTED, *SERVES, *instance(1, 0), runs, lowered, end)
    (one,) = instances(desk.core, Levels(Clock()), "web", ended=True)["instances"]
    assert one["state"] == state


def test_only_the_last_ones_that_are_gone_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDED_MAX", 1)
    assert [one["instance"] for one in shown()] == ["web.1", "web.2", "web.3", "web.5"]


def test_the_table_says_why() -> None:
    found = shown()
    found[2] = {**found[2], "problem": "secret db-password of web is missing"}
    lines = render(found).splitlines()
    assert lines[0].split()[:4] == ["INSTANCE", "STATE", "RELEASE", "HOST"]
    assert lines[1].split()[-3:] == ["3", "42", "%"]
    assert "at the latest" in lines[2]
    assert lines[3].endswith("secret db-password of web is missing")
    assert "its last session has ended" in lines[5]
    assert render([], "web") == "web has no instances"
