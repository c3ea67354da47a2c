"""How often refused connections are told; `integration/test_refused_keys.py` has a real broker refuse them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from schemas.audit import TEXT_MAX, AuditRecord
from services.monitor.http.denied_connections import TOLD_BURST, TOLD_PER_S, RefusedKeys
from services.runtime.config.file import loads
from services.runtime.log import get_log
from tests.integration.nats_process import CLOUD


async def test_of_one_address_few_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    now, records = [0.0], list[AuditRecord]()
    watch = RefusedKeys(loads(CLOUD, base=tmp_path), records.append, get_log(), lambda: 5.0, lambda: now[0])

    async def refused(host: str, name: str = "x") -> None:
        data = json.dumps({"client": {"host": host, "name": name}, "reason": "r"}).encode()
        await watch._heard(SimpleNamespace(data=data))  # type: ignore[arg-type]

    for _ in range(int(TOLD_BURST) + 7):
        await refused("10.0.0.1")
    assert len(records) == TOLD_BURST
    await refused("10.0.0.2", "n " * 250)
    assert (records[-1].peer, len(records[-1].client), records[-1].left_out) == ("10.0.0.2", TEXT_MAX, 0)
    now[0] += 1 / TOLD_PER_S
    await refused("10.0.0.1")
    assert (records[-1].peer, records[-1].left_out) == ("10.0.0.1", 7)


async def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    records = list[AuditRecord]()
    watch = RefusedKeys(loads(CLOUD, base=tmp_path), records.append, get_log())
    for data in (b"", b"[]", b"\xff", b'{"client": 5}'):
        await watch._heard(SimpleNamespace(data=data))  # type: ignore[arg-type]
    assert records == []
