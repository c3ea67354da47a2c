"""The library for programs without an event loop: the same calls, each of which returns when it is done.

Theory of operation
  A `SyncClient` has one thread with an event loop, in which a `Client` makes the calls.  Any number of threads may call at the
  same time: their calls run beside each other in that loop.  The methods are those of `Client`, with the same arguments, errors
  and docstrings; coroutines become calls, asynchronous iterators iterators.

Rules
  1. Ctrl-C ends the call that the main thread waits for; the client can be used further.
  2. `close` ends calls that are under way: they raise `RuntimeError`, as calls after it do.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from phoenix.client.client import Client
from phoenix.client.transport import TIMEOUT_S

P = ParamSpec("P")
T = TypeVar("T")


class _Call(Generic[P, T]):
    """A coroutine of `Client` as a method that waits for it."""

    def __init__(self, method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[SyncClient]) -> Self: ...
    @overload
    def __get__(self, client: SyncClient, owner: type[SyncClient]) -> Callable[P, T]: ...
    def __get__(self, client: SyncClient | None, owner: type[SyncClient]) -> Self | Callable[P, T]:
        if client is None:
            return self
        method = self._method

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.run(method(client.inner, *args, **kwargs))

        return call


class _Iteration(Generic[P, T]):
    """An asynchronous generator of `Client` as a method that returns a generator."""

    def __init__(self, method: Callable[Concatenate[Client, P], AsyncGenerator[T, None]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[SyncClient]) -> Self: ...
    @overload
    def __get__(self, client: SyncClient, owner: type[SyncClient]) -> Callable[P, Generator[T, None, None]]: ...
    def __get__(
        self, client: SyncClient | None, owner: type[SyncClient]
    ) -> Self | Callable[P, Generator[T, None, None]]:
        if client is None:
            return self
        method = self._method

        @functools.wraps(method)
        def iterate(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
            found = method(client.inner, *args, **kwargs)
            try:
                while True:
                    try:
                        yield client.run(anext(found))
                    except StopAsyncIteration:
                        return
            finally:
                if not client.is_closed:
                    client.run(found.aclose())

        return iterate


class SyncClient:
    """One cloud, with one credential, for any number of threads.  The arguments are those of `Client`."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        token_file: str | Path | None = None,
        timeout_s: float = TIMEOUT_S,
        agent: str = "phoenix-client",
        ca_file: str | Path | None = None,
    ) -> None:
        self._start(Client(url, token, token_file=token_file, timeout_s=timeout_s, agent=agent, ca_file=ca_file))

    @classmethod
    def find(
        cls,
        data: str | Path | None = None,
        *,
        user: str | None = None,
        timeout_s: float = TIMEOUT_S,
        agent: str = "phoenix-client",
        ca_file: str | Path | None = None,
    ) -> Self:
        """As `Client.find`."""
        made = cls.__new__(cls)
        made._start(Client.find(data, user=user, timeout_s=timeout_s, agent=agent, ca_file=ca_file))
        return made

    def _start(self, inner: Client) -> None:
        self.inner = inner
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self.is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="phoenix-client", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return self.inner.url

    def run(self, call: Coroutine[Any, Any, T] | Any) -> T:
        """The result of a coroutine of `inner`.  For calls of one's own that are made of several."""
        future = self._started(call)
        try:
            result: T = future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError("the client was closed during this call") from None
        except BaseException:
            future.cancel()  # rule 1
            raise
        finally:
            self._calls.discard(future)
        return result

    def _started(self, call: Any) -> concurrent.futures.Future[Any]:
        wrong = ""
        with self._lock:
            if threading.current_thread() is self._thread:
                wrong = "a call from the client's own thread would wait for itself"
            elif self.is_closed:
                wrong = "the client is closed"
            else:
                future = asyncio.run_coroutine_threadsafe(_awaited(call), self._loop)
                self._calls.add(future)
                return future
        if asyncio.iscoroutine(call):
            call.close()
        raise RuntimeError(wrong)

    def close(self) -> None:
        """End its connections and its thread (rule 2)."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()
        asyncio.run_coroutine_threadsafe(_ended(self.inner), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    submit = _Call(Client.submit)
    job = _Call(Client.job)
    wait = _Call(Client.wait)
    read_output = _Call(Client.read_output)
    output = _Iteration(Client.output)
    files = _Call(Client.files)
    read_file = _Call(Client.read_file)
    cancel = _Call(Client.cancel)
    hold = _Call(Client.hold)
    release = _Call(Client.release)
    queue = _Call(Client.queue)
    history = _Iteration(Client.history)
    whatif = _Call(Client.whatif)
    why = _Call(Client.why)
    story = _Call(Client.story)
    starts = _Call(Client.starts)
    events = _Iteration(Client.events)
    hosts = _Call(Client.hosts)
    cordon = _Call(Client.cordon)
    drain = _Call(Client.drain)
    uncordon = _Call(Client.uncordon)
    departments = _Call(Client.departments)
    department = _Call(Client.department)
    usage = _Call(Client.usage)
    instances = _Call(Client.instances)
    scale = _Call(Client.scale)
    deploy = _Call(Client.deploy)
    releases = _Call(Client.releases)
    signal_cpu = _Call(Client.signal_cpu)
    signal_requests = _Call(Client.signal_requests)
    signal_claim = _Call(Client.signal_claim)
    signal_sessions = _Call(Client.signal_sessions)
    signal_answers = _Call(Client.signal_answers)
    create_lease = _Call(Client.create_lease)
    extend_lease = _Call(Client.extend_lease)
    cancel_lease = _Call(Client.cancel_lease)
    leases = _Call(Client.leases)
    lease = _Call(Client.lease)
    get = _Call(Client.get)


async def _awaited(call: Any) -> Any:
    return await call


async def _ended(inner: Client) -> None:
    """Close `inner` after the calls that were cancelled have ended."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await inner.close()
