"""Ending every VM of the embedded OpenNebula before the cloud goes down, so that its state is clean at the next start.

Best effort, with a deadline: whatever is left then dies with the hypervisor, and the executor finds it ended at the next `up`.
"""

from __future__ import annotations

import asyncio
import re
import xmlrpc.client
from typing import Any, Final
from urllib.parse import urlsplit

from services.runtime.config import Config

END_S: Final = 10.0
CALL_S: Final = 5.0
ASK_S: Final = 0.05
_EVERYBODY, _ALL, _NOT_DONE = -2, -1, -1  # one.vmpool.info: filter, range, state
_ID: Final = re.compile(r"<VM>\s*<ID>(\d+)</ID>")


async def end_vms(config: Config) -> int:
    """Terminate every VM hard and wait until they are gone; returns how many there were."""
    ended: set[str] = set()
    try:
        async with asyncio.timeout(END_S):
            while vms := await _vms(config):
                for vm in vms:
                    await _call(
                        config, "one.vm.action", "terminate-hard", int(vm)
                    )  # refused while one is under way: fine
                    ended.add(vm)
                await asyncio.sleep(ASK_S)
    except (OSError, TimeoutError, ValueError, EOFError, xmlrpc.client.Error):
        return len(ended)
    return len(ended)


async def _vms(config: Config) -> list[str]:
    told = await _call(config, "one.vmpool.info", _EVERYBODY, _ALL, _ALL, _NOT_DONE)
    return _ID.findall(str(told[1])) if told and told[0] else []


async def _call(config: Config, method: str, *parameters: Any) -> Any:
    """One XML-RPC call, without a thread."""
    endpoint = urlsplit(config.opennebula.endpoint)
    session = config.opennebula.auth_file.read_text().strip()
    body = xmlrpc.client.dumps((session, *parameters), method).encode()
    async with asyncio.timeout(CALL_S):
        reader, writer = await asyncio.open_connection(endpoint.hostname, endpoint.port)
        try:
            head = f"POST {endpoint.path} HTTP/1.1\r\nHost: {endpoint.netloc}\r\nConnection: close\r\n"
            head += f"Content-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            answer = (await reader.read()).partition(b"\r\n\r\n")[2]
        finally:
            writer.close()
    return xmlrpc.client.loads(answer.decode())[0][0]
