"""Hung is not dead: who falls silent is found, and a machine that stood still is no evidence against anybody."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from phoenix.local.supervisor_watch import BEGIN_S, SILENT_S, TICK_MAX_S, TICK_S, Ear, Silence
from services.runtime.service import Service
from services.runtime.watchdog import ADDRESS, PERIOD, Heart
from tests.support.toy import ToyCore, toy_config
from tests.support.until import until

ONE, OTHER = 11, 12


def pass_time(silence: Silence, now: float, seconds: float, *beating: int) -> float:
    """The supervisor looks each second; `beating` say that they live as often."""
    for _ in range(int(seconds / TICK_S)):
        now += TICK_S
        for pid in beating:
            silence.heard(pid)
        silence.look(now)
    return now


def test_who_falls_silent_is_found_and_nobody_else() -> None:
    silence = Silence(0.0)
    now = pass_time(silence, 0.0, 5, ONE, OTHER)
    now = pass_time(silence, now, SILENT_S - 1, OTHER)
    assert silence.silent([ONE, OTHER]) == {}
    pass_time(silence, now, 2, OTHER)
    assert silence.silent([ONE, OTHER]) == {ONE: "does not answer for 20 s"}


def test_who_does_not_begin_in_time_is_found_as_well() -> None:
    silence = Silence(0.0, BEGIN_S)
    assert silence.silent([ONE]) == {}
    now = pass_time(silence, 0.0, BEGIN_S - 1, OTHER)
    assert silence.silent([ONE, OTHER]) == {}
    now = pass_time(silence, now, 2, OTHER)
    assert silence.silent([ONE, OTHER]) == {ONE: "has not begun within 60 s"}
    assert silence.silent([OTHER]) == {}
    assert silence.silent([ONE, OTHER]) == {}  # another process with that id has its own time


def test_who_may_take_any_time_to_begin_is_not_judged_before_it_has() -> None:
    """nats-server, which reads its store."""
    silence = Silence(0.0)
    assert silence.silent([ONE]) == {}
    pass_time(silence, 0.0, 100 * BEGIN_S)
    assert silence.silent([ONE]) == {}


async def test_a_service_beats_before_its_broker_has_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ear = Ear(tmp_path)
    for name, value in ear.environment.items():
        monkeypatch.setenv(name, value)
    silent = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    service = Service("admission", ToyCore, toy_config(f"nats://127.0.0.1:{port}", tmp_path), instance="admission-1")
    living = asyncio.create_task(service.run())
    try:
        assert await until(ear.hear, "the beat") == [os.getpid()]
        assert not living.done()
    finally:
        living.cancel()
        await asyncio.wait([living])
        silent.close()
        ear.close()


def test_a_machine_that_stood_still_is_no_evidence() -> None:
    """Suspended for an hour: everybody, the supervisor too, was stopped."""
    silence = Silence(0.0)
    now = pass_time(silence, 0.0, 5, ONE)
    silence.look(now + 3600.0)
    assert silence.silent([ONE]) == {}
    now = pass_time(silence, now + 3600.0, SILENT_S - TICK_MAX_S - 2 * TICK_S)
    assert silence.silent([ONE]) == {}
    pass_time(silence, now, 4)
    assert silence.silent([ONE]) == {ONE: "does not answer for 20 s"}  # it has had its time after that


def test_a_supervisor_that_is_starved_counts_less() -> None:
    silence, now = Silence(0.0), 0.0
    silence.heard(ONE)
    for _ in range(int(SILENT_S / TICK_MAX_S)):
        now += 10 * TICK_MAX_S
        silence.look(now)
    assert silence.silent([ONE]) == {}


def test_a_process_id_that_comes_again_begins_anew() -> None:
    silence = Silence(0.0)
    now = pass_time(silence, 0.0, 5, ONE)
    assert silence.silent([]) == {}
    pass_time(silence, now, 2 * SILENT_S)
    assert silence.silent([ONE]) == {}


async def test_a_beat_arrives_with_the_senders_process_id_also_in_a_deep_directory(tmp_path: Path) -> None:
    run = tmp_path / ("d" * 100) / "run"
    run.mkdir(parents=True)
    ear = Ear(run)
    environment = dict(ear.environment)
    heart = Heart(environment)
    assert ADDRESS not in environment
    assert PERIOD not in environment
    assert heart.interval_s == SILENT_S / 2
    beat = asyncio.create_task(heart.beat())
    try:
        assert await until(ear.hear, "the beat") == [os.getpid()]
        heart.say("READY=1")
        assert ear.hear() == []  # HAProxy says that, and never anything else
    finally:
        beat.cancel()
        ear.close()
    assert list(run.iterdir()) == []


async def test_a_beat_that_finds_the_socket_full_is_said_again(tmp_path: Path) -> None:
    ear = Ear(tmp_path)
    heart = Heart(dict(ear.environment))
    while heart.say("STATUS=full"):
        continue
    beat = asyncio.create_task(heart.beat())
    try:
        await asyncio.sleep(0)
        assert ear.hear() == []
        assert await until(ear.hear, "the beat") == [os.getpid()]
    finally:
        beat.cancel()
        ear.close()


def test_who_is_not_asked_is_told_nothing() -> None:
    heart = Heart({})
    assert heart.say("READY=1")
    asyncio.run(heart.beat())  # returns at once


def test_a_watchdog_that_is_meant_for_another_process_is_none() -> None:
    assert Heart({PERIOD: "2000000", "WATCHDOG_PID": "1"}).interval_s == 0
    assert Heart({PERIOD: "2000000", "WATCHDOG_PID": str(os.getpid())}).interval_s == 1
