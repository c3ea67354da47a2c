"""Which variables go along with a job."""

from __future__ import annotations

import pytest

from phoenix.cli.environment import exported
from phoenix.cli.errors import CliError

SHELL = {
    "PATH": "/usr/bin",
    "LANG": "C",
    "HOME": "/somewhere",
    "PHOENIX_TOKEN_FILE": "/f",
    "GITHUB_TOKEN": "s",
    "AWS_SECRET_ACCESS_KEY": "s",
    "DB_PASSWORD": "s",
    "MODEL": "m",
    "BASH_FUNC_x%%": "()",
}


def test_all_is_the_default_without_what_belongs_to_the_login_or_looks_secret() -> None:
    assert exported(None, SHELL) == {"PATH": "/usr/bin", "LANG": "C", "MODEL": "m"} == exported("ALL", SHELL)


def test_none() -> None:
    assert exported("NONE", SHELL) == {}


def test_names_and_values() -> None:
    assert exported("MODEL,X=1,ABSENT", SHELL) == {"MODEL": "m", "X": "1"}
    assert exported("ALL,X=1", SHELL)["X"] == "1"


def test_a_secret_goes_along_when_it_is_named() -> None:
    assert exported("GITHUB_TOKEN", SHELL) == {"GITHUB_TOKEN": "s"}


def test_what_is_no_name() -> None:
    with pytest.raises(CliError, match="no name of a variable"):
        exported("1X=2", SHELL)
