"""What events are worth: hints, trust and its end; and the topics that the real OpenNebula was recorded with."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.core.calls import Phase
from services.executor.edge.event_hints import AGAIN_S, GRACE_S, LOOKS_MAX, PROOF_MIN, SETTLED, TOLD_MAX, Hearsay
from services.executor.edge.events import Told, read_topic, topics
from tests.conformance.harness import load


def nobody(_vm: int) -> bool:
    return False


def proven() -> Hearsay:
    hearsay = Hearsay()
    hearsay.connection(True)
    for vm in range(PROOF_MIN):
        hearsay.told(vm, Phase.RUNNING)
        hearsay.changed(vm, Phase.RUNNING, 0.0)
        hearsay.looked(vm, Phase.RUNNING, 0.0)
    assert hearsay.trusted
    return hearsay


# ----------------------------------------------------------------------------------------------------------------- topics


def test_every_recorded_topic_is_read_or_known_to_be_none_of_ours() -> None:
    read = {}
    for case in load("events"):
        for event in case["events"]:
            read[event["topic"]] = read_topic(event["topic"].encode())
    assert read["EVENT STATE VM/ACTIVE/RUNNING/0 "] == Told(0, Phase.RUNNING)
    assert read["EVENT STATE VM/ACTIVE/SHUTDOWN_POWEROFF/0 "] == Told(0, Phase.MOVING)
    assert read["EVENT STATE VM/POWEROFF/LCM_INIT/0 "] == Told(0, Phase.OFF)
    assert read["EVENT STATE VM/DONE/LCM_INIT/0 "] == Told(0, Phase.OVER)
    assert read["EVENT STATE HOST/DISABLED//1 "] == Told(1, None)
    ours = [topic for topic, told in read.items() if told is not None]
    assert all(re.match("EVENT STATE (VM|HOST)/", topic) for topic in ours)
    assert len(ours) == len([t for t in read if re.match("EVENT STATE (VM|HOST)/", t)]) == 18


def test_of_a_recorded_launch_and_end_only_what_concerns_us_is_sent() -> None:
    prefixes = tuple(topics())
    sent = [
        event["topic"]
        for case in load("events")
        for event in case["events"]
        if event["topic"].encode().startswith(prefixes)
        and event["topic"].endswith("/0 ")
        and "IMAGE" not in event["topic"]
    ]
    assert sorted(sent) == [f"EVENT STATE VM/{s}/0 " for s in ("ACTIVE/RUNNING", "DONE/LCM_INIT", "POWEROFF/LCM_INIT")]


def test_of_no_state_in_which_something_follows_the_events_are_left_out() -> None:
    prefixes = tuple(topics())
    for state in ("STOPPED", "SUSPENDED", "POWEROFF", "UNDEPLOYED", "DONE", "PENDING", "FAILED", "CLONING_FAILURE"):
        assert f"EVENT STATE VM/{state}/LCM_INIT/7 ".encode().startswith(prefixes)
    for lcm in (
        "RUNNING",
        "UNKNOWN",
        "BOOT_FAILURE",
        "BOOT_STOPPED_FAILURE",
        "PROLOG_RESUME_FAILURE",
        "EPILOG_FAILURE",
    ):
        assert f"EVENT STATE VM/ACTIVE/{lcm}/7 ".encode().startswith(prefixes)
    for lcm in ("LCM_INIT", "PROLOG", "BOOT", "SAVE_STOP", "EPILOG", "EPILOG_STOP", "SHUTDOWN", "MIGRATE"):
        assert not f"EVENT STATE VM/ACTIVE/{lcm}/7 ".encode().startswith(prefixes)
    assert not b"EVENT STATE VM/HOLD/LCM_INIT/7 ".startswith(prefixes)


@given(st.one_of(st.binary(max_size=200), st.from_regex(rb"EVENT STATE (VM|HOST|IMAGE)/[A-Z_]*/[A-Z_]*/[0-9]* ?")))
def test_whatever_comes_is_read_or_refused(topic: bytes) -> None:
    told = read_topic(topic)
    if told is not None:
        assert topic.startswith((b"EVENT STATE VM/", b"EVENT STATE HOST/"))
        assert 0 <= told.id < 10**18


# ------------------------------------------------------------------------------------------------------------------ hints


def test_a_hint_stays_until_a_look_shows_what_was_told() -> None:
    hearsay = Hearsay()
    hearsay.told(7, Phase.RUNNING)
    assert hearsay.due(1.0, nobody, 10) == [7]
    hearsay.looked(7, Phase.MOVING, 1.0)  # oned's database is behind its events
    assert hearsay.due(1.0, nobody, 10) == []
    assert hearsay.next_due(nobody) == 1.0 + AGAIN_S
    hearsay.looked(7, Phase.RUNNING, 1.0 + AGAIN_S)
    assert hearsay.next_due(nobody) is None


def test_a_hint_that_no_look_confirms_is_given_up() -> None:
    hearsay = Hearsay()
    hearsay.told(7, Phase.OVER)  # somebody's invention
    for _ in range(LOOKS_MAX):
        hearsay.looked(7, Phase.RUNNING, 1.0)
    assert not hearsay.hints


def test_a_hint_waits_for_the_end_of_a_call_about_its_vm() -> None:
    hearsay = Hearsay()
    hearsay.told(7, Phase.OVER)
    assert hearsay.due(1.0, lambda vm: vm == 7, 10) == []
    assert hearsay.next_due(lambda vm: vm == 7) is None
    assert hearsay.due(1.0, nobody, 10) == [7]


def test_no_more_hints_are_looked_at_than_one_poll_holds() -> None:
    hearsay = Hearsay()
    for vm in range(20):
        hearsay.told(vm, Phase.RUNNING)
    assert hearsay.due(1.0, nobody, 8) == list(range(8))


# ------------------------------------------------------------------------------------------------------------------ trust


def test_trust_needs_proof_and_a_connection() -> None:
    hearsay = Hearsay()
    for vm in range(PROOF_MIN):
        hearsay.told(vm, Phase.RUNNING)
        hearsay.changed(vm, Phase.RUNNING, 0.0)
    assert not hearsay.trusted
    assert proven().trusted


def test_an_event_may_come_a_little_after_the_look() -> None:
    hearsay = proven()
    hearsay.changed(9, Phase.OVER, 5.0)
    hearsay.told(9, Phase.OVER)
    assert not hearsay.overdue(5.0 + GRACE_S)
    assert hearsay.trusted


def test_one_change_that_was_not_told_ends_the_trust() -> None:
    hearsay = proven()
    hearsay.changed(9, Phase.OVER, 5.0)
    assert hearsay.owed
    assert not hearsay.overdue(5.0)
    assert hearsay.overdue(5.0 + GRACE_S)
    assert not hearsay.trusted
    assert hearsay.missed == 1
    assert not hearsay.overdue(99.0)  # told once


def test_another_state_told_does_not_stand_for_the_one_seen() -> None:
    hearsay = proven()
    hearsay.told(9, Phase.RUNNING)
    hearsay.changed(9, Phase.OVER, 5.0)
    assert hearsay.overdue(5.0 + GRACE_S)


def test_an_old_event_does_not_prove_a_later_change() -> None:
    hearsay = proven()
    hearsay.told(9, Phase.RUNNING)
    hearsay.looked(9, Phase.RUNNING, 4.0)  # it was known to run already
    hearsay.changed(9, Phase.RUNNING, 5.0)
    assert hearsay.overdue(5.0 + GRACE_S)


def test_a_connection_that_breaks_off_ends_the_trust() -> None:
    hearsay = proven()
    hearsay.connection(False)
    assert not hearsay.trusted
    hearsay.connection(True)
    assert not hearsay.trusted


def test_what_was_told_is_bounded() -> None:
    hearsay = proven()
    for vm in range(TOLD_MAX + 10):
        hearsay.told(vm, Phase.RUNNING)
    assert len(hearsay._told) == TOLD_MAX


VMS, PHASES = st.integers(0, 3), st.sampled_from(SETTLED)
STEPS = st.lists(
    st.tuples(st.sampled_from(["told", "changed", "looked", "late", "off", "on"]), VMS, PHASES), max_size=40
)


@pytest.mark.parametrize("connected", [True, False])
@given(STEPS)
def test_trust_is_never_older_than_the_last_change_that_nobody_told(
    connected: bool, steps: list[tuple[str, int, Phase]]
) -> None:
    """H1: after a change of which nobody told by GRACE_S, PROOF_MIN further changes must be told before polls are rarer."""
    hearsay, now, proofs, owed = Hearsay(), 0.0, 0, {}
    hearsay.connection(connected)
    for kind, vm, phase in steps:
        now += 0.01
        if kind in ("off", "on"):
            hearsay.connection(kind == "on")
            proofs, owed = 0, {}
        elif kind == "told":
            hearsay.told(vm, phase)
            proofs += 1  # at most: it proves one change
            owed.pop((vm, phase), None)
        elif kind == "changed":
            told = (vm, phase) in hearsay._told
            hearsay.changed(vm, phase, now)
            if not told and hearsay.connected:
                owed.setdefault((vm, phase), now)
        elif kind == "looked":
            hearsay.looked(vm, phase, now)
        else:
            now += GRACE_S
            assert hearsay.overdue(now) == bool(owed)
            if owed:
                proofs, owed = 0, {}
                hearsay._told.clear()  # what was told before the loss may prove a change after it: not counted here
        assert len(hearsay.hints) <= 4
        assert not hearsay.trusted or (hearsay.connected and proofs >= PROOF_MIN)
