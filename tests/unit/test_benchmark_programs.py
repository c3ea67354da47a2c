"""The programs in `benchmarks` can be imported and explain themselves.  That each runs is in the long tests
(`tests/integration/test_benchmark_runs.py`)."""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from tests.support.benchmark_programs import LIBRARIES, SMALL, programs


def test_every_program_has_a_smallest_run() -> None:
    assert set(SMALL) == programs()


def test_each_can_be_imported_and_explains_its_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in LIBRARIES:
        importlib.import_module(f"benchmarks.{name}")
    for name in sorted(programs()):
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit) as ended:
            module.main()
        help_ = capsys.readouterr().out
        assert ended.value.code == 0, name
        assert f"usage: {name}" in help_
        assert " ".join(str(module.__doc__).split())[:60] in " ".join(help_.split()), name
        named = set(re.findall(r"--[a-z-]+", SMALL[name].options))
        assert named <= set(re.findall(r"--[a-z-]+", help_)), name
