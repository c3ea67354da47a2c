"""The executor's rules X1 to X8, broken one at a time: the test that is named for each must fail then, and for no other reason.

The same is tried with whole clouds and all orders (docs/faults.md); this is the quick proof that each rule has its test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from schemas import facts as f
from schemas.ids import parse_vm_tag
from services.domain.custody import effects
from services.executor.core import allocations as launches
from services.executor.core.allocations import Allocations
from services.executor.core.calls import Call, Deploy, Phase, Terminate
from services.executor.core.host_reconciler import HostReconciler
from services.executor.core.ledger import Ledger
from services.executor.core.lifecycle import ASKED, TOLD, Act, Aim, Told
from services.executor.core.vm_reconciler import VmReconciler
from tests.unit import test_executor_hosts as hosts
from tests.unit import test_executor_moves as moves
from tests.unit import test_executor_strays as strays
from tests.unit import test_executor_vms as vms
from tests.unit import test_executor_warm as warm

_calls, _termination, _want, _ended = VmReconciler.calls, VmReconciler._termination, Ledger._want, Ledger._ended
Broken = list[tuple[Any, Any, Any]]


class Rule(NamedTuple):
    """`broken`: (owner, attribute or key, what it is instead); `test`: what notices that."""

    name: str
    broken: Broken
    test: Callable[..., None]
    given: Mapping[str, Any] = MappingProxyType({})


def _deploys_unjournaled(executor: VmReconciler, now: float, limit: int) -> list[Call]:
    early = [
        Deploy(key, fact.vm, fact.host, 0)
        for key, fact in executor.allocations.allocated.items()
        if key not in executor.observed_vms
    ]
    return _calls(executor, now, limit) + early


def _wants_again(ledger: Ledger, fact: f.VmEnded, meta: Any) -> None:
    _ended(ledger, fact, meta)
    unit = ledger.custody.state.units[fact.unit]
    unit.allocated.clear()
    _want(ledger, unit)


def _never_hard(executor: VmReconciler, key: str, now: float) -> Terminate | None:
    made = _termination(executor, key, now)
    return None if made is None else Terminate(made.key, made.vm, False)


def _all_are_ours(tag: str) -> tuple[str, str, int, int]:
    found = parse_vm_tag(tag)
    return (strays.CLOUD, *found[1:]) if found is not None else (strays.CLOUD, "1", 1, 0)


def _resumes_unbound(executor: VmReconciler, now: float, limit: int) -> list[Call]:
    """As soon as its place is known."""
    saved = executor.custody.state.saved
    return _calls(executor, now, limit) + [
        Deploy(key, vm, want.host, 2, resumes=True)
        for key, want in executor.ledger.binding.items()
        for vm in saved
        if saved[vm].unit == want.unit
    ]


RULES = [
    Rule(
        "X1: deployed before it is journaled",
        [(VmReconciler, "calls", _deploys_unjournaled)],
        vms.test_x1_nothing_is_deployed_before_its_id_has_come_back_through_the_journal,
    ),
    Rule(
        "X1: what was allocated too late is kept",
        [(Allocations, "_journal", lambda *_: None)],
        vms.test_x1_what_was_allocated_for_an_attempt_that_is_dead_by_now_is_deleted_unjournaled,
    ),
    Rule(
        "X2: what is gone is replaced",
        [(Ledger, "_ended", _wants_again), (effects, "_break", lambda *_: None)],
        vms.test_x2_a_vm_that_is_gone_is_never_replaced,
    ),
    Rule(
        "X3: no room is needed",
        [(Ledger, "has_room", lambda *_: True)],
        vms.test_x3_deploy_waits_for_room_that_a_dead_attempts_vm_still_takes,
    ),
    Rule(
        "X3: the attempt before is not waited for",
        [(Ledger, "older_open", lambda *_: False)],
        vms.test_x3_deploy_waits_for_the_vm_of_the_attempt_before,
    ),
    Rule(
        "X3: a rank moves before the others are bound",
        [(Ledger, "older_open", lambda *_: False)],
        moves.test_x3_no_rank_moves_before_all_are_bound,
    ),
    Rule(
        "X3: a waiting VM takes no room",
        [(Ledger, "in_the_way", lambda *_: []), (Ledger, "has_room", lambda *_: True)],
        warm.test_parked_vms_make_room_for_a_job_that_does_not_fit_them_and_no_more_than_needed,
    ),
    Rule("X4: nothing is doomed", [(Ledger, "_review", lambda *_: None)], vms.test_x4_every_way_to_die_dooms_the_vm),
    Rule(
        "X4: a drain dooms nobody",
        [(TOLD, (Aim.RUN, Told.HOST_TAKEN), Aim.RUN), (Ledger, "_review", lambda *_: None)],
        vms.test_x4_a_host_that_is_waited_for_is_given_the_short_grace,
    ),
    Rule(
        "X4: never hard",
        [(VmReconciler, "_termination", _never_hard)],
        vms.test_x4_graceful_then_hard_at_kill_by_then_again,
    ),
    Rule(
        "X4: what will not die is waited for",
        [(VmReconciler, "_watch_stuck", lambda *_: None)],
        vms.test_x4_a_vm_that_will_not_die_makes_its_host_lost,
    ),
    Rule(
        "X4: a waiting VM outlives its host's department",
        [(TOLD, (Aim.PARK, Told.HOST_TAKEN), Aim.PARK)],
        warm.test_a_parked_vm_ends_hard_when_its_host_goes_and_the_host_is_cleared,
    ),
    Rule(
        "X4: it waits for ever",
        [(TOLD, (Aim.PARK, Told.TIME_UP), Aim.PARK)],
        warm.test_a_parked_vm_waits_for_idle_s_and_is_ended_hard,
    ),
    Rule(
        "X5: an open VM does not keep its host",
        [(Ledger, "is_left", lambda *_: True)],
        hosts.test_x5_a_host_is_not_even_looked_at_while_a_vm_journaled_for_it_is_open,
    ),
    Rule(
        "X5: cleared without a look",
        [(HostReconciler, "_clear", lambda _desk, host, _now: [f.HostCleared(host=host.name)])],
        hosts.test_x5_an_idle_host_is_looked_at_as_soon_as_it_is_released,
    ),
    Rule(
        "X5: a host is cleared while a VM leaves it",
        [(Ledger, "_leave", lambda *_: None)],
        moves.test_x5_a_host_that_a_vm_leaves_is_not_cleared_before_the_vm_was_seen_elsewhere,
    ),
    Rule(
        "X6: everybody's VMs are ours",
        [(launches, "parse_vm_tag", _all_are_ours)],
        strays.test_x6_what_is_not_ours_is_never_touched,
        {"tag": "other/1/1/0"},
    ),
    Rule(
        "X6: what is ours and unknown is left",
        [(Allocations, "_adopt_or_end", lambda *_: None)],
        strays.test_x6_what_is_ours_and_unknown_is_ended,
        {"phase": Phase.RUNNING, "tag": f"{strays.CLOUD}/1/1/0"},
    ),
    Rule(
        "X7: resumed before it is bound",
        [(VmReconciler, "calls", _resumes_unbound)],
        moves.test_x7_a_resumed_vm_is_bound_in_the_journal_before_it_is_deployed,
    ),
    Rule(
        "X7: what is suspended is begun anew",
        [(Allocations, "_resumed", lambda *_: None)],
        moves.test_x7_all_ranks_go_on_where_they_were_and_none_is_made_anew,
    ),
    Rule(
        "X7: saved is what was asked to be, not what is",
        [(ASKED, (Aim.SAVE, Phase.MOVING), Act.SAVED), (ASKED, (Aim.SAVE, Phase.RUNNING), Act.SAVED)],
        moves.test_x7_what_is_suspended_is_stopped_and_has_ended_when_it_is_saved,
    ),
    Rule(
        "X7: saving takes as long as it likes",
        [(TOLD, (Aim.SAVE, Told.TIME_UP), Aim.SAVE)],
        moves.test_x7_what_is_not_saved_at_kill_by_is_ended_hard_and_begins_anew,
    ),
    Rule(
        "X7: moving takes as long as it likes",
        [(VmReconciler, "_is_late", lambda *_: False)],
        moves.test_x7_what_has_not_moved_in_time_is_ended_hard,
    ),
    Rule(
        "X7: a resume in doubt is forgotten",
        [(VmReconciler, "_saved", lambda executor, track, _now: executor.ended.update({track.key: f.SUSPENDED}))],
        moves.test_x7_a_resume_in_doubt_is_repeated_but_its_vm_is_not_saved_again,
    ),
    Rule(
        "X7: wherever it runs, it has moved",
        [(VmReconciler, "_place", lambda _tracks, _track, sight: sight.phase)],
        moves.test_x7_a_migration_that_comes_back_is_not_tried_again,
    ),
    Rule(
        "X7: a saved VM that runs is left alone",
        [(Allocations, "seen_strange", lambda *_: None)],
        moves.test_x7_a_saved_vm_that_runs_though_nobody_asked_is_ended,
    ),
    Rule(
        "X8: nobody waits",
        [(hosts, "wait_out_s", lambda *_, **__: 0.0)],
        hosts.test_x8_a_new_leader_waits_until_the_one_before_can_call_no_more,
        {"predecessor": hosts.Leader(epoch=1, instance="a", since=0.0), "reaped": (), "wait_s": 3.0},
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_broken_is_noticed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rule.test(**rule.given)
    for owner, name, instead in rule.broken:
        if isinstance(owner, dict):
            monkeypatch.setitem(owner, name, instead)
        else:
            monkeypatch.setattr(owner, name, instead)
    with pytest.raises((AssertionError, ValueError, IndexError, KeyError)) as noticed:
        rule.test(**rule.given)
    assert not isinstance(noticed.value, NameError | TypeError | AttributeError)


def test_every_rule_is_broken_once() -> None:
    assert {rule.name.split(":")[0] for rule in RULES} == {f"X{number}" for number in range(1, 9)}
