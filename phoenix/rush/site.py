"""The cloud of one run: `phoenix up` in a directory of its own, its door for the users, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import orjson

from phoenix.rush.setting import DOWN_WINDOW_S, TARGET, THRESHOLD_WINDOW_S, Balancer, Setting, Variant
from schemas.units import seconds
from services.runtime.log import message_of

PHOENIX: Final = (sys.executable, "-m", "phoenix.cli")
UP_S: Final = 120.0
CALL_S: Final = 20.0
CONFIG_FILE: Final = "site.toml"
WEB: Final = "web"
BATCH: Final = "hpc"
CONFIG: Final = """\
[cloud]
name = "rush"

[[department]]
name = "{batch}"
kind = "batch"
[department.batch]
order = "first-fit"

[[department]]
name = "{web}"
kind = "web"
guarantee = 1
[department.web]
rule = "{rule}"
threshold = {target}
window_s = {window_s}
target = {target}
tolerance = 0.0
down_window_s = {down_window_s}
instances_min = 1
instances_max = {instances_max}
instance_cores = {instance_cores}
requests_per_instance = {requests_per_instance}

[[user]]
name = "alice"
department = "{batch}"

[[user]]
name = "wendy"
department = "{web}"
role = "manager"

[[user]]
name = "web-balancer"
department = "{web}"

[[user]]
name = "oscar"
department = "operators"
role = "operator"
"""


Result = TypeVar("Result")


class SiteError(Exception):
    """The cloud cannot do what the experiment needs; the message says what."""


class GoneError(SiteError):
    """Events that were asked for are no longer kept: none is missing behind position `oldest`."""

    def __init__(self, message: str, oldest: int) -> None:
        super().__init__(message)
        self.oldest = oldest


def run(play: Coroutine[Any, Any, Result]) -> Result:
    """As `asyncio.run`; SIGTERM ends it as Ctrl-C does, with every process that it has started.  CancelledError then."""

    async def stoppable() -> Result:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await play

    return asyncio.run(stoppable())


def plainly(error: BaseException) -> str:
    """The first cause of a failure, as users see it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return message_of(error)


def configuration(setting: Setting, variant: Variant) -> str:
    return CONFIG.format(
        batch=BATCH,
        web=WEB,
        rule=variant.rule,
        target=TARGET,
        window_s=THRESHOLD_WINDOW_S,
        down_window_s=DOWN_WINDOW_S,
        instances_max=setting.instances_max,
        instance_cores=setting.instance_cores,
        requests_per_instance=round(variant.requests_per_instance, 3),
    )


class Site:
    """A running cloud.  Reads and orders go to its door over HTTP."""

    def __init__(self, data: Path, status: dict[str, Any], session: aiohttp.ClientSession) -> None:
        self.data = data
        self.status = status
        self.session = session
        self.balancer: Balancer = "haproxy" if status.get("balancer") == "haproxy" else "embedded"
        self.balancer_url = str(status["balancers"][WEB])

    async def get(self, path: str, **query: Any) -> Any:
        """As the operator; JSON lines come as a list."""
        url = str(self.status["http_url"]) + path
        async with self.session.get(url, params=query, headers=self._headers("oscar")) as answer:
            body = await answer.read()
            if answer.status >= 400:
                told = f"GET {path}: {answer.status} {body.decode(errors='replace')[:200]}"
                if answer.status == HTTPStatus.GONE:
                    raise GoneError(told, int(orjson.loads(body)["oldest"]))
                raise SiteError(told)
            if answer.content_type == "application/x-ndjson":
                return [orjson.loads(line) for line in body.splitlines() if line]
            return orjson.loads(body)

    async def post(self, path: str, body: dict[str, Any], user: str = "oscar") -> Any:
        url = str(self.status["http_url"]) + path
        async with self.session.post(url, json=body, headers=self._headers(user)) as answer:
            told = await answer.json(content_type=None)
            if answer.status >= 400:
                raise SiteError(f"POST {path}: {told.get('detail', answer.status)}")
            return told

    async def scale(self, **wish: Any) -> None:
        """`minimum`, `exact`, `for_s` or `auto`, as `phoenix scale`."""
        await self.post(f"/v1/departments/{WEB}/scale", wish)

    async def events(self, after: int = 0) -> tuple[list[dict[str, Any]], float]:
        """Everything that the monitor keeps behind a position, and from when on nothing is missing: 0, if nothing is at all."""
        found: list[dict[str, Any]] = []
        cut = False
        while True:
            try:
                page = await self.get("/v1/events", after=after, limit=5000)
            except GoneError as gone:
                if gone.oldest <= after:
                    raise
                found, after, cut = [], gone.oldest, True
                continue
            for event in page:
                event["at"] = seconds(event["at"])
            if not page:
                return found, float(found[0]["at"]) if cut and found else 0.0
            found += page
            after = int(page[-1]["position"])

    def _headers(self, user: str) -> dict[str, str]:
        token = Path(self.status["credentials"][user]["token"]).read_text().strip()
        return {"Authorization": f"Bearer {token}"}


@contextlib.asynccontextmanager
async def site(setting: Setting, variant: Variant) -> AsyncIterator[Site]:
    """A cloud for one run; it ends with the block, whatever happens in it."""
    top = _directory(configuration(setting, variant))
    data, config = top / "data", top / CONFIG_FILE
    kept = False
    try:
        await phoenix("up", "--detach", "--data", str(data), "--config", str(config), *_size(setting))
        status = orjson.loads(await phoenix("status", "--data", str(data), "--json"))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_S)) as session:
            yield Site(data, status, session)
    except Exception:
        kept = True
        print(f"rush: logs and journal are kept in {top}", file=sys.stderr)
        raise
    finally:
        await asyncio.shield(_down(data))
        if not kept:
            shutil.rmtree(top, ignore_errors=True)


def _directory(text: str) -> Path:
    top = Path(tempfile.mkdtemp(prefix="phoenix-rush-"))
    top.chmod(0o711)  # VMs have users of their own, and go through it
    (top / CONFIG_FILE).write_text(text)
    return top


def _size(setting: Setting) -> tuple[str, ...]:
    size = {"hosts": setting.hosts, "cores": setting.cores, "core-share": setting.core_share}
    words = [word for name, value in size.items() for word in (f"--{name}", str(value))]
    return (*words, *(("--balancer", setting.balancer) if setting.balancer != "embedded" else ()))


async def phoenix(*words: str) -> bytes:
    """What a command prints.  SiteError with its complaint.  A task that is cancelled meanwhile leaves no command behind:
    `up` takes what it has started with it when it is interrupted."""
    process = await asyncio.create_subprocess_exec(
        *PHOENIX, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(UP_S):
            told, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            await asyncio.shield(process.wait())
    if process.returncode:
        raise SiteError(f"phoenix {words[0]}: {complaint.decode(errors='replace').strip()[-500:]}")
    return told


async def _down(data: Path) -> None:
    with contextlib.suppress(SiteError):
        await phoenix("down", "--data", str(data))
