"""Whether the broker of a cloud that is installed still writes its streams.

A stream whose write failed once is written no more until nats-server is started again (`services.runtime.broker.stores`).
`phoenix up` looks for that and mends it; where nats-server runs under systemd, nothing does: this finding, the metric
`phoenix_stream_stopped` and its alert are what a person has.
"""

from __future__ import annotations

import asyncio

import nats.errors

from phoenix.doctor.findings import Finding, fail, ok, warn
from services.runtime.broker import stores
from services.runtime.config.tables import Config
from services.runtime.log import message_of


def look(config: Config) -> list[Finding]:
    """Nothing where there is no key to ask with: before the cloud is installed, or on another machine."""
    if not stores.may_ask(config):
        return []
    try:
        return [judge(asyncio.run(stores.stopped(config)))]
    except (nats.errors.Error, OSError, TimeoutError) as error:
        found = f"{config.nats.url} does not say whether it writes: {message_of(error)}"
        return [warn("broker", found, "if it should run: systemctl status nats-server, or phoenix status")]


def judge(stopped: dict[str, str]) -> Finding:
    """`stopped`: as `stores.stopped` has it."""
    if not stopped:
        return ok("broker", "nats-server writes all of its streams")
    names = ", ".join(f"{stream} ({why})" for stream, why in sorted(stopped.items()))
    fix = "make room, then `systemctl restart nats-server`; under `phoenix up` it is started again by itself"
    return fail("broker", f"nats-server writes no more to {names}, until it is started again", fix)
