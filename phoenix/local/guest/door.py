"""The guest's side of admission's guest contract: one method per call, with its retries.

Rules:
1. 401 and other refusals end the VM (`RefusedError`); 410 means that this attempt is over (`GoneError`).
2. 5xx answers and broken connections are retried for ever, 0.05 s doubling to 2 s: the VM outlives a restart of
   admission. The code that stops the VM cancels the wait. Every single try has a deadline.
3. While the VM is suspended nothing is asked and no answer counts: a late 410 of the attempt that was closed must not end the
   machine that the next one resumes, under the old name and token.
4. The token is sent in a header only and never appears in an error.
5. A job has a token of its own (`job_token`), which admission takes for launches and checkpoints alone: the guest's would also
   open what the VM is given next.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from phoenix.local.connecting import connector

TRY_DEADLINE_S = 30.0
USAGE_DEADLINE_S = 2.0
TRANSFER_DEADLINE_S = 600.0  # one file; inputs and kept files may be large
LONG_POLL_S = 25.0  # the contract's maximum
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 2.0
CHUNK_BYTES = 1 << 18
ERROR_CHARS_MAX = 300
ANSWER_CHARS_MAX = 200  # the contract's


class GoneError(Exception):
    """This attempt is over; stop what runs and power off."""


class RefusedError(Exception):
    """Admission refuses this guest or this call; `status` is the HTTP status, `why` its sentence."""

    def __init__(self, status: int, message: str, why: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.why = why or message


class _RetryError(Exception):
    """Ask again."""


class Input(msgspec.Struct, frozen=True):
    """A file to fetch before the script starts."""

    name: str
    size: int = 0


class Checkpoint(msgspec.Struct, frozen=True):
    """What an earlier attempt has saved; `at`: when, RFC 3339; `files` are to be there before the script starts."""

    attempt: int
    at: str
    percent: float | None = None
    files: list[Input] = []


class Signal(msgspec.Struct, frozen=True):
    """What the job wishes to hear, and how long before its time limit; `script`: its script alone."""

    number: int
    before_s: float = 60.0
    script: bool = False


class Boot(msgspec.Struct, frozen=True):
    """What this VM is to do; the fields are those of the contract."""

    kind: str
    unit: str
    attempt: int
    rank: int
    ranks: int
    department: str
    user: str
    name: str
    cores: int = 1
    memory_mb: int = 0
    gpus: int = 0
    nodes: list[str] = []
    script: str | None = None
    argv: list[str] = []
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    directory: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdin: str | None = None
    inputs: list[Input] = []
    keep: list[str] = []
    grace_s: float | None = None
    walltime_s: float | None = None
    health_path: str | None = None
    array_job: str | None = None
    array_index: int | None = None
    tasks: int | None = None
    cpus_per_task: int | None = None
    checkpoint: Checkpoint | None = None
    signal: Signal | None = None
    port: int | None = None
    usage_interval_s: float | None = None


class Command(msgspec.Struct, frozen=True):
    """One order to a rank: start these tasks, or signal them."""

    n: int
    kind: str
    id: str
    argv: list[str] = []
    environment: dict[str, str] = {}
    first: int = 0
    tasks: int = 0
    directory: str | None = None
    signal: int = 0


class Report(msgspec.Struct, frozen=True):
    """How the script ended."""

    exit: int
    signal: int | None
    seconds: float
    cpu_seconds: float | None
    max_rss_mb: float | None
    note: str | None
    stay: bool = False  # this VM could take another job
    terminated: bool = False  # the guest had told the script to end before it did


class Identity(msgspec.Struct, frozen=True):
    """Who this VM is from now on."""

    id: str
    token: str


class _Acknowledged(msgspec.Struct, frozen=True):
    stay: bool = False


class _Commands(msgspec.Struct, frozen=True):
    commands: list[Command]


_boot_decoder = msgspec.json.Decoder(Boot)
_identity_decoder = msgspec.json.Decoder(Identity)
_acknowledged_decoder = msgspec.json.Decoder(_Acknowledged)
_commands_decoder = msgspec.json.Decoder(_Commands)


class Door:
    """One VM's line to admission. The session is shared by all VMs and stays the caller's."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, phoenix_id: str, token: str, boot_id: str | None = None
    ) -> None:
        self._session = session
        self.boot_id = boot_id
        self.url = url.rstrip("/")
        self.awake = asyncio.Event()
        self.awake.set()
        self.rebind(phoenix_id, token)

    def rebind(self, phoenix_id: str, token: str) -> None:
        """Speak for another job from now on. Raises ValueError if the id has not the contract's form."""
        parts = phoenix_id.split("/")
        if len(parts) != 4 or not parts[2].isdigit() or not parts[3].isdigit():
            raise ValueError(f"PHOENIX_ID is {phoenix_id!r}; it must be <cloud>/<unit>/<attempt>/<rank>")
        self.phoenix_id = phoenix_id
        self.token = token
        self._base = f"{self.url}/v1/guest/{'/'.join(parts[1:])}/"
        self._headers = {"Authorization": f"Bearer {token}"}

    @property
    def job_token(self) -> str:
        """Rule 5. A program that has it cannot compute the guest's."""
        return hashlib.sha256(f"job:{self.token}".encode()).hexdigest()

    async def boot(self) -> Boot:
        try:
            path = "boot" if self.boot_id is None else f"boot?boot={quote(self.boot_id)}"
            return _boot_decoder.decode(await self._call("GET", path))
        except msgspec.DecodeError as error:
            raise RefusedError(200, f"the boot answer is malformed: {error}") from error

    async def began(self, address: str | None) -> None:
        await self._call("POST", "began", _json({"address": address, "boot": self.boot_id}))

    async def usage(self, utilisation: float, interval_s: float, memory_mb: float, ready: bool, answer: str) -> None:
        """How busy this instance is, and whether it is well.  It is a level: one that cannot be sent now is dropped (rule 2 is
        not for it)."""
        fields = {"utilisation": utilisation, "interval_s": interval_s, "memory_mb": memory_mb, "ready": ready}
        values = {} if ready else {"answer": answer[:ANSWER_CHARS_MAX]}
        await self._call("POST", "usage", _json({**fields, **values}), deadline_s=USAGE_DEADLINE_S, tries=1)

    async def used(self, cpu_seconds: float, max_rss_mb: float | None) -> None:
        """What this job has used since the VM began."""
        fields = {"cpu_seconds": cpu_seconds, "max_rss_mb": max_rss_mb}
        await self._call("POST", "used", _json(fields), deadline_s=USAGE_DEADLINE_S)

    async def ended(self, exit_: int | None, signal: int | None, oom: bool) -> None:
        """How this instance's program has ended by itself."""
        await self._call("POST", "ended", _json({"exit": exit_, "signal": signal, "oom": oom}))

    async def put_output(self, stream: str, offset: int, data: bytes) -> None:
        await self._call("PUT", f"output/{stream}?offset={offset}", data, content_type="application/octet-stream")

    async def put_file(self, name: str, read: Callable[[], AsyncIterator[bytes]]) -> None:
        """Send one kept file; `read` gives its content from the start, again for each try."""
        await self._call("PUT", f"files/{_path(name)}", read, deadline_s=TRANSFER_DEADLINE_S)

    async def get_input(self, name: str, write: Callable[[bytes, bool], None]) -> None:
        """Fetch one input; `write(chunk, first)` is called in order, `first` starting it over."""
        await self._call("GET", f"inputs/{_path(name)}", sink=write, deadline_s=TRANSFER_DEADLINE_S)

    async def get_checkpoint(self, name: str, write: Callable[[bytes, bool], None]) -> None:
        """Fetch one file of the last checkpoint, as `get_input`."""
        await self._call("GET", f"checkpoint/files/{_path(name)}", sink=write, deadline_s=TRANSFER_DEADLINE_S)

    async def report(self, report: Report) -> bool:
        """True if this VM is to stay for another job."""
        return _acknowledged_decoder.decode(await self._call("POST", "report", msgspec.json.encode(report))).stay

    async def next(self) -> Identity:
        """Wait for the next job of this VM; raises `GoneError` when there will be none."""
        path = f"next?wait_s={LONG_POLL_S:g}"
        while True:
            answer = await self._call("POST", path, deadline_s=LONG_POLL_S + TRY_DEADLINE_S)
            if answer:  # else it is not needed yet
                return _identity_decoder.decode(answer)

    async def commands(self, after: int) -> list[Command]:
        """The next commands for this rank, waiting for them; empty after a while without any."""
        path = f"commands?after={after}&wait_s={LONG_POLL_S:g}"
        return _commands_decoder.decode(await self._call("GET", path, deadline_s=LONG_POLL_S + TRY_DEADLINE_S)).commands

    async def launch_events(self, launch: str, first: int, events: list[dict[str, Any]]) -> None:
        await self._call("POST", f"launch/{launch}/events", _json({"events": events, "first": first}))

    async def _call(
        self,
        method: str,
        path: str,
        body: bytes | Callable[[], AsyncIterator[bytes]] | None = None,
        *,
        content_type: str = "application/json",
        sink: Callable[[bytes, bool], None] | None = None,
        deadline_s: float = TRY_DEADLINE_S,
        tries: int | None = None,
    ) -> bytes:
        """`tries`: at most this many, and no answer then; None: for ever."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            await self.awake.wait()
            base, headers = self._base, self._headers
            if body is not None:
                headers = {**headers, "Content-Type": content_type}
            try:
                async with asyncio.timeout(deadline_s):
                    data = body() if callable(body) else body
                    async with self._session.request(method, base + path, data=data, headers=headers) as answer:
                        return await self._judge(answer, sink)
            except (_RetryError, TimeoutError, aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                tries = None if tries is None else tries - 1
                if tries == 0:
                    return b""
                await asyncio.sleep(backoff_s)
                backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)

    async def _judge(self, answer: aiohttp.ClientResponse, sink: Callable[[bytes, bool], None] | None) -> bytes:
        if answer.status < 300 and sink is not None:
            first = True
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                sink(chunk, first)
                first = False
            await self.awake.wait()
            return b""
        content = await answer.read()
        if not self.awake.is_set() or answer.status >= 500:
            raise _RetryError
        if answer.status < 300:
            return content
        if answer.status == 410:
            raise GoneError
        why = _sentence(content)
        raise RefusedError(answer.status, f"admission answered {answer.status} to {answer.method}: {why}", why)


def _sentence(content: bytes) -> str:
    """Of a refusal: what people read of it."""
    try:
        text = str(json.loads(content)["detail"])
    except (ValueError, LookupError, TypeError, RecursionError):
        text = content.decode(errors="replace")
    return text[:ERROR_CHARS_MAX]


def _path(name: str) -> str:
    """A file's name, whatever characters it has, within an address."""
    return quote(os.fsencode(name))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def event_data(task: int, stream: str, data: bytes) -> dict[str, Any]:
    """One piece of a launched task's output, as the contract writes it."""
    return {"task": task, "stream": stream, "data": base64.b64encode(data).decode()}


def new_session() -> aiohttp.ClientSession:
    """The one HTTP session of a hypervisor: keep-alive, as many connections as there are VMs, no cookies, no proxy."""
    return aiohttp.ClientSession(
        connector=connector(keepalive_timeout=60.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
    )
