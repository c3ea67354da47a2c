"""A store that a server without accounts wrote is the control plane's afterwards, with all that is in it."""

from __future__ import annotations

from pathlib import Path

from nats.js.api import StreamConfig

from services.runtime.broker.accounts import adopt_store
from services.runtime.broker.client import connected
from services.runtime.broker.nats_server import CONFIG_FILE
from tests.integration.nats_process import NatsProcess


class WithoutAccounts(NatsProcess):
    def write(self, listen: str | None = None) -> None:
        store = self.config.nats.store_dir
        text = f'listen: "{listen}"\nports_file_dir: "{store}"\njetstream {{ store_dir: "{store}" }}\n'
        (self.directory / CONFIG_FILE).write_text(text)


async def test_the_streams_of_before_are_the_control_planes(tmp_path: Path) -> None:
    before = WithoutAccounts(tmp_path)
    store = before.config.nats.store_dir
    assert not adopt_store(store)  # nothing there yet
    try:
        await before.start()
        nc = await connected(before.config.nats.url)
        js = nc.jetstream(timeout=30)
        await js.add_stream(StreamConfig(name="PHOENIX", subjects=["phoenix.journal.>"]))
        for number in range(100):
            await js.publish("phoenix.journal.admission", b"%d" % number)
        await nc.close()
    finally:
        await before.stop()
    for left in store.glob("*.ports"):
        left.unlink()
    assert adopt_store(store)
    assert not adopt_store(store)
    after = NatsProcess(tmp_path)
    try:
        await after.start()
        admin, _ = await after.connect("service-admin")
        js = admin.jetstream(timeout=30)
        assert (await js.stream_info("PHOENIX")).state.last_seq == 100
        assert (await js.get_msg("PHOENIX", 100)).data == b"99"
    finally:
        await after.stop()
