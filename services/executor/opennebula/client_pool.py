"""The site's OpenNebula as the executor's edge sees it: a bounded set of clients, and every error as a defined outcome.

Rules
  1. At most `concurrency` calls are in flight (oned takes 15 connections and serialises most calls; BEHAVIOUR.md).  None waits
     here for another one's end (`free`): what was asked while the lease was long enough is made then, or not (X8).
  2. A call that changes something has at most half a lease to be answered, so that a leader whose lease is renewed in time is
     never without a call, and one whose lease is not, stops before anybody else may lead (X8).  An allocation has the whole
     `timeout_s`: X1 fences it, and one that OpenNebula has queued behind a slow disk would be asked for twice.
  3. OpenNebula's messages are passed on without anything that could be a guest's token.
  4. Whatever goes wrong has a name and an outcome (`call_errors`); an answer that cannot be read is one of them.
  5. The login is read again when OpenNebula refuses it: after a repair nothing needs a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from services.domain.exits import Exit, Stop
from services.executor.core.call_errors import RULES
from services.executor.core.calls import Allocate, Call, Deploy, Migrate, Outcome, Result, Save, Terminate
from services.executor.opennebula.client import OpenNebula
from services.executor.opennebula.errors import ERRORS, Unreachable, failure_of
from services.executor.opennebula.messages import in_words
from services.executor.opennebula.template import TemplateError, Templates
from services.runtime.config.tables import Config

LEASE_SHARE: Final = 2  # a changing call's deadline is lease TTL / LEASE_SHARE
POLLS_MAX: Final = 2  # polls in flight: the targeted one, and one of a whole pool
READ_S: Final = 30.0  # a pool of 100,000 VMs on a busy front end; reads are harmless at any time
T = TypeVar("T")

METHODS: Final[dict[type, str]] = {
    Allocate: "vm.allocate",
    Deploy: "vm.deploy",
    Terminate: "vm.action",
    Save: "vm.action",
    Migrate: "vm.migrate",
}


def method_of(call: Call) -> str:
    return METHODS.get(type(call), "host.info")


def call_timeout_s(config: Config) -> float:
    """How long a call that changes something may take."""
    return min(config.opennebula.timeout_s, config.runtime.lease_ttl_s / LEASE_SHARE)


def load_templates(config: Config) -> Templates:
    """Raises `Stop` that says what is wrong."""
    key = _secret(config.guest_key_file, "the guests' key")
    url = config.http.url or f"http://{config.http.listen}"
    try:
        return Templates(key, url, config.opennebula.template, config.opennebula.hypervisor)
    except TemplateError as error:
        raise Stop(Exit.USAGE, str(error)) from error


def load_session(config: Config) -> str:
    """``user:password``.  Raises `Stop` that says what is wrong."""
    file = config.opennebula.auth_file
    text = _secret(file, "OpenNebula's login").decode(errors="replace")
    if ":" not in text or len(text.splitlines()) != 1:
        raise Stop(Exit.USAGE, f"{file}: should hold one line, user:password")
    return text


def _secret(file: Path, what: str) -> bytes:
    try:
        text = file.read_bytes().strip()
    except OSError as error:
        raise Stop(Exit.USAGE, f"{file}: {error.strerror}; it should hold {what}") from error
    if not text:
        raise Stop(Exit.USAGE, f"{file}: is empty; it should hold {what}")
    return text


# What reading an answer may raise, whatever it is (`opennebula`, rule 5).
_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
Own = Callable[[str], Mapping[str, Any]]


class Site:
    """Calls to one OpenNebula from an event loop.  `cloud`: the tag's first part, and `own`: the attributes of a
    unit's department, both asked for at each allocation."""

    def __init__(self, config: Config, cloud: Callable[[], str], own: Own = lambda _unit: {}) -> None:
        self.timeout_s = call_timeout_s(config)
        self.acts_max = max(1, config.opennebula.concurrency - POLLS_MAX)
        self._cloud, self._own = cloud, own
        self._templates = load_templates(config)
        self._config, self._session = config, load_session(config)
        workers = config.opennebula.concurrency
        self._idle = [self._client() for _ in range(workers)]
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="opennebula")
        self._workers, self._begun = workers, 0

    def _client(self) -> OpenNebula:
        one = self._config.opennebula
        return OpenNebula(one.endpoint, self._session, self.timeout_s, max(READ_S, one.timeout_s), one.timeout_s)

    @property
    def in_flight(self) -> int:
        """Calls that are on their way now, polls included."""
        return self._workers - len(self._idle)

    @property
    def free(self) -> int:
        """Calls that would be made at once, were they asked for now."""
        return max(0, self._workers - self._begun)

    @property
    def user(self) -> str:
        """Who we are to OpenNebula."""
        return self._session.partition(":")[0]

    def login_changed(self) -> bool:
        """Read the login again; True if it is another one now, which the next calls use."""
        try:
            session = load_session(self._config)
        except Stop:
            return False  # it is being written; the old one is still refused, and that is reported
        changed, self._session = session != self._session, session
        return changed

    def act(self, call: Call) -> asyncio.Future[Result]:
        """Make the call; the future never holds an expected error."""
        self._begun += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._act, call)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: asyncio.Future[Result]) -> None:
        self._begun -= 1

    async def read(self, work: Callable[[OpenNebula], T]) -> T:
        """One poll.  Raises one of `call_errors.ERRORS`."""
        self._begun += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._with_client, work)
        finally:
            self._begun -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _with_client(self, work: Callable[[OpenNebula], T]) -> T:
        client = self._idle.pop()  # as many as threads; the one used last has its connection open
        if client.session != self._session:
            client.close()
            client = self._client()
        try:
            return work(client)
        except TemplateError:
            raise
        except _UNREADABLE as error:
            raise Unreachable(f"the answer cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
        finally:
            self._idle.append(client)

    def _act(self, call: Call) -> Result:
        try:
            return self._with_client(lambda client: self._perform(client, call))
        except ERRORS as error:
            failure = failure_of(error)
            return Result(call, RULES[failure].outcome, why=told(error), failure=failure.value)

    def _perform(self, client: OpenNebula, call: Call) -> Result:
        if isinstance(call, Allocate):
            return Result(
                call, Outcome.OK, vm=client.allocate(self._templates.of(self._cloud(), call, self._own(call.unit)))
            )
        if isinstance(call, Deploy):
            client.deploy(call.vm, call.one_id)
        elif isinstance(call, Terminate):
            client.terminate(call.vm, call.hard)
        elif isinstance(call, Save):
            client.stop(call.vm)
        elif isinstance(call, Migrate):
            client.migrate(call.vm, call.one_id)
        else:
            return Result(call, Outcome.OK, found=client.host(call.one_id))
        return Result(call, Outcome.OK)


def told(error: Exception) -> str:
    """OpenNebula's words, in one line, without what could be a secret."""
    return in_words(str(error))
