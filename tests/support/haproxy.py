"""A real HAProxy for tests, with the configuration that `phoenix.haproxy.configuration` renders: started, reloaded, killed."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path

from phoenix.haproxy.configuration import Front, write
from phoenix.haproxy.runtime_api import RuntimeApi
from tests.support.ports import free_port
from tests.support.tools import tool

READY_S = 30.0
LISTENS = 0x10000  # of flags in /proc/net/unix: __SO_ACCEPTCON


def front(directory: Path, **more: object) -> Front:
    """A department's HAProxy with everything in `directory`."""
    values: dict[str, object] = {"department": "web", "slots": 6, **more}
    return Front(
        listen=f"127.0.0.1:{free_port()}",
        socket=directory / "haproxy.sock",
        state_file=directory / "haproxy.state",
        lua_file=directory / "wait.lua",
        health_map=directory / "health.map",
        **values,  # type: ignore[arg-type]
    )


class Haproxy:
    """One HAProxy, in master-worker mode as systemd starts it."""

    def __init__(self, front: Front, directory: Path) -> None:
        self.front = front
        self.config = directory / "haproxy.cfg"
        self.api = RuntimeApi(front.socket, front.backend, "phoenix", str(front.health_map))
        self._log = directory / "haproxy.log"
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://{self.front.listen}"

    async def start(self, level: str = "admin", *, health_path: str | None = None) -> None:
        """Returns when it answers.  `level`: of its socket.  `health_path`: of all servers, without a map."""
        write(self.front, self.config)
        text = self.config.read_text().replace("level admin", f"level {level}")
        if health_path is not None:
            text, count = re.subn(r"uri-lf \S+", f"uri {health_path}", text)
            assert count == 1
        self.config.write_text(text)
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                str(tool("haproxy")), "-W", "-db", "-f", str(self.config), stdout=DEVNULL, stderr=output
            )
        await self._answering()

    async def _answering(self, *, other_than: int | None = None) -> int:
        """A slow machine may make an answer late: the process is asked again until it gives one."""
        async with asyncio.timeout(READY_S):
            while (pid := await self.pid()) in (None, other_than):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert pid is not None
        return pid

    async def pid(self) -> int | None:
        """Of the process that answers on the socket."""
        try:
            return (await self.api.read()).pid
        except Exception as error:
            if self._process is not None and self._process.returncode is not None:
                raise RuntimeError(f"haproxy has ended:\n{self._log.read_text()[-2000:]}") from error
            return None

    async def reload(self, agent_config: Path) -> None:
        """As the systemd unit does it: save the servers, then replace the process.  Returns when the new one alone answers."""
        assert self._process is not None
        before = await self._answering()
        saving = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phoenix.haproxy", "--config", str(agent_config)),
            *("--save-state", str(self.front.state_file)),
        )
        assert await saving.wait() == 0
        self._process.send_signal(signal.SIGUSR2)
        await self._answering(other_than=before)
        async with asyncio.timeout(READY_S):  # for a moment both take connections
            while _listens(before, self.front.socket):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """The whole of it; what was under way is lost.  The worker dies with its master."""
        if self._process is not None and self._process.returncode is None:
            pid = await self._answering()
            self._process.kill()
            await self._process.wait()
            async with asyncio.timeout(READY_S):
                while _runs(pid):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        self._process = None


def _runs(pid: int) -> bool:
    """A zombie does not."""
    return Path(f"/proc/{pid}/cwd").exists()


def _listens(pid: int, path: Path) -> bool:
    """The process has the Unix socket open on which that path is listened at."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    listening = {f"socket:[{row[6]}]" for row in rows if row[-1].startswith(str(path)) and int(row[3], 16) & LISTENS}
    for file in Path(f"/proc/{pid}/fd").glob("*"):  # of one that is gone: nothing
        with suppress(FileNotFoundError):
            if str(file.readlink()) in listening:
                return True
    return False


async def checked(config: Path) -> tuple[int, str]:
    """`haproxy -c`, a warning being an error."""
    process = await asyncio.create_subprocess_exec(
        str(tool("haproxy")), "-dW", "-c", "-f", str(config), stdout=PIPE, stderr=PIPE
    )
    _, told = await process.communicate()
    return process.returncode or 0, told.decode()
