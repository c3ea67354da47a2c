"""`phoenix hosts`: what cordon and drain say before they do anything, and what the list says of a host that is set apart."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from phoenix.cli import hosts
from phoenix.cli import parser as parsers
from phoenix.cli.__main__ import main
from phoenix.cli.errors import USAGE, CliError

NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z


def row(*running: str, state: str = "held", **given: Any) -> dict[str, Any]:
    return {"host": "h3", "state": state, "department": "hpc" if state == "held" else None, "units": running, **given}


@pytest.mark.parametrize(
    ("running", "verb", "deadline_s", "said"),
    [
        (("12",), "cordon", None, "h3 (hpc): job 12 runs to the end; then hpc gives the host back"),
        (("12", "14_3"), "cordon", None, "h3 (hpc): jobs 12, 14_3 run to the end; then hpc gives the host back"),
        (("12",), "drain", None, "h3 (hpc): job 12 runs to the end; then hpc gives the host back"),
        (("web.7",), "cordon", None, "h3 (hpc): instance web.7 serves on; then hpc gives the host back"),
        (
            ("web.7",),
            "drain",
            None,
            "h3 (hpc): instance web.7 is replaced elsewhere first; then hpc gives the host back",
        ),
        (
            ("12",),
            "drain",
            3600.0,
            "h3 (hpc): job 12 may run until 2026-11-18T12:06:40Z; "
            "then it is ended, as on notice, and hpc gives the host back",
        ),
        (
            ("12", "14_3"),
            "drain",
            3600.0,
            "h3 (hpc): jobs 12, 14_3 may run until 2026-11-18T12:06:40Z; "
            "then they are ended, as on notice, and hpc gives the host back",
        ),
        (
            ("web.7",),
            "drain",
            3600.0,
            "h3 (hpc): instance web.7 has until 2026-11-18T12:06:40Z to be replaced elsewhere; "
            "then it is ended, as on notice, and hpc gives the host back",
        ),
        (("12",), "drain", 0.0, "h3 (hpc): job 12 is ended now, as on notice; then hpc gives the host back"),
        (("12", "13"), "drain", 0.0, "h3 (hpc): jobs 12, 13 are ended now, as on notice; then hpc gives the host back"),
        (("web.7",), "drain", 0.0, "h3 (hpc): instance web.7 is ended now, as on notice; then hpc gives the host back"),
        ((), "drain", 60.0, "h3: nothing runs there, and hpc gives it back; it is granted to no department"),
    ],
)
def test_what_will_end_and_what_stays_is_said_before(
    running: tuple[str, ...], verb: str, deadline_s: float | None, said: str
) -> None:
    assert hosts.told(row(*running), verb, deadline_s, NOW) == said


def test_of_a_free_host_nothing_ends() -> None:
    assert (
        hosts.told(row(state="free"), "cordon", None, NOW) == "h3: nothing runs there; it is granted to no department"
    )


def test_of_many_only_some_are_named() -> None:
    said = hosts.told(row(*(str(n) for n in range(1, 41))), "cordon", None, NOW)
    assert (
        said == "h3 (hpc): jobs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 30 more run to the end; then hpc gives the host back"
    )


@pytest.mark.parametrize(
    ("host", "note"),
    [
        (row("12", "13", cordoned="fan"), "cordoned, 2 jobs still there: fan"),
        (row("12", "web.1", cordoned="fan"), "cordoned, 1 job and 1 instance still there: fan"),
        (row("12", cordoned="fan", drain=True), "draining, 1 job still there: fan"),
        (
            row("12", cordoned="fan", drain=True, drain_until="2026-11-22T19:00:00Z"),
            "draining until 2026-11-22T19:00:00Z, 1 job still there: fan",
        ),
        (row(state="free", cordoned="fan", drain=True, drain_until="2026-11-22T19:00:00Z"), "cordoned: fan"),
    ],
)
def test_the_list_says_how_far_it_is(host: dict[str, Any], note: str) -> None:
    assert hosts.render([host]).splitlines()[1].endswith(note)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["hosts", "cordon", "h3", "--reason", "fan", "--deadline", "2h"], "only drain ends what runs"),
        (["hosts", "drain", "h3", "--reason", "fan", "--deadline", "soon"], "--deadline: 'soon' is no time"),
    ],
)
def test_a_deadline_is_drain_s_and_a_time(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 2
    assert message in capsys.readouterr().err


class Door:
    """Knows h3 and h4 alone."""

    def get(self, _path: str) -> dict[str, Any]:
        return {"hosts": [row(), row() | {"host": "h4"}]}

    def post(self, path: str, _body: dict[str, Any]) -> dict[str, Any]:
        if "/h5/" in path:
            raise CliError(USAGE, "there is no host h5")
        return {"ok": True}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_who_was_drained_before_one_is_refused_is_said(
    form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = SimpleNamespace(operator=Door)
    monkeypatch.setattr(hosts.cloud, "find", lambda _args: where)
    assert main(["hosts", "drain", "--reason", "x", "h3", "h5", "h4", *form]) == USAGE
    told, refused = capsys.readouterr()
    assert "there is no host h5" in refused
    if form:
        answer = json.loads(told)
        assert [one["host"] for one in answer["hosts"]] == ["h3"]
        assert (answer["error"]["code"], answer["error"]["detail"]) == ("invalid", "there is no host h5")
    else:
        assert told.splitlines() == [
            f"h3: {hosts.VERBS['drain']}",
            "h3: nothing runs there, and hpc gives it back; it is granted to no department",
        ]


@pytest.mark.parametrize(
    "words",
    [
        ["hosts", "cordon", "--reason", "x", "h3"],
        ["token", "create", "--for", "30d", "ann"],
        ["policies", "show", "--json", "easy"],
        ["snapshots", "rebuild", "--data", "x", "provisioner"],
        ["scale", "web", "--for", "30m", "4"],
        ["lease", "show", "--json", "17"],
    ],
)
def test_an_option_may_stand_between_a_verb_and_its_name(words: list[str]) -> None:
    name, verb, option, *value, last = words
    made = parsers.of(name)
    assert made.parse(words[1:]) == made.parse([verb, last, option, *value])


def test_gpus_are_a_column_only_where_there_are_any() -> None:
    size = {"cores": 8, "cores_used": 2, "memory_mb": 1024, "gpus": 0, "gpus_used": 0}
    without = hosts.render([row(**size)])
    assert without.splitlines()[0].split()[4:7] == ["CORES", "MEMORY", "UNITS"]
    found = hosts.render([row(**size), row(**{**size, "gpus": 4, "gpus_used": 3})]).splitlines()
    assert found[0].split()[4:7] == ["CORES", "MEMORY", "GPUS"]
    assert [line.split()[4:7] for line in found[1:]] == [["2/8", "1024", "0/0"], ["2/8", "1024", "3/4"]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cordoned": "bad disk"}, "back in use"),
        ({}, "it was not cordoned"),
        ({"quarantine": "starts failed"}, "it was not cordoned, but quarantined: starts failed"),
        (
            {
                "cordoned": "bad disk",
                "quarantine": "starts failed",
                "quarantine_until": "2026-11-18T12:06:40.000Z",
                "since": "2026-11-18T12:00:00.000Z",
            },
            "back in use, but quarantined: starts failed, until 2026-11-18T12:06:40.000Z",
        ),
    ],
)
def test_uncordon_says_what_keeps_the_host_apart_still(given: dict[str, Any], words: str) -> None:
    assert hosts.outcome("uncordon", row(**given)) == words
    assert hosts.outcome("cordon", row(**given)) == "cordoned"
