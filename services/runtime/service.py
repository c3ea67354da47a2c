"""A service: one core, one shell, its edges.  All services of Phoenix are this class; they differ in core and edges.

What it decides: in which order a process lives.  It must never hide a failure: whatever goes wrong ends the process with a
code for the reason (`exits`), because a restart plus the journal is the only recovery there is.

    connect ─▶ verify streams ─▶ snapshot ─▶ fold to the end ─▶ edges start ─▶ stand by ─▶ lease ─▶ leader.started ─▶ lead
    SIGTERM ─▶ edges close ─▶ leader.stopped ─▶ lease released ─▶ snapshot ─▶ drain ─▶ exit 0

Rules
  1. Every loop is a named task of one group; if one fails, all end.
  2. A standby folds all the time and decides nothing; requests are answered by the leader only.
  3. A closed connection ends the process: a service that cannot receive is worse than none (NATS.md 3.7).
  4. `leader.stopped` is written after every edge has closed, so after its last call has returned (PROTOCOL X8).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from prometheus_client import CollectorRegistry

from schemas.facts import Fact
from schemas.subjects import JOURNAL_STREAM, SNAPSHOTS
from services.domain.core import Core
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Leader
from services.domain.exits import Exit, Stop
from services.runtime import families_shell as fs
from services.runtime.broker.connect import Watch, answers, connect, is_vital_denial, jetstream, service_key
from services.runtime.broker.objects import Objects
from services.runtime.broker.streams import verify_streams
from services.runtime.clock import Clock, skew_s, system_clock
from services.runtime.config.tables import Config, Http
from services.runtime.engine import Engine, Phase
from services.runtime.http.guard import Counts, Guard
from services.runtime.journal.append import Journal
from services.runtime.journal.fold import CoreFactory, Fold
from services.runtime.journal.headroom import Room
from services.runtime.journal.leader import Lease, LeaseLost
from services.runtime.journal.reader import Reader
from services.runtime.journal.snapshots import Every, Keeper, bytes_between
from services.runtime.journal.trimmed import feed_archived, read_mark
from services.runtime.log import get_log, message_of, trace_of
from services.runtime.metrics import MetricsListener, ShellMetrics
from services.runtime.proposals import Compose, Outcome
from services.runtime.refusals import DEPOSED, Refusals
from services.runtime.watchdog import READY, Heart

RETIRE_S: Final = 10.0  # for the orderly end; a supervisor waits a little longer
RECANCEL_S: Final = 0.5  # long enough for a task's own clean-up
CLOSE_S: Final = 3.0  # for closing what is left after a failure
INFO_TIMEOUT_S: Final = 5.0
METRICS_CONNECTIONS_MAX: Final = 256  # Prometheus, a supervisor, a person or two
PROGRESS_S: Final = 5.0  # between two log lines of a long replay


class Edge:
    """What a service adds to the shell: its side to the outside world.  Every method of this class does nothing.

    Rules
      1. An edge never changes core or custody state; it proposes facts and sees them come back.
      2. `applied` and `settled` are called from the fold, so they must be short and must not raise.
    """

    async def connected(self, service: Service) -> None:
        """Before anything is folded: learn what the outside already has."""

    def follow(self, service: Service) -> None:
        """Before the first catch-up: spawn what stores beside the fold, so that snapshots can be saved on the way."""

    async def start(self, service: Service) -> None:
        """After the first catch-up: open listeners and subscriptions."""

    def continues(self) -> str:
        """A snapshot has been loaded.  Why what this edge keeps beside it does not continue from there: then the journal is
        folded from its beginning.  Empty: it does."""
        return ""

    async def secured(self, _position: int) -> bool:
        """Before a snapshot of that position is saved: whether what this edge keeps beside it is stored up to there."""
        return True

    async def lead(self) -> None:
        """This replica became leader: its `leader.started` has come back."""

    async def close(self) -> None:
        """Stop: no more calls after this returns (`leader.stopped` follows, X8).  Proposals are still taken meanwhile."""

    def ailing(self) -> list[str]:
        """What an operator should check, in sentences; returned by `GET /healthz`."""
        return []

    def applied(self, fact: Fact, meta: Meta) -> None:
        """After each apply, but not during the first catch-up."""

    def settled(self) -> None:
        """After a batch of applies, and once after the first catch-up: the state is consistent."""


class Service:
    """`writer`: whose facts it writes (``admission``, ``scheduler.hpc``), or None: a pure follower.  `core_factory` makes the
    core on the custody fold that it is given.  `instance` names this process for leases and supervisors; `reaped`: instances
    that are surely dead.  `name`: process name for keys, metrics and snapshots (default: the writer).  `clock`: for tests."""

    def __init__(
        self,
        writer: str | None,
        core_factory: CoreFactory,
        config: Config,
        *,
        edges: Sequence[Edge] = (),
        instance: str,
        reaped: Sequence[str] = (),
        name: str | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.writer, self.config, self.instance = writer, config, instance
        self.name = name or writer or "monitor"
        self.edges: tuple[Edge, ...] = tuple(edges)
        self.log = get_log(service=self.name, instance=instance)
        self.fold = Fold(writer, core_factory)
        self.refusals = Refusals(config.data_dir, self.name, self.log)
        self.http = Counts()
        self.metrics = ShellMetrics(lambda: self.fold, self.refusals, self.http, self._levels)
        self.registry: CollectorRegistry = self.metrics.registry
        self.use_snapshots = True
        self.caught_up = False
        self.nats_errors = 0  # reported by the connection: denials, slow consumers, failed reconnects
        self.nc: Client
        self.js: JetStreamContext
        self._core_factory, self._clock = core_factory, clock
        self.on_end: Callable[[int], None] | None = None  # told the exit code as soon as it is known
        self._reaped = frozenset(reaped)
        self._engine = self._new_engine()
        self._reader: Reader | None = None
        self._lease: Lease | None = None
        self._group: asyncio.TaskGroup | None = None
        self._main: asyncio.Task[Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._failure: Stop | None = None
        self._failed = asyncio.Event()
        self._retiring = False
        self._started = False
        self._life: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._announced = False
        self._keeper: Keeper
        guard = Guard(self.log, Http(connections_max=METRICS_CONNECTIONS_MAX), self.http)
        self._listener = MetricsListener(self.registry, self.health, guard)
        self._heart = Heart()

    @property
    def core_factory(self) -> CoreFactory:
        """What its core is made with, for a fold of the same journal elsewhere (`rebuild`)."""
        return self._core_factory

    def _new_engine(self) -> Engine:
        return Engine(
            self.fold,
            writer=self.writer,
            instance=self.instance,
            clock=self._clock,
            timings=self.metrics,
            log=self.log,
            own_stopped=self._own_stopped,
            absorbed=self._absorbed,
            settled=self._settled,
        )

    # ------------------------------------------------------------------------------------------- what it says of itself

    @property
    def custody(self) -> Custody:
        return self.fold.custody

    @property
    def core(self) -> Core:
        return self.fold.core

    def _levels(self) -> dict[fs.Level, float]:
        return {
            fs.LEADER_CHANGES: self.epoch,
            fs.NATS_ERRORS: self.nats_errors,
            fs.READER_RENEWED: self.reader_renewed,
            fs.NATS_CONNECTED: self.connected,
            fs.READER_LAG: self.reader_lag,
            fs.LEADER: self.is_leader,
            fs.JOURNAL_FULL: self.journal_full,
            fs.JOURNAL_RESERVED: self.room.scarce,
            fs.JOURNAL_REFUSED: self.room.refused,
            fs.SNAPSHOT_POSITION: self.snapshot_position,
            fs.PROPOSALS_WAITING: self.proposals_waiting,
            fs.LEASE_LEFT: self.lease_left_s(),
        }

    @property
    def is_leader(self) -> bool:
        """True from the return of `leader.started` on, until the orderly end begins."""
        return self._engine.phase is Phase.LEADING

    @property
    def position(self) -> int:
        """The last journal position folded."""
        return self.fold.position

    @property
    def epoch(self) -> int:
        """How many leaders this writer has had, as folded; the own number while leading."""
        return self._engine.epoch

    @property
    def journal_full(self) -> bool:
        return self._engine.full

    @property
    def room(self) -> Room:
        """Of the journal."""
        return self._engine.room

    @property
    def snapshot_position(self) -> int:
        return self._keeper.position if hasattr(self, "_keeper") else 0

    @property
    def proposals_waiting(self) -> int:
        return self._engine.proposals_waiting

    @property
    def reader_renewed(self) -> int:
        return self._reader.recreated if self._reader else 0

    @property
    def reader_lag(self) -> int:
        """Messages of the journal that are not folded yet, by what the broker said with the last message, or to the watchdog,
        which asks every few seconds while nothing comes."""
        return max(0, self._reader.end_seen - self.position) if self._reader else 0

    @property
    def connected(self) -> bool:
        return hasattr(self, "nc") and self.nc.is_connected

    @property
    def predecessor(self) -> Leader | None:
        """The last leader before this one took over, as the journal told it then; None if there was none (X8)."""
        return self._engine.predecessor

    @property
    def reaped(self) -> frozenset[str]:
        """Instances that the supervisor has seen dead (X8)."""
        return self._reaped

    def now(self) -> float:
        """UTC seconds for decisions: max(own clock, fold time) (S6)."""
        return self._engine.now()

    def lease_left_s(self) -> float:
        """Seconds for which surely no other process leads; a caller of the outside stops below its call timeout (X8)."""
        return self._lease.left_s() if self._lease else 0.0

    def health(self) -> dict[str, object]:
        return {
            "service": self.name,
            "instance": self.instance,
            "caught_up": self.caught_up,
            "leader": self.is_leader,
            "epoch": self.epoch,
            "position": self.position,
            "journal_full": self.journal_full,
            "journal_reserved": self.room.scarce,
            "connected": self.connected,
            "ailing": [sentence for edge in self.edges for sentence in edge.ailing()],
        }

    # ------------------------------------------------------------------------------------------------------- for edges

    def wake(self) -> None:
        """Run `decide` soon."""
        self._engine.wake()

    async def propose(self, compose: Compose, cause: str = "") -> Outcome:
        """Write what `compose(now, drafted)` returns, together with what else is due, and return it as it came back through the
        journal.  Raises `Refused`: what `compose` raised; ``limit`` if it can never fit into an envelope; ``unavailable`` if
        this replica does not lead, the journal is full, or nothing was confirmed in time."""
        return await self._engine.propose(compose, cause)

    async def wait_for(self, position: int, timeout_s: float) -> None:
        """Returns when `position` is folded.  Raises TimeoutError."""
        await self._engine.wait_for(position, timeout_s)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` under the service: if it fails, the process ends; at the end it is cancelled."""
        if self._group is None:
            work.close()
            raise RuntimeError("spawn is for edges of a running service")
        task = self._group.create_task(work, name=f"{self.name}:{name}")
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._ending.set()
            self._announce(error.code if isinstance(error, Stop) else Exit.FAILED)

    def _announce(self, code: Exit) -> None:
        """The exit code is known: a limit on the rest of this process's life may begin to count."""
        if self.on_end is not None and not self._announced:
            self._announced = True
            self.on_end(int(code))

    def fail(self, why: str, code: Exit = Exit.FAILED) -> None:
        """End the process non-zero."""
        if self._failure is None and not self._retiring:
            self._failure = Stop(code, why)
            self._failed.set()
            if self._group is None and self._main is not None:
                self._main.cancel()

    def stop(self) -> None:
        """Begin the orderly end, as SIGTERM does."""
        self._stopping.set()
        if self._group is None and self._main is not None:
            self._main.cancel()  # nothing to end in order yet; it may be waiting for its broker

    # ------------------------------------------------------------------------------------------------------------- life

    async def run(self) -> int:
        """Live until SIGTERM, `stop` or a failure; returns the exit code (`exits.Exit`)."""
        code = Exit.FAILED
        self._main = asyncio.current_task()
        self._handle_signals(True)
        try:
            code = await self._live_and_tell()
        except asyncio.CancelledError:  # `fail` or `stop` before there was anything to end in order
            if self._failure is not None:
                code = self._tell(self._failure)
            elif self._stopping.is_set():
                code = Exit.OK
            else:
                raise
        finally:
            self._announce(code)
            self._handle_signals(False)
            await self._close()
        return int(code)

    async def _live_and_tell(self) -> Exit:
        try:
            await self._live()
        except* Stop as stops:
            return_code = self._tell(_first(stops))
        except* Exception as errors:
            fields = {"code": int(Exit.FAILED), "reason": "defect", "position": self.position}
            self.log.error("exit", **fields, trace=trace_of(errors))
            return_code = Exit.FAILED
        else:
            self.log.info("stopped")
            return_code = Exit.OK
        return return_code

    def _tell(self, stop: Stop) -> Exit:
        if stop.code is Exit.DEPOSED:
            self.refusals.add(DEPOSED)
        trace = {}
        if stop.code is Exit.POLICY and stop.__cause__ is not None:  # for the author of the plug-in
            trace["trace"] = trace_of(stop.__cause__)
        self.log.error("exit", code=int(stop.code), reason=stop.code.name.lower(), why=stop.why, **trace)
        return stop.code

    def _handle_signals(self, on: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: the caller stops it
                loop.add_signal_handler(number, self.stop) if on else loop.remove_signal_handler(number)

    async def _begin(self) -> None:
        try:
            await self._connect()
            for edge in self.edges:
                await edge.connected(self)
            await self._restore()
        except (nats.errors.Error, JetStreamError, TimeoutError) as error:
            raise Stop(Exit.FAILED, f"the broker did not answer at the start: {message_of(error)}") from error

    async def _live(self) -> None:
        beside = [asyncio.create_task(work) for work in (self._heart.beat(), self._cancel_until_gone())]
        try:
            await self._begin()  # with the heart: to wait for the broker, or to fold for minutes, is no hanging
            await self._live_together()
        finally:
            for task in beside:
                task.cancel()

    async def _cancel_until_gone(self) -> None:
        """The client library swallows cancellations here and there, and a group waits for every task for ever."""
        await self._ending.wait()
        while True:
            await asyncio.sleep(RECANCEL_S)
            for task in list(self._tasks):
                task.cancel()

    async def _live_together(self) -> None:
        assert self._reader is not None
        async with asyncio.TaskGroup() as self._group:
            self.spawn("failure", self._watch_failure())
            self.spawn("reader", self._reader.watch())
            self.spawn("connection", self._reader.guard(lambda: answers(self.config.nats.url)))
            self.spawn("snapshots", self._keeper.save_forever())
            for name, loop in self._engine.loops(self.js).items():
                self.spawn(name, loop)
            self._life = self.spawn("life", self._serve())
            try:
                await self._stopping.wait()
                await self._retire()
            finally:
                self._ending.set()
            for task in list(self._tasks):
                task.cancel()

    async def _watch_failure(self) -> None:
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def _connect(self) -> None:
        config = self.config
        inbox, seed_file = service_key(config, self.name)
        watch = Watch(on_closed=self._connection_closed, on_reconnected=self._reconnected, on_error=self._nats_error)
        self.nc = await connect(
            config.nats.url,
            name=f"{self.name}/{self.instance}",
            inbox=inbox,
            log=self.log,
            seed_file=seed_file,
            watch=watch,
        )
        self.js = jetstream(self.nc)
        await verify_streams(self.js, config)
        port = config.metrics.ports.get(self.name)
        if port is not None:
            try:
                await self._listener.start(config.metrics.listen, port)
            except OSError as error:  # a second replica on this machine; worth a line, not worth its life
                self.log.warning("no metrics listener", port=port, error=error)

    def _connection_closed(self) -> None:
        self.fail(
            "the connection to NATS was closed permanently (authorisation withdrawn, or the client library gave up)"
        )

    def _nats_error(self, error: Exception) -> None:
        self.nats_errors += 1
        if is_vital_denial(error):
            self.fail(
                f"the broker denies {self.name} what it needs: {error}; regenerate its permissions (`phoenix up`)"
            )

    def _reconnected(self) -> None:
        if self._reader is not None:
            self._reader.doubt()

    async def _restore(self) -> None:
        """Start from the snapshot if it can be used, else from the journal's beginning."""
        async with asyncio.timeout(INFO_TIMEOUT_S):
            info = await self.js.stream_info(JOURNAL_STREAM)
        objects = Objects(self.js, SNAPSHOTS)
        every = Every(self.config.runtime.snapshot_every, bytes_between(info.config.max_bytes or 0))
        self._keeper = Keeper(
            objects, self.name, str(info.created), self.fold, every=every, log=self.log, secured=self._secured
        )
        if self.use_snapshots:
            await self._keeper.load(info.state.last_seq, self._core_factory, self._doubts)
        async with asyncio.timeout(INFO_TIMEOUT_S):
            mark = await read_mark(objects, str(info.created))
        if self.position < mark:
            archive = self.config.journal.archive
            await feed_archived(archive, str(info.created), self.position, mark, self.fold.feed, self._fed)
            self.log.info("journal archive folded", position=self.position)
        if info.state.messages and self.position + 1 < info.state.first_seq:
            raise Stop(
                Exit.FAILED,
                f"the journal begins at {info.state.first_seq}, no record says that it was trimmed, and no usable snapshot of "
                f"{self.name} reaches it: restore the stream",
            )
        self._reader = Reader(
            self.nc,
            self.js,
            start=self.position,
            heartbeat_s=self.config.runtime.heartbeat_s,
            kick=self._engine.kick,
            log=self.log,
        )
        self._engine.attach(self._reader, self._new_journal() if self.writer else None)
        await self._reader.open()

    async def _fed(self, messages: int) -> None:
        """`count` messages of the archive were folded; there are no tasks yet."""
        self._absorbed(messages, 0)
        await self._keeper.save_if_due()

    def _doubts(self) -> str:
        return "; ".join(why for edge in self.edges if (why := edge.continues()))

    async def _secured(self, position: int) -> bool:
        return all([await edge.secured(position) for edge in self.edges])

    def _new_journal(self) -> Journal:
        assert self.writer is not None
        return Journal(
            self.js,
            self.writer,
            expected=lambda: self.fold.own_last,
            wait_for=self._engine.wait_for,
            is_own=self._engine.is_own,
            clock=self._clock,
            log=self.log,
        )

    async def _serve(self) -> None:
        for edge in self.edges:
            edge.follow(self)
        await self._catch_up()
        self.fold.listener = self._applied
        self.caught_up = True
        self._engine.settle()
        for edge in self.edges:
            await edge.start(self)
        self._started = True
        self._heart.say(READY)
        if self.writer is not None:
            await self._lead(self.writer)

    async def _catch_up(self) -> None:
        assert self._reader is not None
        end = await self._reader.end()
        while self.position < end:
            try:
                await self.wait_for(end, PROGRESS_S)
            except TimeoutError:
                self.log.info("replaying", position=self.position, end=end)
        self.log.info("caught up", position=self.position)

    def _applied(self, fact: Fact, meta: Meta) -> None:
        for edge in self.edges:
            edge.applied(fact, meta)

    def _settled(self) -> None:
        for edge in self.edges:
            edge.settled()

    async def _lead(self, writer: str) -> None:
        assert self._reader is not None
        lease = self._lease = Lease(
            self.js,
            writer,
            instance=self.instance,
            process=self._engine.process,
            ttl_s=self.config.runtime.lease_ttl_s,
            reaped=self._reaped,
            log=self.log,
        )
        await lease.acquire()
        self.spawn("lease", self._hold(lease))
        await self._compare_clocks()
        await self._engine.take_over(await self._reader.end())
        self.log.info("leading", epoch=self.epoch, position=self.position)
        for edge in self.edges:
            await edge.lead()

    async def _compare_clocks(self) -> None:
        """S6, before anything is written.  A broker that does not answer will be asked by the next leader's first append."""
        assert self._reader is not None
        sent = self._clock()
        with contextlib.suppress(nats.errors.Error, JetStreamError, TimeoutError):
            stored = await self._reader.ask_time()
            self._engine.refuse_skew(skew_s(sent, self._clock(), stored))

    async def _hold(self, lease: Lease) -> None:
        try:
            await lease.hold()
        except LeaseLost as error:
            raise Stop(Exit.DEPOSED, str(error)) from error

    def _own_stopped(self) -> None:
        if self._lease is not None:
            self._lease.free.set()

    def _absorbed(self, messages: int, size: int) -> None:
        self._keeper.note(messages, size, keeps=self._keeps_snapshots(), caught_up=self.caught_up)

    def _keeps_snapshots(self) -> bool:
        """One replica writes them: the leader; a follower its own."""
        return self.use_snapshots and (self.writer is None or self._engine.phase is not Phase.FOLLOWING)

    # --------------------------------------------------------------------------------------------------------------- end

    async def _retire(self) -> None:
        """The orderly end, within RETIRE_S.  Raises `Stop` if it takes longer."""
        try:
            async with asyncio.timeout(RETIRE_S):
                await self._stop_starting()
                if self.writer is None and self._keeps_snapshots():  # of what its edges still hold; it has no last word
                    await self._keeper.save()
                for edge in reversed(self.edges):
                    await edge.close()
                if self._engine.phase in (Phase.STARTING, Phase.LEADING):
                    await self._engine.step_down()
                    if self._lease is not None:
                        await self._lease.release()
                if self.writer is not None and self._keeps_snapshots():
                    await self._keeper.save()
                self._retiring = True
                await self.nc.drain()
        except TimeoutError as error:
            raise Stop(Exit.FAILED, f"the orderly end took more than {RETIRE_S:.0f} s") from error
        except nats.errors.Error as error:
            raise Stop(Exit.FAILED, f"the orderly end failed: {message_of(error)}") from error

    async def _stop_starting(self) -> None:
        """An edge that is still starting would open what has just been closed."""
        while not self._started and self._life is not None and not self._life.done():
            self._life.cancel()
            await asyncio.wait({self._life}, timeout=RECANCEL_S)

    async def _close(self) -> None:
        """Close what is still open, after a failure or an orderly end; nothing here may hang."""
        self._retiring = True
        self._engine.abandon()
        with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self._listener.stop()
        if hasattr(self, "nc") and not self.nc.is_closed:
            closing = asyncio.create_task(self.nc.close(), name=f"{self.name}:close")
            await asyncio.wait({closing}, timeout=CLOSE_S)  # it swallows the cancellation of a deadline
            closing.cancel()


def _first(stops: BaseExceptionGroup[Stop]) -> Stop:
    """The first `Stop` in a group, however deep."""
    found = stops.exceptions[0]
    return found if isinstance(found, Stop) else _first(found)
