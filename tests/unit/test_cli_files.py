"""`-` as the name of a file: standard output where text is written, refused in words elsewhere; no file has that name."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.cli.__main__ import main
from services.runtime.broker import credentials
from services.runtime.config.file import loads
from services.runtime.config.text import dump_toml
from tests.integration.nats_process import CLOUD
from tests.support.odd import refusing_door

EXPERIMENT = """[cluster]
hosts = 1
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 2, processors = 2, load = 0.5 }
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [name for name in os.environ if name.startswith("PHOENIX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "-").exists()


def test_load_writes_its_requests_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing_door() as door:
        assert main(["load", door, "--rate", "200", "--for", "0.05s", "--paced", "--csv", "-"]) == 0
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert len(rows) == 10
    assert {row["outcome"] for row in rows} == {"answered"}
    assert "latency" in said.err


def test_load_looks_at_its_file_before_it_plays(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    words = ["load", "http://127.0.0.1:1", "--rate", "1", "--for", "1s", "--csv"]
    assert main([*words, str(place / "nowhere" / "x.csv")]) == 2
    assert "the load begins" not in (said := capsys.readouterr().err)
    assert "--csv" in said
    assert main([*words, "-", "--json"]) == 2
    assert "--csv - and --json both write to standard output" in capsys.readouterr().err


def test_simulate_writes_its_jobs_to_standard_output(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "small.toml").write_text(EXPERIMENT)
    assert main(["simulate", "small.toml", "--workers", "1", "--jobs-csv", "-"]) == 0
    said = capsys.readouterr()
    assert len(list(csv.DictReader(io.StringIO(said.out)))) == 2
    assert "hpc" in said.err
    assert main(["simulate", "small.toml", "--jobs-csv", "-", "--json"]) == 2
    assert "--jobs-csv - and --json both write" in capsys.readouterr().err


def test_a_token_goes_to_standard_output(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    config = loads(CLOUD, base=place)
    credentials.ensure(config)
    (place / "site.toml").write_text(dump_toml(config))
    assert main(["token", "create", "ann", "--out", "-", "--config", "site.toml"]) == 0
    assert len(capsys.readouterr().out.strip()) == 43
    assert main(["token", "create", "ann", "--out", "-", "--config", "site.toml", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["token"]) == 43


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--config", "-"],
        ["config", "check", "-"],
        ["bill", "--prices", "-"],
        ["whatif", "--plot", "-"],
        ["simulate", "x.toml", "--plots", "-"],
        ["queue", "--data", "-"],
    ],
    ids=" ".join,
)
def test_where_it_stands_for_nothing_it_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "'-' is no file here: name one; ./- is a file of that name" in capsys.readouterr().err
