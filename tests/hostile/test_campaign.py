"""A short campaign of `make hostile`: some thousands of odd messages at every door of a real cloud."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.cloud import cloud
from tests.hostile.campaign import CONFIG, campaign, told_secrets

MESSAGES = 4000


def test_odd_messages_end_nothing_and_keep_nobody_else_waiting() -> None:
    with cloud(config=CONFIG) as status:
        assert asyncio.run(campaign(status, rounds=1, messages=MESSAGES, seed=7)) == []


def test_a_secret_in_a_log_is_found(tmp_path: Path) -> None:
    for name, content in (
        ("credentials/ann.token", "s3cret\n"),
        ("logs/a.log", "all well"),
        ("logs/b.log.1", "x s3cret y"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert told_secrets(tmp_path) == ["b.log.1 has the secret of ann.token"]
