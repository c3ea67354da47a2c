"""The exhaustive model, in worlds small enough for the test command.  `make model` runs all of them."""

from __future__ import annotations

import pytest

from tests.model import custody_model_boots as boots
from tests.model import custody_model_bound as bound
from tests.model import custody_model_cordon as cordon
from tests.model import custody_model_departments as departments
from tests.model import custody_model_orders as orders
from tests.model.custody_model import CONFIGS, MUTANTS, Model, explore

SECONDS_MAX = 60.0


@pytest.mark.parametrize(
    "name", ["2-lost-gang", "1-hours", "2-traps", pytest.param("2-stale-leader", marks=pytest.mark.long)]
)
def test_every_interleaving_is_safe_and_live(name: str) -> None:
    result = explore(Model(**CONFIGS[name]), trace=False, seconds=SECONDS_MAX)
    print(f"{name}: {result['states']} states, {result['edges']} edges")
    assert result["result"] == "ok"


@pytest.mark.parametrize(
    "name",
    [
        "void_place_host",
        "void_release",
        "latch",
        "grant_after_clear",
        "clear_when_empty",
        "void_terminated",
        "journal_before_deploy",
    ],
)
def test_a_rule_taken_out_is_found(name: str) -> None:
    result = explore(Model(**MUTANTS[name], off=(name,)), trace=False, seconds=SECONDS_MAX)
    assert str(result["result"]).startswith(("UNSAFE", "NOT LIVE")), f"the model did not miss rule {name}"


def test_without_sharing_idle_hosts_a_wide_job_waits_for_ever() -> None:
    result = explore(Model(**CONFIGS["2-two-batch"], share=False), trace=False, seconds=SECONDS_MAX)
    assert str(result["result"]).startswith("NOT LIVE")


@pytest.mark.long
@pytest.mark.parametrize("name", ["b1-suspend", "b1-warm-lost", "b2-move"])
def test_vms_that_go_on_are_safe_and_live(name: str) -> None:
    result = explore(bound.Bound(**bound.CONFIGS[name]), trace=False, seconds=SECONDS_MAX)
    print(f"{name}: {result['states']} states, {result['edges']} edges")
    assert result["result"] == "ok"


@pytest.mark.parametrize("name", ["bind_first", "save_gives_up", "leaves_a_host", "warm_room", "one_leader"])
def test_a_rule_about_vms_that_go_on_is_found(name: str) -> None:
    result = explore(bound.Bound(**bound.MUTANTS[name], off=(name,)), trace=False, seconds=SECONDS_MAX)
    assert str(result["result"]).startswith(("UNSAFE", "NOT LIVE")), f"the model did not miss rule {name}"


@pytest.mark.long
def test_hosts_that_are_set_apart_are_safe_and_come_back() -> None:
    result = explore(cordon.Cordon(**cordon.CONFIGS["c1-drain"]), trace=False, seconds=SECONDS_MAX)
    print(f"c1-drain: {result['states']} states, {result['edges']} edges")
    assert result["result"] == "ok"


@pytest.mark.parametrize("name", list(cordon.MUTANTS))
def test_a_rule_about_hosts_that_are_set_apart_is_found(name: str) -> None:
    result = explore(cordon.Cordon(**cordon.MUTANTS[name], off=(name,)), trace=False, seconds=SECONDS_MAX)
    assert str(result["result"]).startswith(("UNSAFE", "NOT LIVE")), f"the model did not miss rule {name}"


@pytest.mark.parametrize("name", ["d1-again", "d1-thrice"])
def test_departments_that_come_and_go_are_open_while_they_are_configured(name: str) -> None:
    result = explore(departments.Departments(**departments.CONFIGS[name]), trace=False, seconds=SECONDS_MAX)
    print(f"{name}: {result['states']} states, {result['edges']} edges")
    assert result["result"] == "ok"


@pytest.mark.parametrize("name", list(departments.MUTANTS))
def test_a_rule_about_departments_that_come_and_go_is_found(name: str) -> None:
    made = departments.Departments(**departments.MUTANTS[name], off=(name,))
    result = explore(made, trace=False, seconds=SECONDS_MAX)
    assert str(result["result"]).startswith(("UNSAFE", "NOT LIVE")), f"the model did not miss rule {name}"


@pytest.mark.parametrize(
    "name",
    [
        "o1-slow",
        "o2-slow",
        "o2-restored",
        "o1-restored-others",
        pytest.param("o2-restored-slow", marks=pytest.mark.long),
    ],
)
def test_orders_to_an_opennebula_that_is_slow_or_restored_are_safe_and_arrive(name: str) -> None:
    result = explore(orders.Orders(**orders.CONFIGS[name]), trace=False, seconds=SECONDS_MAX)
    print(f"{name}: {result['states']} states, {result['edges']} edges")
    assert result["result"] == "ok"


@pytest.mark.parametrize("name", list(orders.MUTANTS))
def test_a_rule_about_orders_is_found(name: str) -> None:
    result = explore(orders.Orders(**orders.MUTANTS[name], off=(name,)), trace=False, seconds=SECONDS_MAX)
    assert str(result["result"]).startswith(("UNSAFE", "NOT LIVE")), f"the model did not miss rule {name}"


@pytest.mark.parametrize("name", list(boots.CONFIGS))
def test_an_attempt_runs_in_one_boot_of_its_vm_and_the_job_gets_done(name: str) -> None:
    result = boots.explore(boots.Boots(**boots.CONFIGS[name]))
    assert (result["result"], result["done"] > 0) == ("ok", True)


@pytest.mark.parametrize("name", boots.MUTANTS)
def test_a_rule_about_boots_is_found(name: str) -> None:
    result = boots.explore(boots.Boots(off=(name,)))
    assert str(result["result"]).startswith(("UNSAFE", "NOT LIVE")), f"the model did not miss rule {name}"
