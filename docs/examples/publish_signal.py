"""Publish a signal of a web department once a second, with nats-py alone, as a load balancer does.

    python publish_signal.py NATS_URL DEPARTMENT USER NKEY_FILE SECONDS cpu UTILISATION
    python publish_signal.py NATS_URL DEPARTMENT USER NKEY_FILE SECONDS requests RATE [TARGET]
    python publish_signal.py NATS_URL DEPARTMENT USER NKEY_FILE SECONDS claim INSTANCES
    python publish_signal.py NATS_URL DEPARTMENT USER NKEY_FILE SECONDS sessions web.1=3 web.2=0 ...

Ends with 4 if this key may not publish signals of that department.
"""

import asyncio
import sys

import nats
import orjson


def content(kind: str, *values: str) -> dict[str, object]:
    """The content of each signal; docs/reference/signals.md has all fields."""
    if kind == "cpu":
        return {"utilisation": float(values[0])}  # 1.0: all instances are busy
    if kind == "requests":
        target = {"target": float(values[1])} if len(values) > 1 else {}
        return {"rate": float(values[0]), **target}  # requests/s that came in; how many one instance should serve
    if kind == "claim":
        return {"instances": int(values[0])}  # in all, whatever the load
    return {"sessions": {unit: int(n) for unit, _, n in (value.partition("=") for value in values)}}


async def main(url: str, department: str, user: str, nkey: str, seconds: str, kind: str, *values: str) -> int:
    denials = []

    async def on_error(error: Exception) -> None:  # a publish has no answer: a denial arrives only here
        denials.append(error)

    nc = await nats.connect(url, nkeys_seed=nkey, inbox_prefix=f"_INBOX_{department}.{user}", error_cb=on_error)
    signal = {**content(kind, *values), "source": f"example of {user}"}  # each publisher has its own
    for _ in range(int(seconds)):
        await nc.publish(f"phoenix.signal.{department}.{user}.{kind}", orjson.dumps(signal))
        await nc.flush()  # by now the server has read it, and has reported a denial
        await asyncio.sleep(1)
        if denials:
            print(f"not permitted: {denials[0]}", file=sys.stderr)
            return 4
    await nc.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
