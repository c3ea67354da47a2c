"""Watch a department's public events over NATS, with nats-py alone.

    python watch_events.py NATS_URL DEPARTMENT USER NKEY_FILE [LAST_KIND]

Prints time, kind and fact of each event; ends after the first event of LAST_KIND, else with Ctrl-C.
"""

import asyncio
import contextlib
import sys
from datetime import datetime

import nats
import orjson


async def main(url: str, department: str, user: str, nkey: str, last_kind: str = "") -> None:
    nc = await nats.connect(url, nkeys_seed=nkey, inbox_prefix=f"_INBOX_{department}.{user}")
    events = await nc.subscribe(f"phoenix.event.{department}.>")
    await nc.flush()
    print("watching", file=sys.stderr, flush=True)
    async for message in events.messages:
        event = orjson.loads(message.data)
        at = datetime.fromisoformat(event["at"])
        fact = {key: value for key, value in event["fact"].items() if key not in ("kind", "custody")}
        print(f"{at:%H:%M:%S}", event["kind"], orjson.dumps(fact).decode(), flush=True)
        if event["kind"] == last_kind:
            break
    await nc.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
