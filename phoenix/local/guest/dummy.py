"""The guest of the dummy hypervisor: the guest contract without any process.

It boots, begins, waits as long as its script says and reports, so that everything above the hypervisor sees jobs that run;
thousands fit into one process. A job's run time and exit code are in its environment:

    PHOENIX_DUMMY_RUNTIME_S   seconds, default 0
    PHOENIX_DUMMY_EXIT        exit code, default 0

After a success it takes the next job, if admission has one for this VM.
A rank above 0 stays until it is terminated or gone. An instance begins without an address and stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from phoenix.local.driver import HostSpec, VmSpec
from phoenix.local.guest.door import Boot, Door, GoneError, RefusedError, Report, new_session

RUNTIME, EXIT = "PHOENIX_DUMMY_RUNTIME_S", "PHOENIX_DUMMY_EXIT"
SHORT_RUN_S = 0.25  # not worth a long poll


async def dummy_guest(vm: VmSpec, host: HostSpec) -> None:  # noqa: ARG001  (the hook's signature)
    """Live as the guest of this VM; returning means that it powers off. Raises ValueError for a VM that is not ours."""
    context = {**vm.context, **{name: value for name, value in vm.attributes.items() if name.startswith("PHOENIX_")}}
    missing = [name for name in ("PHOENIX_ID", "PHOENIX_URL", "PHOENIX_TOKEN") if not context.get(name)]
    if missing:
        raise ValueError(
            f"VM {vm.vm_id} has no {' and '.join(missing)} in its CONTEXT: it does not belong to this cloud"
        )
    async with _sessions.borrow() as session:
        door = Door(session, context["PHOENIX_URL"], context["PHOENIX_ID"], context["PHOENIX_TOKEN"])
        try:
            await _live(door)
        except (GoneError, RefusedError):
            return


async def guest_of_ours(vm: VmSpec, host: HostSpec) -> None:
    """`dummy_guest` for a VM with our context; any other VM just runs until it is stopped."""
    if "PHOENIX_ID" in vm.context:
        await dummy_guest(vm, host)
    else:
        await asyncio.get_running_loop().create_future()


async def _live(door: Door) -> None:
    """One job after another, while admission has one for this VM."""
    while await _work(door):
        following = await door.next()
        door.rebind(following.id, following.token)


async def _work(door: Door) -> bool:
    """One job, or an instance; True if this VM is to stay for another one."""
    boot = await door.boot()
    await door.began(None)
    if boot.kind == "instance":
        await asyncio.get_running_loop().create_future()
    if boot.rank != 0:
        await _wait_until_gone(door)
    runtime_s, code, note = _wishes(boot)
    await _wait_or_gone(door, runtime_s)
    stays = code == 0 and boot.ranks == 1
    return await door.report(Report(code, code - 128 if code > 128 else None, runtime_s, None, None, note, stays))


def _wishes(boot: Boot) -> tuple[float, int, str | None]:
    """Run time and exit code; what cannot be read fails the job with a note that says so."""
    try:
        runtime_s = max(0.0, float(boot.environment.get(RUNTIME, "0")))
        return runtime_s, int(boot.environment.get(EXIT, "0")) & 0xFF, None
    except ValueError as error:
        return 0.0, 2, f"{RUNTIME} and {EXIT} must be numbers: {error}"


async def _wait_or_gone(door: Door, runtime_s: float) -> None:
    """Run for so long; a longer run listens meanwhile whether the attempt is over."""
    if runtime_s <= SHORT_RUN_S:
        await asyncio.sleep(runtime_s)
        return
    try:
        async with asyncio.timeout(runtime_s):
            await _wait_until_gone(door)
    except TimeoutError:
        return


async def _wait_until_gone(door: Door) -> None:
    """Ask for commands, which a dummy cannot obey, until the answer is "gone"."""
    after = 0
    while True:
        for command in await door.commands(after):
            after = max(after, command.n)


class _Sessions:
    """One HTTP session for all dummy guests of the event loop, while there are any."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[aiohttp.ClientSession]:
        if self._session is None or self._session.closed:
            self._session = new_session()
            self._users = 0
        session = self._session
        self._users += 1
        try:
            yield session
        finally:
            self._users -= 1
            if self._users == 0 and self._session is session:
                self._session = None
                await session.close()


_sessions = _Sessions()
