"""A short campaign of `make hostile`: some thousands of odd messages at every door of a real cloud."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from benchmarks.cloud import cloud
from tests.hostile.campaign import CONFIG, campaign
from tests.hostile.campaign_after import GROWS_MB, grown, told_secrets

MESSAGES = 6000


def test_odd_messages_end_nothing_and_keep_nobody_else_waiting() -> None:
    with cloud(config=CONFIG) as status:
        assert asyncio.run(campaign(status, rounds=1, messages=MESSAGES, seed=7)) == []


def test_a_secret_in_a_log_or_a_journal_is_found(tmp_path: Path) -> None:
    for name, content in (
        ("credentials/ann.token", "s3cret\n"),
        ("credentials/one_auth", "oneadmin:pa55word"),
        ("logs/a.log", "all well, oneadmin"),
        ("logs/b.log.1", "x s3cret y"),
        ("nats/1.blk", "pa55word"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive/1-2.segment").write_bytes(gzip.compress(b"x s3cret y"))
    assert told_secrets(tmp_path) == [
        "1-2.segment has the secret of ann.token",
        "1.blk has the secret of one_auth",
        "b.log.1 has the secret of ann.token",
    ]


@pytest.mark.parametrize(
    ("each", "more", "found"),
    [
        ([60.0, 90.0, 95.0, 96.0, 96.0, 96.0], 0, []),
        ([60.0, 70.0, 80.0, 90.0, 100.0, 110.0], 1000, []),
        ([60.0, 70.0, 80.0, 90.0, 100.0, 110.0], 100, ["a grows in each round: 60, 70, 80, 90, 100, 110 MiB"]),
        ([60.0, 60.0 + GROWS_MB + 1], 9999, [f"a has grown from 60 to {61 + GROWS_MB:.0f} MiB"]),
    ],
)
def test_memory_that_stays_is_told_from_what_a_fold_remembers(each: list[float], more: int, found: list[str]) -> None:
    assert grown([{"a": mb} for mb in each], [more * number for number in range(len(each))]) == found
