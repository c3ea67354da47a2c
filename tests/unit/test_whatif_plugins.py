"""A plug-in was in force in the period, and is not installed any more: what can be compared is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phoenix.cli import whatif_replay
from phoenix.cli.errors import CliError
from phoenix.cli.http import Client
from phoenix.simulate.journal import Entry
from phoenix.whatif.past import Past, Played
from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, WebPolicy
from tests.support.plugins import install, order, packages
from tests.support.whatif import lines
from tests.unit.test_whatif_replay import END_S, WEB, cloud, hpc, job, job_of, lived, past, said

SINCE_S = 0.5
GONE = cloud(hpc(order="gone"))
FIRST_FIT = order(
    "return __import__('services.scheduler.core.policies.order_first_fit', fromlist=['plan']).plan(situation)"
)
WORKS = (job(1, 10.0, 400.0), job(2, 20.0, 100.0, 4), job(3, 30.0, 400.0))
Found = tuple[Past, Played | None, Played | None]


@pytest.fixture
def journal(tmp_path: Path) -> list[Entry]:
    """Of a cloud that had the plug-in, which is away by now."""
    with packages(tmp_path / "site") as site:
        install(site, "gone", FIRST_FIT)
        return lived(*WORKS, config=GONE)


def asked(**given: Any) -> argparse.Namespace:
    options: dict[str, Any] = {"config": None, "hosts": None, "unknown": None, "by": None}
    return argparse.Namespace(**{**options, **given})


def played(
    monkeypatch: pytest.MonkeyPatch, journal: list[Entry], new: CloudConfig | None, until: float = END_S, **given: Any
) -> Found:
    monkeypatch.setattr(whatif_replay, "_lines", lambda _client, _since: lines(journal))
    return whatif_replay._played(Client("http://127.0.0.1:1"), SINCE_S, until, new, asked(**given))


def told(found: Found, new: CloudConfig | None) -> dict[str, Any]:
    return whatif_replay.compared(*found, new, END_S, asked())


def test_the_new_configuration_is_compared_with_what_happened(
    monkeypatch: pytest.MonkeyPatch, journal: list[Entry]
) -> None:
    new = cloud(hpc(order="easy"))
    found = played(monkeypatch, journal, new)
    _, present, other = found
    assert present is None
    assert other is not None
    assert job_of(other.outcome.jobs, 2).start_s == 409.5
    answer = told(found, new)
    assert answer["notes"] == [
        'hpc: order "gone" was in force, and no package that is installed here brings it: what was in force was not '
        "played again; install the package here to have that, too"
    ]
    sides = answer["departments"]
    assert (sides["present"], answer["users"]["present"], answer["fidelity"]) == (None, None, None)
    assert answer["compared_with"] == "happened"
    happened, replay = sides["happened"]["hpc"]["mean_wait_s"], sides["new"]["hpc"]["mean_wait_s"]
    assert answer["differences"]["hpc"]["mean_wait_s"] == pytest.approx(replay - happened)
    assert replay != happened
    msgspec.json.encode(answer)
    for by in ("department", "user"):
        text = whatif_replay.render(answer, by=by, seconds=END_S)
        head = next(line.split() for line in text.splitlines() if "HAPPENED" in line)
        assert head[-3:] == ["HAPPENED", "NEW", "CHANGE"]
        assert "PRESENT" not in text
        assert "CHANGE is from what happened, and has in it what the replay lacks" in text


def test_where_nothing_can_be_played_again_that_is_said(monkeypatch: pytest.MonkeyPatch, journal: list[Entry]) -> None:
    for hosts in (None, 8):
        with pytest.raises(CliError, match=r'hpc: order "gone" was in force, and no package .* brings it') as caught:
            played(monkeypatch, journal, None, hosts=hosts)
        assert caught.value.hint == "install the package here, or name another configuration: --config FILE"


def test_one_that_came_within_the_period_is_missed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    adopted = f.ConfigAdopted(cloud="simulation", custody_rules=2, config=GONE)
    changed = said(lived(*WORKS), 15.0, adopted, writer="provisioner")
    _, present, other = found = played(monkeypatch, changed, cloud(hpc()))
    assert present is None
    assert other is not None
    assert any('order "gone" was in force' in note for note in told(found, cloud(hpc()))["notes"])
    _, present, _ = played(monkeypatch, changed, cloud(hpc()), until=14.0)
    assert present is not None  # it came later


def test_a_rule_of_web_and_one_that_cannot_be_loaded_are_told(tmp_path: Path) -> None:
    web = msgspec.structs.replace(WEB, web=WebPolicy(rule="tides", instances_min=1, instances_max=10))
    adopted = f.ConfigAdopted(
        cloud="simulation",
        custody_rules=2,
        config=cloud(msgspec.structs.replace(hpc(), batch=BatchPolicy(order="gone", victims="nobody")), web),
    )
    with packages(tmp_path / "site") as site:
        install(site, "gone", "raise OSError('away')\n")
        found = past(said(lived(*WORKS), 15.0, adopted, writer="provisioner"))
        assert [(each.department, each.kind, each.name) for each in found.lacking()] == [
            ("hpc", "order", "gone"),
            ("hpc", "victims", "nobody"),
            ("web", "rule", "tides"),
        ]
        assert "away" in found.lacking()[0].why
        assert found.lacking()[1].why == "no package that is installed here brings it"


def test_what_is_not_asked_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was told to make way in this period: its replay is what it was."""
    adopted = f.ConfigAdopted(cloud="simulation", custody_rules=2, config=cloud(hpc(victims="nobody")))
    changed = said(lived(*WORKS), 15.0, adopted, writer="provisioner")
    found = played(monkeypatch, changed, None)
    assert found[1] is not None
    assert told(found, None)["notes"] == []
