"""What the doctor says of the broker, where it can ask and where it cannot.  Against a real one: `test_up_full_disk`."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from phoenix.doctor import broker
from services.runtime.broker import credentials
from services.runtime.config.file import loads
from tests.integration.nats_process import CLOUD
from tests.support.ports import free_port


def test_streams_that_are_written_no_more_are_named_with_what_to_do() -> None:
    found = broker.judge({"PHOENIX": "no space left on device", "KV_LEASES": "input/output error"})
    assert found.level == "fail"
    assert "KV_LEASES (input/output error), PHOENIX (no space left on device)" in found.found
    assert "systemctl restart nats-server" in found.fix
    assert broker.judge({}).level == "ok"


def test_where_there_is_no_key_nothing_is_said_and_a_silent_broker_is_not_called_good(tmp_path: Path) -> None:
    config = loads(CLOUD, base=tmp_path)
    config = replace(config, nats=replace(config.nats, url=f"nats://127.0.0.1:{free_port()}"))
    assert broker.look(config) == []
    credentials.ensure(config)
    (found,) = broker.look(config)
    assert found.level == "warn"
    assert config.nats.url in found.found
