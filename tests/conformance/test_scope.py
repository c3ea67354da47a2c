"""The list of what is in scope is the server's own; every recorded method that was answered is in it."""

from __future__ import annotations

from phoenix.local.opennebula.calls import METHODS
from tests.conformance import scope, test_recorded_calls, test_state_action_matrix
from tests.conformance.harness import load


def test_the_document_says_what_the_server_has() -> None:
    assert scope.main(["--check"]) == 0


def test_every_recorded_case_is_replayed_and_none_is_excepted() -> None:
    assert [len(load(name)) for name in ("calls", "state-action-matrix", "events")] == [272, 451, 15]
    assert not test_recorded_calls.EXCEPTIONS
    assert not test_state_action_matrix.EXCEPTIONS


def test_every_method_that_a_real_one_answered_is_there() -> None:
    cases = [case for case in load("calls") if case["method"].startswith("one.") and not case.get("xmlrpc_fault")]
    assert {case["method"] for case in cases} <= set(METHODS)


def test_what_the_executor_calls_was_recorded() -> None:
    calls = scope.used()
    assert {"one.vm.allocate", "one.vm.deploy", "one.vm.action", "one.vmpool.infoset", "one.hostpool.info"} <= calls
    assert not {name for name in calls if not scope.recorded()[name]}
