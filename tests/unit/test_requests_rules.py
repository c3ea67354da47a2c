"""What types alone cannot say of a request: each rule from both sides, and the field that a refusal names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import requests as r
from schemas.releases import HEALTH_PATH_MAX, IMAGE_MAX
from schemas.times import exact


def refused(kind: str, payload: dict[str, Any]) -> str | None:
    """The field that is named, or None if it fits."""
    try:
        r.decode(kind, msgspec.json.encode(payload))
    except r.Malformed as wrong:
        return wrong.field
    return None


SCRIPT: dict[str, Any] = {"script": "x"}


def inputs(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "data": ""} for name in names]


JOBS: list[tuple[dict[str, Any], str | None]] = [
    ({"argv": ["a"]}, None),
    ({**SCRIPT, "argv": ["a"]}, None),
    ({"script": "", "argv": ["a"]}, None),
    *(({**SCRIPT, field: "a\tb"}, field) for field in ("name", "request", "service", "quality")),
    *(({**SCRIPT, field: "a\u200bb"}, field) for field in ("name", "request", "service", "quality")),
    *(({**SCRIPT, field: "a\tb"}, field) for field in ("directory", "stdout", "stderr", "stdin")),
    *(({**SCRIPT, field: "a\u200bb c"}, None) for field in ("directory", "stdout", "stderr", "stdin")),
    ({**SCRIPT, "directory": "a\x7f"}, "directory"),
    ({**SCRIPT, "memory_mb": 1}, None),
    ({**SCRIPT, "memory_per_core_mb": 1}, None),
    ({**SCRIPT, "memory_mb": 1, "memory_per_core_mb": 1}, "memory_per_core_mb"),
    ({**SCRIPT, "inputs": inputs("a", "b/c")}, None),
    ({**SCRIPT, "inputs": inputs("a", "b", "a")}, "inputs"),
    ({**SCRIPT, "inputs": inputs("a", "b/../c")}, "inputs[1].name"),
    ({**SCRIPT, "inputs": inputs("a\n")}, "inputs[0].name"),
    ({**SCRIPT, "inputs": inputs("a..b", "...", "a//b")}, None),
    ({**SCRIPT, "keep": ["*.log", "out/*"]}, None),
    ({**SCRIPT, "keep": ["*.log", "/out"]}, "keep[1]"),
    ({**SCRIPT, "argv": ["", "a b\n"]}, None),
    ({**SCRIPT, "argv": ["a", "b\0"]}, "argv"),
    ({**SCRIPT, "environment": {"A b": "=\n"}}, None),
    ({**SCRIPT, "environment": {"A": "x", "B=": "x"}}, "environment"),
    ({**SCRIPT, "environment": {"A": "x", "B\0": "x"}}, "environment"),
    ({**SCRIPT, "environment": {"A": "x", "B": "\0"}}, "environment"),
]


@pytest.mark.parametrize(("payload", "field"), JOBS)
def test_jobs(payload: dict[str, Any], field: str | None) -> None:
    assert refused("job.submit", payload) == field
    assert refused("job.whatif", payload) == field


def test_what_a_program_is_started_with_fits_into_what_the_kernel_takes() -> None:
    """In bytes, of arguments and environment together: names and values."""
    most = r.EXEC_MAX_BYTES
    assert r.problem_of_exec((), {}) is None
    for argv, environment in (
        (["a" * most], {}),
        (["a", "b" * (most - 1)], {}),
        (["é" * (most // 2)], {}),
        ([], {"A": "b" * (most - 1)}),
        ([], {"A": "b", "C" * (most - 2): ""}),
        (["a"], {"é": "b" * (most - 3)}),
    ):
        assert r.problem_of_exec(argv, environment) is None
        problem = r.problem_of_exec([*argv, "x"], environment)
        assert problem is not None
        assert problem[0] == "environment"
        assert f"are {most + 1} bytes; at most {most}" in problem[1]


LEASE: dict[str, Any] = {"duration_s": 60}
AT, BY = {"start_at": exact(100)}, {"deadline_at": exact(160)}
LEASES: list[tuple[dict[str, Any], str | None]] = [
    ({"kind": "advance", **AT}, None),
    ({"kind": "advance"}, "start_at"),
    ({"kind": "advance", "start_at": exact(0)}, None),
    ({"kind": "advance", **AT, **BY}, "deadline_at"),
    ({"kind": "deadline", **BY}, None),
    ({"kind": "deadline", **AT, **BY}, None),  # just as long as it lasts
    ({"kind": "deadline", **AT, "deadline_at": exact(159.5)}, "deadline_at"),
    ({"kind": "deadline", **AT}, "deadline_at"),
    ({"kind": "deadline"}, "deadline_at"),
    *(({"kind": kind}, None) for kind in ("immediate", "best-effort")),
    *(({"kind": kind, **AT}, "start_at") for kind in ("immediate", "best-effort")),
    *(({"kind": kind, **BY}, "deadline_at") for kind in ("immediate", "best-effort")),
    ({"kind": "immediate", "name": "a\tb"}, "name"),  # what holds of a job
    ({"kind": "immediate", "inputs": inputs("../a")}, "inputs[0].name"),
]


@pytest.mark.parametrize(("asked", "field"), LEASES)
def test_leases(asked: dict[str, Any], field: str | None) -> None:
    assert refused("lease.create", {**LEASE, **asked}) == field


def test_a_lease_is_a_job_of_its_size_and_time() -> None:
    given: dict[str, Any] = {
        "request": "r", "name": "n", "environment": {"A": "b"}, "memory_mb": 7, "exclusive": True, "directory": "d",
        "stdout": "o", "stderr": "e", "inputs": (r.InputFile(name="i", data=b""),), "keep": ("k",), "argv": ("a",),
    }  # fmt: skip
    lease = r.LeaseCreate(kind="immediate", duration_s=60.0, nodes=3, cores=5, **given)
    assert lease.job("held") == r.JobSubmit(tasks=3, nodes=3, cpus_per_task=5, walltime_s=60.0, **given)


@pytest.mark.parametrize(
    ("script", "argv", "runs"),
    [(None, (), "held"), ("", (), "held"), ("mine", (), "mine"), (None, ("a",), None), ("mine", ("a",), "mine")],
)
def test_a_lease_that_brings_no_program_is_held(script: str | None, argv: tuple[str, ...], runs: str | None) -> None:
    lease = r.LeaseCreate(kind="immediate", duration_s=60.0, script=script, argv=argv)
    assert lease.job("held").script == runs


OTHERS: list[tuple[str, dict[str, Any], str | None]] = [
    ("lease.extend", {"lease": "1", "by_s": 1}, None),
    ("lease.extend", {"lease": "1", "until_at": exact(0)}, None),
    ("lease.extend", {"lease": "1"}, "until_at"),
    ("lease.extend", {"lease": "1", "by_s": 1, "until_at": exact(1)}, "until_at"),
    ("host.cordon", {"host": "h", "reason": "a fan"}, None),
    ("host.drain", {"host": "h", "reason": "a\tb"}, "reason"),
    ("host.drain", {"host": "h", "deadline_s": 0}, None),
    ("instance.report", {"unit": "web.1", "attempt": 1, "state": "unready", "why": "HTTP 500"}, None),
    ("instance.report", {"unit": "web.1", "attempt": 1, "state": "unready", "why": "a\u202eb"}, "why"),
    ("scale.set", {"exact": 0}, None),
    ("scale.set", {"minimum": 0}, None),
    ("scale.set", {"auto": True}, None),
    ("scale.set", {"auto": True, "minimum": 0}, "minimum"),
    ("scale.set", {"auto": True, "minimum": 1, "exact": 1}, "minimum"),
    ("scale.set", {"minimum": 1, "exact": 1}, "exact"),
    ("release.deploy", {}, None),
    ("release.deploy", {"configured": True}, None),
    ("release.deploy", {"undo": True}, None),
    ("release.deploy", {"configured": True, "undo": True}, "undo"),
    ("release.deploy", {"request": "a\tb"}, "request"),
    ("release.deploy", {"image": ""}, None),
    ("release.deploy", {"image": "a" * IMAGE_MAX}, None),
    ("release.deploy", {"image": "a" * (IMAGE_MAX + 1)}, "image"),
    ("release.deploy", {"image": 'a"b'}, "image"),
    ("release.deploy", {"image": "a\u200bb"}, "image"),
    ("release.deploy", {"health_path": "/a?b=c"}, None),
    ("release.deploy", {"health_path": "/" + "a" * (HEALTH_PATH_MAX - 1)}, None),
    ("release.deploy", {"health_path": "/" + "a" * HEALTH_PATH_MAX}, "health_path"),
    ("release.deploy", {"health_path": ""}, "health_path"),
    ("release.deploy", {"health_path": "/a;b"}, "health_path"),
    ("release.deploy", {"command": []}, None),
    ("release.deploy", {"command": ["serve", "-v"]}, None),
    ("release.deploy", {"command": ["a", "b\0"]}, "command"),
    ("release.deploy", {"environment": {"A": "b", "C": None}}, None),
    ("release.deploy", {"environment": {"A": "b", "C": "\0"}}, "environment"),
    ("release.deploy", {"environment": {"A": "b"}, "secrets": {"A": "s"}}, "secrets"),
    ("release.deploy", {"environment": {"A": None}, "secrets": {"A": "s"}}, None),
    ("release.deploy", {"environment": {"A": "b"}, "secrets": {"A": None, "B": "s"}}, None),
    ("instance.list", {}, None),
]


@pytest.mark.parametrize(("kind", "payload", "field"), OTHERS)
def test_the_others(kind: str, payload: dict[str, Any], field: str | None) -> None:
    assert refused(kind, payload) == field


def test_the_secret_that_is_given_twice_is_named() -> None:
    twice = {"environment": {"A": "b", "B": "c"}, "secrets": {"C": "s", "B": "s"}}
    with pytest.raises(r.Malformed, match="B is given in environment and in secrets"):
        r.decode("release.deploy", msgspec.json.encode(twice))


@pytest.mark.parametrize("name", ["a", "a/b", ".a", "a..b", "..a/b", "a/."])
def test_a_relative_path_stays_below_where_it_starts(name: str) -> None:
    assert r.is_relative(name)


@pytest.mark.parametrize("name", ["", "/", "/a", "..", "../a", "a/..", "a/../b", "a\0", "a\nb"])
def test_what_is_none(name: str) -> None:
    assert not r.is_relative(name)


def test_a_payload_that_begins_with_a_map_of_messagepack_is_no_json() -> None:
    assert [first for first in range(256) if not r.is_json(bytes([first]))] == [*range(0x80, 0x90), 0xDE, 0xDF]


def test_the_content_type_is_believed_and_an_empty_payload_is_an_empty_request() -> None:
    assert r.is_json(b"\x80", "text/plain")
    assert not r.is_json(b"", "application/x-msgpack")
    for as_json in (True, False):
        assert r.decode("instance.list", b"", as_json) == r.InstanceList()
        assert r.encode(r.InstanceList(), as_json) == (b"{}" if as_json else b"\x80")
    with pytest.raises(KeyError):
        r.decode("job.paint", b"")


def test_bytes_that_are_no_message_are_told_by_their_format() -> None:
    for as_json, form in ((True, "JSON"), (False, "MessagePack")):
        with pytest.raises(r.Malformed, match=f"not one {form} object"):
            r.decode("instance.list", b"\xc1", as_json)
