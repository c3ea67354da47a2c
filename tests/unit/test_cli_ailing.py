"""A scheduler that does not answer is named where people look for their jobs."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from phoenix.cli import health_notes
from phoenix.cli.cloud import Cloud
from phoenix.client.where import Site
from phoenix.local.stack_layout import layout
from services.domain.exits import Exit


def process(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "health": "ok", "restarts": 0, "exit_code": None, "log": f"/d/log/{name}.log"} | fields


def test_a_scheduler_that_ends_again_and_again_is_told_with_its_cause_and_its_log() -> None:
    dead = process("scheduler.hpc", health="restarting", restarts=3, exit_code=int(Exit.POLICY))
    (line,) = health_notes.lines([process("monitor", health="failing"), dead, process("scheduler.lab")])
    assert (
        "the scheduler of hpc does not answer (restarting, 3 restarts, it ended with code 7: a policy is missing"
        in line
    )
    assert "Why is at the end of /d/log/scheduler.hpc.log" in line


def test_the_supervisor_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(layout(tmp_path).socket))
        door.listen()

        def answer() -> None:
            connection, _ = door.accept()
            with connection, connection.makefile("rwb") as stream:
                assert orjson.loads(stream.readline()) == {"op": "status"}
                stream.write(
                    orjson.dumps({"processes": [process("scheduler.hpc", health="failing")], "ok": True}) + b"\n"
                )

        supervisor = threading.Thread(target=answer)
        supervisor.start()
        where = Cloud(Site("http://127.0.0.1:1", data=tmp_path), chosen="")
        health_notes.tell(where)
        supervisor.join(5)
    assert "the scheduler of hpc does not answer (failing)" in capsys.readouterr().err
    health_notes.tell(where)  # and nobody answers: nothing is said
    assert capsys.readouterr() == ("", "")


def test_nothing_is_said_of_those_that_are_well_or_were_not_asked_about() -> None:
    assert health_notes.lines([process("scheduler.hpc", restarts=2, exit_code=1)]) == []
    slow = process("scheduler.hpc", health="starting")
    assert health_notes.lines([slow], "lab") == []
    (line,) = health_notes.lines([slow], "hpc")
    assert "the scheduler of hpc does not answer (starting); until" in line
