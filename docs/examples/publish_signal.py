"""Publish a web department's CPU signal once a second, with nats-py alone, as a load balancer does.

    python publish_signal.py NATS_URL DEPARTMENT USER NKEY_FILE UTILISATION SECONDS

Ends with 4 if this key may not publish signals of that department.
"""

import asyncio
import sys

import nats
import orjson


async def main(url: str, department: str, user: str, nkey: str, utilisation: str, seconds: str) -> int:
    denials = []

    async def on_error(error: Exception) -> None:  # a publish has no answer: a denial is told here alone
        denials.append(error)

    nc = await nats.connect(url, nkeys_seed=nkey, inbox_prefix=f"_INBOX_{department}.{user}", error_cb=on_error)
    signal = {"utilisation": float(utilisation), "source": f"example of {user}"}  # 1.0: all instances are busy
    for _ in range(int(seconds)):
        await nc.publish(f"phoenix.signal.{department}.cpu", orjson.dumps(signal))
        await nc.flush()  # the server has read it, and has told if it was not permitted
        await asyncio.sleep(1)
        if denials:
            print(f"not permitted: {denials[0]}", file=sys.stderr)
            return 4
    await nc.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
