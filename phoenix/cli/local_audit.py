"""What is done to a cloud's files by a command that asks no service, in the audit all the same.

Rules
  1. Who did it is the user of this machine; the record is published with the admin's key, so who can read that can write it.
  2. A cloud that is not running records nothing: the command says so on standard error, and is done all the same.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.runtime.config.tables import Config

CONNECT_S: Final = 1.0  # a broker on this machine answers in milliseconds


def record(file: Path, kind: str, *names: str) -> None:
    """`file`: the cloud's configuration."""
    from nats.errors import Error as NatsError

    from services.runtime.config.file import load
    from services.runtime.log import message_of

    try:
        asyncio.run(_publish(load(file), kind, names))
    except (NatsError, OSError, TimeoutError) as error:
        why = message_of(error)
        print(f"phoenix: this is not in the audit: the cloud's broker does not answer ({why})", file=sys.stderr)


async def _publish(config: Config, kind: str, names: tuple[str, ...]) -> None:
    import msgspec

    from schemas import subjects
    from schemas.audit import AuditBatch, AuditRecord, cut
    from services.runtime.broker import permissions
    from services.runtime.broker.client import connected
    from services.runtime.broker.credentials import seed_file

    kept, more = cut(names)
    told = AuditRecord(
        at=time.time(),
        kind=kind,
        outcome="granted",
        via="shell",
        department=subjects.OPERATORS,
        names=kept,
        more=more,
        peer=f"{getpass.getuser()}@{socket.gethostname()}",
        client="phoenix",
    )

    async def quiet(_error: Exception) -> None:
        """A failure is reported once, by `record`."""

    async with asyncio.timeout(2 * CONNECT_S):
        nc = await connected(
            config.nats.url,
            nkeys_seed_str=seed_file(config, permissions.service_credential(permissions.ADMIN)).read_text().strip(),
            inbox_prefix=permissions.service_inbox(permissions.ADMIN),
            allow_reconnect=False,
            max_reconnect_attempts=1,  # the client tries a first connection as often: who is not there is not waited for
            reconnect_time_wait=0,
            connect_timeout=CONNECT_S,
            error_cb=quiet,
        )
        try:
            data = msgspec.json.encode(AuditBatch(records=(told,)))
            await nc.publish(subjects.audit(subjects.OPERATORS, told.outcome), data)
            await nc.flush()
        finally:
            await nc.close()
