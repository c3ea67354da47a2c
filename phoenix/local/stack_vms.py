"""The supervisor's own calls to OpenNebula: is it there, and, before the cloud goes down, end the VMs.

Theory of operation
  The embedded OpenNebula is ours, so every VM in it ends and its state is clean at the next start.  Whatever is left dies with
  the hypervisor.  In a site's own OpenNebula others have VMs too, and ours would keep running without anybody to watch their
  time limits; so those end that carry a guest's token made with this cloud's key, and no other.

Rules
  1. Best effort, with a deadline; the executor finds at the next `up` what has ended, and what has not.
  2. In an OpenNebula that is not ours a VM is touched only if its PHOENIX_TOKEN is that of its PHOENIX_ID under our guests'
     key: a name can be any cloud's, the key is this cloud's alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
import xmlrpc.client
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from lxml import etree

from services.runtime.config.tables import Config
from services.runtime.log import message_of

END_S: Final = 10.0
END_EXTERNAL_S: Final = 30.0  # a real hypervisor destroys a domain in a second or two, one after the other
CALL_S: Final = 5.0
ASK_S: Final = 0.05
ASK_EXTERNAL_S: Final = 0.5
_EVERYBODY, _ALL, _NOT_DONE = -2, -1, -1  # one.vmpool.infoextended: filter, range, state


class OpenNebulaError(Exception):
    """The site's OpenNebula cannot be used; the message says why and what to do."""


_FAULTS: Final = (OSError, ValueError, EOFError, xmlrpc.client.Error, etree.XMLSyntaxError, OpenNebulaError)


class Ended(NamedTuple):
    """VMs that were ordered to end, those of them that were still there at the deadline, and why the end is not known."""

    told: int
    left: int
    why: str = ""


async def end_vms(config: Config, *, external: bool = False) -> Ended:
    """Terminate VMs hard and wait until they are gone; `external`: only ours (rule 2).  What goes wrong is in the answer."""
    ended: set[int] = set()
    vms: list[int] = []
    try:
        async with asyncio.timeout(END_EXTERNAL_S if external else END_S):
            while vms := await _vms(config, external):
                for vm in vms:
                    await _call(config, "one.vm.action", "terminate-hard", vm)  # refused while one is under way: fine
                    ended.add(vm)
                await asyncio.sleep(ASK_EXTERNAL_S if external else ASK_S)
    except _FAULTS as error:
        return Ended(len(ended), len(vms), message_of(error))
    return Ended(len(ended), 0)


async def check(config: Config) -> None:
    """Raises `OpenNebulaError` unless the endpoint answers and takes the credential."""
    one = config.opennebula
    try:
        answer = await _call(config, "one.system.version")
    except OSError as error:
        if error.filename is not None:
            raise OpenNebulaError(
                f"[opennebula] auth_file {one.auth_file}: {error.strerror}; it holds user:password (mode 0600)"
            ) from error
        raise OpenNebulaError(_silent(config, error)) from error
    except _FAULTS as error:
        raise OpenNebulaError(_silent(config, error)) from error
    if not answer or not answer[0]:
        raise OpenNebulaError(
            f"the OpenNebula at {one.endpoint} refuses the credential in {one.auth_file}: {_refusal(answer)}"
        )


def _refusal(told: Any) -> Any:
    return told[1] if isinstance(told, list) and len(told) > 1 else told


def _silent(config: Config, error: BaseException) -> str:
    return (
        f"no OpenNebula answers at {config.opennebula.endpoint} ({message_of(error)}); "
        "[opennebula] endpoint of the configuration names it; without an endpoint `phoenix up` brings its own"
    )


async def _vms(config: Config, external: bool) -> list[int]:
    answer = await _call(config, "one.vmpool.infoextended", _EVERYBODY, _ALL, _ALL, _NOT_DONE)
    if not answer or not answer[0]:
        raise OpenNebulaError(f"one.vmpool.infoextended is refused: {_refusal(answer)}")
    pool = etree.fromstring(str(answer[1]).encode(), etree.XMLParser(resolve_entities=False, huge_tree=True))
    key = config.guest_key_file.read_bytes().strip() if external else b""
    return [int(vm.findtext("ID") or -1) for vm in pool.findall("VM") if not external or _is_ours(key, vm)]


def _is_ours(key: bytes, vm: Any) -> bool:
    """Rule 2."""
    context = vm.find("TEMPLATE/CONTEXT")
    tag, token = (context.findtext(f"PHOENIX_{name}") or "" if context is not None else "" for name in ("ID", "TOKEN"))
    return bool(tag) and hmac.compare_digest(hmac.new(key, tag.encode(), hashlib.sha256).hexdigest(), token)


async def _call(config: Config, method: str, *parameters: Any) -> Any:
    """One XML-RPC call, without a thread."""
    endpoint = urlsplit(config.opennebula.endpoint)
    session = config.opennebula.auth_file.read_text().strip()
    body = xmlrpc.client.dumps((session, *parameters), method).encode()
    secure = endpoint.scheme == "https"
    async with asyncio.timeout(CALL_S):
        reader, writer = await asyncio.open_connection(
            endpoint.hostname,
            endpoint.port or (443 if secure else 80),
            ssl=ssl.create_default_context() if secure else None,
        )
        try:
            head = f"POST {endpoint.path or '/'} HTTP/1.0\r\nHost: {endpoint.netloc}\r\n"
            head += f"Content-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            answer = (await reader.read()).partition(b"\r\n\r\n")[2]
        finally:
            writer.close()
    return xmlrpc.client.loads(answer.decode())[0][0]
