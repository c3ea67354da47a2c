"""A department that goes: a configuration leaves it out, and admission closes it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from schemas import facts as f
from schemas.facts import Fact
from services.domain.custody.custody import Custody


class Journal(Protocol):
    @property
    def custody(self) -> Custody: ...
    def write(self, writer: str, *facts: Fact) -> object: ...


def left_out(custody: Custody, *names: str) -> f.ConfigAdopted:
    """The configuration in force, without these departments."""
    state = custody.state
    assert state.config is not None
    rest = tuple(one for one in state.config.departments if one.name not in names)
    config = msgspec.structs.replace(state.config, departments=rest)
    return f.ConfigAdopted(cloud=state.cloud, custody_rules=state.rules, config=config)


def closing(custody: Custody, *names: str) -> list[tuple[str, Fact]]:
    """Both steps, each with its writer."""
    return [
        ("provisioner", left_out(custody, *names)),
        *(("admission", f.DepartmentClosed(dept=name)) for name in names),
    ]


def close(journal: Journal, *names: str) -> None:
    for writer, fact in closing(journal.custody, *names):
        journal.write(writer, fact)
