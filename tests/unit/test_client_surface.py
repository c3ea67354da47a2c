"""What the client library offers: the same calls in both forms, the fields of the wire, few imports, a page with all of it."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

import phoenix.client
from phoenix.client import Client, Invalid, SyncClient, answers, options, states, times
from phoenix.client.client import JOBS_MAX
from phoenix.client.errors import Unreadable
from schemas import events, signals
from schemas import requests as r
from schemas.answers import explained, hosts, jobs
from schemas.reads import STATES
from tests.unit.frame_source import ROOT, sources, tree

THIRD_PARTY = {"aiohttp", "msgspec"}
PAGE = ROOT / "docs" / "reference" / "client.md"
NAMED_OTHERWISE = {
    "request",
    "after",
    "kind",
    "duration_s",
    "start_at",
    "deadline_at",
}  # arguments of the calls themselves


def calls(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        (options.JobOptions, r.JobSubmit),
        (options.LeaseOptions, r.LeaseCreate),
        (options.ReleaseOptions, r.ReleaseDeploy),
        (options.Signal, r.JobSignal),
    ],
)
def test_options_are_the_fields_of_the_request(offered: type, asked: type[msgspec.Struct]) -> None:
    assert set(typing.get_type_hints(offered)) == fields(asked) - (NAMED_OTHERWISE & fields(asked))


def test_the_choices_of_an_option_are_those_of_the_request() -> None:
    hints, asked = typing.get_type_hints(options.JobOptions), typing.get_type_hints(r.JobSubmit)
    for name in ("on_reclaim", "on_term"):
        assert set(typing.get_args(typing.get_args(hints[name])[0])) == set(
            typing.get_args(typing.get_args(asked[name])[0])
        )
    kinds = inspect.signature(Client.create_lease, eval_str=True).parameters["kind"].annotation
    assert set(typing.get_args(kinds)) == set(typing.get_args(r.LeaseKind))


@pytest.mark.parametrize("name", signals.SIGNALS)
def test_every_signal_has_a_call_with_its_fields(name: str) -> None:
    offered = set(inspect.signature(getattr(Client, f"signal_{name}")).parameters)
    assert offered - {"self", "department", "timeout_s"} == fields(signals.SIGNALS[name]) - {"v"}


def test_numbers_and_words_are_those_of_the_wire() -> None:
    assert JOBS_MAX == r.JOBS_MAX
    assert set(STATES) - states.FINAL == {"pending", "held", "starting", "running", "suspended", "completing"}
    assert states.FINAL - set(STATES) == {states.MIXED}


def test_the_client_without_a_loop_has_the_same_calls() -> None:
    assert calls(SyncClient) - {"run"} == calls(Client)


@pytest.mark.parametrize("name", sorted(calls(Client) - {"find", "url", "close"}))
def test_a_call_has_the_same_arguments_in_both(name: str) -> None:
    method, blocking = getattr(Client, name), inspect.getattr_static(SyncClient, name)
    assert blocking._method is method
    assert blocking.__doc__ == method.__doc__
    iterates = typing.get_origin(inspect.signature(method, eval_str=True).return_annotation) is AsyncGenerator
    assert type(blocking).__name__ == ("_Iteration" if iterates else "_Call")


def test_both_are_made_and_found_alike() -> None:
    for name in ("__init__", "find"):
        one, other = (inspect.signature(getattr(cls, name)) for cls in (Client, SyncClient))
        assert one.parameters == other.parameters


@pytest.mark.parametrize("name", sorted(calls(Client) - {"url"}))
def test_every_call_says_what_it_does_and_is_on_the_page(name: str) -> None:
    assert (getattr(Client, name).__doc__ or "").strip()
    assert re.search(rf"`{name}(\(|`)", PAGE.read_text()), f"{PAGE.name} has no {name}"


def test_every_public_name_can_be_imported_and_is_on_the_page() -> None:
    page = PAGE.read_text()
    for name in phoenix.client.__all__:
        assert getattr(phoenix.client, name).__name__ == name
        assert f"`{name}" in page, name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = phoenix.client.Nothing


def test_public_names_stand_once_where_type_checkers_read_them() -> None:
    package = ROOT / "phoenix" / "client"
    lines = [line for line in (package / "__init__.pyi").read_text().splitlines()[1:] if line]
    found = [re.fullmatch(r"from phoenix\.client\.(\w+) import (\w+) as (\w+)", line) for line in lines]
    names = [match[2] for match in found if match is not None and match[2] == match[3]]
    assert len(names) == len(lines)
    assert sorted(names) == phoenix.client.__all__ == dir(phoenix.client)
    for match in found:
        assert match is not None
        assert getattr(phoenix.client, match[2]).__module__ == f"phoenix.client.{match[1]}"
    assert not [name for name in names if name in (package / "__init__.py").read_text().partition('"""\n\nfrom')[2]]


def test_what_it_reads_is_part_of_the_distribution() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    assert {"*.pyi", "py.typed"} <= set(patterns)


USES = """
from typing import assert_type
from phoenix.client import Client, Job, JobOptions, PhoenixError, Submitted, SyncClient, Unavailable

async def main(options: JobOptions) -> None:
    async with Client.find(ca_file="ca.pem") as phoenix:
        assert_type(phoenix, Client)
        assert_type(await phoenix.submit(**options), Submitted)
        assert_type(await phoenix.wait("7"), Job)

with SyncClient("http://x") as blocking:
    assert_type(blocking.job("7"), Job)
    assert_type(blocking.job("7").exit_code, int | None)
    try:
        blocking.cancel("7")
    except Unavailable as error:
        assert_type(error.retry_after_s, float | None)
        checked: PhoenixError = error
"""
MISUSES = """
from phoenix.client import Client, Nothing, SyncClient
Client("http://x", tokn="y")
SyncClient("http://x").job(7)
SyncClient("http://x").submit(argv="true", tasks="many")
"""


@pytest.mark.long
def test_programs_have_full_types(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    (tmp_path / "misuses.py").write_text(MISUSES)
    line = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "uses.py", "misuses.py"]
    path = {**os.environ, "MYPYPATH": str(ROOT)}  # mypy does not follow the hooks of an editable installation
    done = subprocess.run(line, cwd=tmp_path, env=path, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\w+)\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert found == [
        ("misuses", "2", "attr-defined"),
        ("misuses", "3", "call-arg"),
        ("misuses", "4", "arg-type"),
        ("misuses", "5", "arg-type"),
    ], done.stdout + done.stderr


def test_it_imports_two_packages_and_of_ours_nothing_else() -> None:
    found = {
        name.split(".")[0] if not name.startswith("phoenix.") else name
        for path in sources("phoenix/client")
        for node in ast.walk(tree(path))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    foreign = {name for name in found if not name.startswith("phoenix.client")} - sys.stdlib_module_names
    assert foreign == THIRD_PARTY


def test_importing_it_does_not_import_what_takes_long() -> None:
    """The command line takes parts of it, programs all of it: neither pays for aiohttp before the first call."""
    heavy = ("aiohttp", "asyncio", "msgspec", "nats", "orjson", "schemas", "services")
    for imported, loaded in (
        ("phoenix.client, phoenix.client.errors, phoenix.client.where, phoenix.client.retries", ""),
        ("phoenix.client.client, phoenix.client.blocking", "asyncio msgspec"),
    ):
        code = f"import sys, {imported}; print(*(name for name in {heavy} if name in sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == loaded


def test_times_are_read_with_any_offset_and_sent_in_utc() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for wire in ("2026-01-31T12:00:00.000Z", "2026-01-31T13:00:00+01:00"):
        found = answers.read(answers.Job, {"job": "1", "state": "running", "submitted_at": wire})
        assert found.submitted_at == noon
    with pytest.raises(Unreadable, match="submitted_at"):
        answers.read(answers.Job, {"job": "1", "state": "running", "submitted_at": noon.timestamp()})
    for given in (noon, noon.astimezone(timezone(timedelta(hours=5))), noon.timestamp()):
        assert times.written(given, "at") == "2026-01-31T12:00:00.000Z"
    assert times.written(None, "at") is None
    with pytest.raises(Invalid, match="without an offset") as caught:
        times.written(datetime(2026, 1, 31, 12), "start_at")
    for nonsense in ("tomorrow", "1795773600", float("nan"), float("inf"), 1e20):
        with pytest.raises(
            Invalid, match=r"start_at: '.+' is no datetime and no UTC seconds; of text: datetime\.fromiso"
        ):
            times.written(nonsense, "start_at")  # type: ignore[arg-type]
    assert caught.value.field == "start_at"


ANSWERS: dict[type[answers.Answer], tuple[type[msgspec.Struct], ...]] = {
    answers.Submitted: (r.Submitted, r.JobSubmit),
    answers.Job: (jobs.Job, jobs.Element),
    answers.Queue: (jobs.QueueRows,),
    answers.Host: (hosts.Host,),
    answers.Department: (hosts.DepartmentRow,),
    answers.Instance: (hosts.InstanceRow,),
    answers.Release: (hosts.ReleaseRow,),
    answers.Deployed: (r.Deployed, r.ReleaseDeploy),
    answers.Lease: (jobs.LeaseRow,),
    answers.LeaseGranted: (r.LeaseGranted, r.LeaseCreate),
    answers.Start: (explained.Start,),
    answers.Prediction: (r.Foretold,),
    answers.Explanation: (explained.Explanation,),
    answers.Step: (explained.StoryStep,),
    answers.Story: (explained.Story,),
    answers.Event: (events.Event,),
}


@pytest.mark.parametrize("ours", ANSWERS, ids=lambda cls: cls.__name__)
def test_the_fields_of_an_answer_are_those_of_the_wire(ours: type[answers.Answer]) -> None:
    wire = {name for struct in ANSWERS[ours] for name in fields(struct)}
    assert fields(ours) - {"answer"} <= wire
    needed = {field.name for field in msgspec.structs.fields(ours) if field.required}
    assert all(needed <= fields(struct) for struct in ANSWERS[ours][:1])


def test_every_answer_is_compared() -> None:
    assert set(answers.Answer.__subclasses__()) - set(ANSWERS) == {answers.File}  # which no struct describes


def test_an_answer_keeps_what_this_version_does_not_know() -> None:
    row = {"unit": "7_1", "job": "7", "state": "levitating", "newer": 1}
    found = answers.read(answers.Job, {"job": "7", "state": "completed", "units": [row]})
    assert (found.is_final, found.succeeded) == (True, True)
    assert [(unit.unit, unit.is_final, unit.answer["newer"]) for unit in found.units] == [("7_1", False, 1)]
    assert "newer" not in repr(found)


@pytest.mark.parametrize("wrong", [[], None, "x", {"job": "1"}, {"job": "1", "state": 7, "nodes": "many"}])
def test_what_is_no_answer_is_an_error_of_its_own(wrong: object) -> None:
    with pytest.raises(Unreadable):
        answers.read(answers.Job, wrong)


def test_elements_of_an_array_are_named() -> None:
    array = answers.Submitted(job="7", units=3)
    assert (str(array), array.elements(), array.elements(0)) == ("7", ["7_1", "7_2", "7_3"], ["7_0", "7_1", "7_2"])
    assert answers.Submitted(job="8").elements() == ["8"]
