"""`phoenix up`: a supervisor in the foreground, or one of its own that continues after the command has returned.

Rules
  1. In the foreground Ctrl-C (or SIGTERM) stops the cloud in order; a second one kills it at once.  No process is left.
  2. Detached, the command returns when the cloud is ready, or fails with the reason why it is not.  The supervisor then belongs
     to no terminal; its output goes to DATA/log/supervisor.log.
  3. Both are the same code and answer at the same socket (`control`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import orjson

from phoenix.local.control import Control
from phoenix.local.stack import OPENNEBULA
from phoenix.local.stack_layout import Layout, layout
from phoenix.local.stack_settings import Settings
from phoenix.local.supervisor import StartError, Supervisor
from phoenix.local.supervisor_apply import apply

Tell = Callable[[str], None]
FAILED: Final = 1
UNLOCKED: Final = "supervisor.log"
DOWN_S: Final = 30.0


class Session:
    """A supervisor with its socket, from start to stop."""

    def __init__(self, where: Layout, tell: Tell) -> None:
        self.supervisor = Supervisor(where, tell)
        self._control = Control(where, self._answer)
        self._stop = asyncio.Event()
        self._hard = False
        self._applying = asyncio.Lock()
        self._asked: list[asyncio.Queue[str | None]] = []
        self._tell = tell
        self.supervisor.tell = self._broadcast

    async def run(self, chosen: Path | None, given: dict[str, Any], ready: Callable[[Supervisor], None]) -> None:
        """Until a stop is requested.  Raises `StartError`."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        start = asyncio.create_task(self.supervisor.start(chosen, **given), name="start")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await start
            return
        try:
            await start  # raises what went wrong
            await self._control.start()
            ready(self.supervisor)
            await stop
        finally:
            stop.cancel()
        await self._down()

    def stop(self) -> None:
        """Asked once: in order.  Asked again: at once."""
        if self._stop.is_set() and not self._hard:
            self._hard = True
            for name, child in self.supervisor.children.items():
                child.signal(signal.SIGTERM if name == OPENNEBULA else signal.SIGKILL)
        self._stop.set()

    async def _down(self) -> None:
        await self.supervisor.stop(hard=self._hard)
        for queue in self._asked:
            queue.put_nowait(None)
        await asyncio.sleep(0)  # those who asked get their last line
        await self._control.close()

    def _broadcast(self, text: str) -> None:
        self._tell(text)
        for queue in self._asked:
            queue.put_nowait(text)

    async def _answer(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        match request.get("op"):
            case "status":
                yield {"ok": True, **self.supervisor.status()}
            case "down":
                async for told in self._answer_down(bool(request.get("hard"))):
                    yield told
            case "apply":
                async with self._applying:
                    async for step in apply(self.supervisor, request):
                        yield step
            case other:
                yield {"ok": False, "error": f"there is no operation {other!r}"}

    async def _answer_down(self, hard: bool) -> AsyncIterator[dict[str, Any]]:
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._asked.append(queue)
        self._hard = hard
        self._stop.set()
        while (text := await queue.get()) is not None:
            yield {"progress": text}
        yield {"ok": True}


def foreground(
    where: Layout, chosen: Path | None, given: dict[str, Any], ready: Callable[[Supervisor], None], tell: Tell
) -> int:
    """Run until Ctrl-C or `phoenix down`.  Raises `StartError`."""
    log = Log(where)
    asyncio.run(Session(where, log.both(tell)).run(chosen, given, ready))
    return 0


def detached(where: Layout, chosen: Path | None, given: dict[str, Any], tell: Tell) -> None:
    """Start a supervisor of its own and wait until it is ready.  Raises `StartError` with its reason."""
    reader, writer = os.pipe()
    options: list[str] = [
        "--data",
        str(where.data),
        "--ready-fd",
        str(writer),
        "--given",
        msgspec.json.encode(given).decode(),
    ]
    options += ["--config", str(chosen.absolute())] if chosen else []
    process = subprocess.Popen(
        [sys.executable, "-m", "phoenix.local.up", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writer,),
        start_new_session=True,
    )
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as lines:
            _await_ready(lines, tell)
    except KeyboardInterrupt:
        process.terminate()
        process.wait(DOWN_S)
        raise
    except StartError:
        process.wait(DOWN_S)  # it has stopped everything before it told us
        raise


def _await_ready(lines: IO[bytes], tell: Tell) -> None:
    for line in lines:
        content = orjson.loads(line)
        if "error" in content:
            raise StartError(content["error"])
        if content.get("ready"):
            return
        tell(content["progress"])
    raise StartError("the supervisor ended before the cloud was ready; see DATA/log/supervisor.log")


class Log:
    """DATA/log/supervisor.log: each sentence with its time."""

    def __init__(self, where: Layout) -> None:
        self._path = where.logs / UNLOCKED

    def both(self, tell: Tell) -> Tell:
        def told(text: str) -> None:
            self.write(text)
            tell(text)

        return told

    def write(self, text: str) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(f"{stamp} {text}\n")


class _Pipe:
    """To the command that waits until the cloud is ready; it may be gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def send(self, told: dict[str, Any]) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, orjson.dumps(told) + b"\n")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def main(argv: list[str] | None = None) -> int:
    """The detached supervisor (`python -m phoenix.local.up`); people use `phoenix up --detach`."""
    parser = argparse.ArgumentParser(prog="python -m phoenix.local.up")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--given", default="{}", help="settings as JSON")
    parser.add_argument("--ready-fd", type=int, required=True)
    args = parser.parse_args(argv)
    where, pipe = layout(args.data), _Pipe(args.ready_fd)
    os.set_inheritable(args.ready_fd, False)
    log = Log(where)

    def ready(_supervisor: Supervisor) -> None:
        log.write("ready")
        pipe.send({"ready": True})
        pipe.close()

    try:
        tell = log.both(lambda text: pipe.send({"progress": text}))
        asyncio.run(Session(where, tell).run(args.config, orjson.loads(args.given), ready))
    except StartError as error:
        log.write(f"failed: {error}")
        pipe.send({"error": str(error)})
        return FAILED
    except OSError as error:
        log.write(f"failed: {error}")
        pipe.send({"error": str(error)})
        return FAILED
    except Exception as error:  # a bug: reported where a person looks, then raised
        log.write(f"failed: {error!r}")
        pipe.send({"error": f"{error!r} (a bug; please report it with DATA/log/supervisor.log)"})
        raise
    return 0


__all__ = ["Session", "Settings", "detached", "foreground", "main"]

if __name__ == "__main__":
    sys.exit(main())
