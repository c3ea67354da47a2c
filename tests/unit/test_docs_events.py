"""docs/reference/events.md names every kind of event, and says what the audit is as the code has it."""

from __future__ import annotations

import re
from pathlib import Path

from schemas import facts, subjects
from services.runtime.broker import streams

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text()


def test_every_kind_has_its_row_and_no_other_is_told() -> None:
    table = TEXT.partition("| kind | says |")[2].partition("\n\n")[0]
    told = [kind for row in table.splitlines()[2:] for kind in re.findall(r"`([a-z]+\.[a-z]+)`", row.split("|")[1])]
    assert sorted(told) == sorted(facts.BY_KIND)


def test_the_audit_is_told_as_it_is() -> None:
    told = TEXT.partition("## Audit")[2]
    assert f"`{subjects.AUDIT_ALL.removesuffix('>')}<department>.granted`" in told
    assert f"{streams.AUDIT_MAX_AGE_S / 86_400:g} days, {streams.AUDIT_PER_DEPARTMENT:,} messages" in told
