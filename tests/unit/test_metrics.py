"""Every metric is declared once: named as Prometheus wants it, bounded, and in docs/reference/metrics.md."""

from __future__ import annotations

import re

import pytest

from phoenix import metrics
from services.runtime.families import Counter, Family, Histogram, Info, Names
from tests.unit.frame_source import ROOT

ALL = [family for table in metrics.TABLES for family in table.families]
UNBOUNDED = ("job", "unit", "host", "user", "vm", "instance", "request", "message", "token")


def test_the_document_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert written == metrics.document(), "python -m phoenix.metrics > docs/reference/metrics.md"


def test_no_name_is_declared_twice() -> None:
    assert len(metrics.every()) == len(ALL)


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_names_follow_prometheus(family: Family) -> None:
    assert re.fullmatch(r"phoenix_[a-z]+(_[a-z]+)*", family.name)
    assert family.name.endswith("_total") == isinstance(family, Counter)
    assert family.name.endswith("_info") == isinstance(family, Info)
    assert not re.search(r"_(ms|milliseconds|minutes|hours|mb|kb|gb|percent)(_|$)", family.name)
    assert not family.name.endswith("_utilisation")
    assert "since" not in family.name or family.name.endswith("_timestamp_seconds")
    if isinstance(family, Histogram):
        assert family.name.endswith("_seconds")
        assert list(family.bounds) == sorted(set(family.bounds))


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_labels_are_bounded_and_texts_are_sentences(family: Family) -> None:
    for label in family.labels:
        assert label.name not in UNBOUNDED or (label.name, label.values) == ("user", Names.USERS)
        assert label.values, f"{label.name} has no values"
    assert family.text[0].isupper() or family.text[0].isdigit()
    assert not family.text.endswith(".")
    assert len(set(family.label_names)) == len(family.labels)
