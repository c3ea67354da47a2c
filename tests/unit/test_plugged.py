"""What stands between a core and somebody else's policy: it passes on what is right, and names whose fault the rest is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import Scenario, WebInput
from schemas.config import CloudConfig, Department, WebPolicy
from schemas.reasons import Code, because
from services.runtime.exits import Exit, Stop
from services.scheduler.policies import known, plugged
from services.scheduler.policies.order import Order
from services.scheduler.policies.scale import Rule
from services.scheduler.policies.victims import Candidate, Choice, HostLoad
from tests.support.plugins import install, packages

HOSTS = [HostLoad("h1", False, ("1",)), HostLoad("h2", False, ())]
CROWD = {"1": Candidate("1", 1, 5.0, 5.0)}
RULE = """'''As many as it is told.

Source: this test.
'''
import msgspec
from schemas.options import read
from schemas.reasons import Code, because
from services.scheduler.policies.scale import Rule

class Settings(msgspec.Struct, frozen=True):
    number: int = 1

def follow(memory, heard, policy):
    return memory

def wanted(memory, serving, current, policy):
    return {number}, because(Code.BY_POLICY, policy="told")

RULE = Rule(follow, wanted, hurried=False)
"""
TOLD = "read(Settings, policy.options).number"


def refused(act: Any, *given: Any) -> str:
    with pytest.raises(Stop) as stop:
        act(*given)
    assert stop.value.code is Exit.POLICY
    return stop.value.why


@pytest.mark.parametrize("name", list(known.ORDERS))
def test_an_order_behind_it_says_the_same_of_itself(name: str) -> None:
    ours = known.ORDERS[name]
    behind = plugged.order(ours, "order x")
    for field in Order._fields:
        mine, theirs = getattr(ours, field), getattr(behind, field)
        assert callable(mine) == callable(theirs)
        assert callable(mine) or mine == theirs


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (Choice([], ["h2"]), ""),
        (Choice(["1"], ["h1"]), ""),
        (Choice([], ["h1"]), "'h1' is not empty when the victims have ended"),
        (Choice([], []), "it gives back 0 hosts, and 1 are asked for"),
        (Choice([], ["h2", "h2"]), "it gives back 1 hosts, and 1 are asked for"),
        (Choice(["2"], ["h2"]), "'2' does not run there"),
        (Choice(["1", "1"], ["h2"]), "a victim is named twice"),
        (Choice([], ["h9"]), "'h9' is not one of the hosts"),
        (None, "it should be a Choice, not None"),
    ],
)
def test_a_choice_of_a_wrong_form_is_told(choice: Any, told: str) -> None:
    choose = plugged.victims(lambda *_given: choice, 'victims "x" of acme 1')
    if told:
        assert refused(choose, HOSTS, CROWD, 1).startswith(f'victims "x" of acme 1: its choice: {told}')
    else:
        assert choose(HOSTS, CROWD, 1) == choice


@pytest.mark.parametrize("number", [3.0, -1, True, None, "3"])
def test_a_number_of_a_wrong_form_is_told(number: Any) -> None:
    given = Rule(lambda memory, *_: memory, lambda *_: (number, because(Code.BY_POLICY)), hurried=False)
    told = refused(plugged.rule(given, 'rule "x" of acme 1').wanted, None, 1, 1, WebPolicy())
    assert "wanted: the number of instances should be a whole number of 0 or more" in told


def instances(says: str, tmp_path: Path, **options: Any) -> list[int]:
    """How many instances a simulated department had under a rule that says so."""
    with packages(tmp_path / "site") as site:
        install(site, "told", RULE.replace("{number}", says), kind="scaling", target="RULE")
        policy = WebPolicy(rule="told", instances_max=9, options=options)
        config = CloudConfig(name="site", departments=(Department(name="shop", kind="web", web=policy),))
        load = WebInput(load=((0.0, 1.0),), end_s=60.0)
        simulation = Simulation(Scenario(label="x", config=config, hosts=9, web={"shop": load}, window_s=60.0))
        simulation.run()
        placed = [unit for unit in simulation.journal.custody.state.units.values() if unit.dept == "shop"]
        return [len(placed)]


def test_a_scaling_rule_decides_with_its_options(tmp_path: Path) -> None:
    assert instances(TOLD, tmp_path / "a", number=4) == [4]
    assert instances(TOLD, tmp_path / "b", number=7) == [7]
    assert instances(TOLD, tmp_path / "c", number=70) == [9]  # bounds are the core's


def test_a_scaling_rule_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r'rule "told" of acme-told 1\.2 in wanted: ZeroDivisionError'):
        instances("1 // 0", tmp_path)
