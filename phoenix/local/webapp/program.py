"""The default web instance program: an HTTP server whose every request burns real CPU time.

One file, standard library only, without asyncio: it starts in a few hundredths of a second, because a department's
instances start while its users wait. It is copied next to the VMs and runs there under their users.

    GET /healthz       200 at once, header `Phoenix-Cpu-Seconds`: the CPU time this process has used
    GET /?cpu_ms=N     200 after burning N ms of CPU (default WORK_CPU_MS, 5)

1. One thread. Work is burnt in slices, and between slices what has arrived is read: so a health probe is answered at
   once however long the queue of work is. An instance that is only busy never looks dead.
2. Where no control group limits it (PHOENIX_SELF_LIMIT=1), it holds itself to PHOENIX_CORES × PHOENIX_CORE_SHARE of a
   core: after each slice it pauses for as long as the slice would have taken on such a core.
3. The queue is bounded; what exceeds it is answered 503 at once. A request whose client has gone leaves it, and what was
   being worked on is dropped: its client has gone.
4. SIGTERM: stop accepting, answer what has been asked, exit 0.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from typing import Any

SLICE_S = 0.001  # the longest a health probe waits for the CPU, without a limit
QUEUE_MAX = 64  # requests; at 5 ms each on a twentieth of a core that is already 6 s of work
HEAD_BYTES_MAX = 16 << 10
BODY_BYTES_MAX = 1 << 20  # bodies are read and ignored
CPU_MS_MAX = 60_000.0
BACKLOG = 256
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Payload Too Large", 503: "Service Unavailable"}


class Connection:
    """One client: what it has sent, what it is still to be sent, whether it waits for work."""

    __slots__ = ("busy", "closing", "inbox", "is_head", "outbox", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.busy = False
        self.closing = False
        self.is_head = False  # what it waits for has no body


class Work:
    """One request that costs CPU time."""

    __slots__ = ("client", "left_s")

    def __init__(self, client: Connection, left_s: float) -> None:
        self.client = client
        self.left_s = left_s


class Limiter:
    """Holds the process to `cores` real cores (None: no limit) by pausing after each slice."""

    def __init__(self, cores: float | None) -> None:
        self._cores = cores
        self._free_at = time.monotonic()

    def pause_s(self) -> float:
        return max(0.0, self._free_at - time.monotonic()) if self._cores else 0.0

    def spent(self, cpu_s: float) -> None:
        if self._cores:
            self._free_at = max(self._free_at, time.monotonic() - cpu_s) + cpu_s / self._cores


class Server:
    """The loop."""

    def __init__(self, port: int, default_cpu_ms: float, limiter: Limiter) -> None:
        self._default_s = default_cpu_ms / 1000
        self._limiter = limiter
        self._queue: deque[Work] = deque()
        self._clients: set[Connection] = set()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake, woken = socket.socketpair()
        for end in (self._wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno())
        self._woken = woken
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._selector.register(self._wake, selectors.EVENT_READ, self._stop)

    def serve(self) -> None:
        """Serve until SIGTERM has come and everything asked has been answered."""
        while not (self._stopping and not self._clients):
            if self._queue:
                timeout = self._limiter.pause_s()
            else:
                timeout = None
            for key, mask in self._selector.select(timeout):
                key.data(key.fileobj, mask)
            if self._queue and self._limiter.pause_s() <= 0:
                self._work()

    def _work(self) -> None:
        """Burn one slice for the first in the queue."""
        work = self._queue[0]
        burnt = burn(min(SLICE_S, work.left_s))
        self._limiter.spent(burnt)
        work.left_s -= burnt
        if work.left_s <= 0:
            self._queue.popleft()
            work.client.busy = False
            self._answer(work.client, 200, b"done\n")
            self._parse(work.client)

    def _stop(self, wake: Any, _mask: int) -> None:
        wake.recv(4096)
        if self._stopping:
            return
        self._stopping = True
        while self._accept(self._listener, 0):
            pass  # who had connected before the end is still served
        self._selector.unregister(self._listener)
        self._listener.close()
        for client in list(self._clients):
            if not client.busy:
                self._serve_client(client, selectors.EVENT_READ)
            if client in self._clients and not client.busy and not client.outbox:
                self._drop(client)

    def _accept(self, listener: Any, _mask: int) -> bool:
        try:
            sock, _ = listener.accept()
        except OSError:
            return False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Connection(sock)
        self._clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, lambda _sock, mask: self._serve_client(client, mask))
        return True

    def _serve_client(self, client: Connection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._send(client)
        if mask & selectors.EVENT_READ and client in self._clients:
            try:
                data = client.sock.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(client)
                return
            client.inbox += data
            self._parse(client)

    def _parse(self, client: Connection) -> None:
        """Take the next request out of what has arrived; one at a time for each connection."""
        while not client.busy and not client.closing and client in self._clients:
            end = client.inbox.find(b"\r\n\r\n")
            if end < 0:
                if len(client.inbox) > HEAD_BYTES_MAX:
                    client.closing = True
                    self._answer(client, 400, b"the head is too long\n")
                return
            head = bytes(client.inbox[:end]).decode("latin-1").split("\r\n")
            headers = {
                name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
            }
            length = headers.get("content-length", "0")
            if not length.isdigit() or int(length) > BODY_BYTES_MAX:
                client.closing = True
                self._answer(client, 413, b"the body is too long\n")
                return
            if len(client.inbox) < end + 4 + int(length):
                return
            del client.inbox[: end + 4 + int(length)]
            self._handle(client, head[0], headers)

    def _handle(self, client: Connection, line: str, headers: dict[str, str]) -> None:
        parts = line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            client.closing = True
            self._answer(client, 400, b"not HTTP/1\n")
            return
        client.closing = parts[2] == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
        client.is_head = parts[0] == "HEAD"
        path, _, query = parts[1].partition("?")
        if path == "/healthz":
            self._answer(client, 200, b"ok\n")
        elif path != "/":
            self._answer(client, 404, b"only / and /healthz are here\n")
        elif len(self._queue) >= QUEUE_MAX:
            self._answer(client, 503, b"too many requests are waiting\n")
        else:
            self._enqueue(client, query)

    def _enqueue(self, client: Connection, query: str) -> None:
        cost_s = self._default_s
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            if name == "cpu_ms":
                try:
                    cost_s = float(value) / 1000
                except ValueError:
                    cost_s = -1.0
        if not 0 <= cost_s <= CPU_MS_MAX / 1000:
            self._answer(client, 400, b"cpu_ms must be a number of milliseconds from 0 to 60000\n")
            return
        client.busy = True
        self._queue.append(Work(client, cost_s))

    def _answer(self, client: Connection, status: int, body: bytes) -> None:
        if client not in self._clients:
            return
        client.closing = client.closing or self._stopping
        client.outbox += (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            f"Phoenix-Cpu-Seconds: {time.process_time():.6f}\r\n"
            f"Connection: {'close' if client.closing else 'keep-alive'}\r\n\r\n"
        ).encode() + (b"" if client.is_head else body)
        self._send(client)

    def _send(self, client: Connection) -> None:
        try:
            sent = client.sock.send(client.outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.outbox[:sent]
        if not client.outbox and client.closing and not client.busy:
            self._drop(client)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outbox else 0)
        key = self._selector.get_key(client.sock)
        if key.events != events:
            self._selector.modify(client.sock, events, key.data)

    def _drop(self, client: Connection) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.sock)
            client.sock.close()
            if client.busy:
                self._queue = deque(work for work in self._queue if work.client is not client)


def burn(cpu_s: float) -> float:
    """Use the CPU for about `cpu_s`; returns what was used."""
    start = now = time.process_time()
    value = 1
    while now - start < cpu_s:
        for _ in range(200):
            value = value * 1103515245 + 12345 & 0x7FFFFFFF
        now = time.process_time()
    return now - start


def main() -> int:
    """Serve on 127.0.0.1:$PHOENIX_PORT."""
    try:
        port = int(os.environ["PHOENIX_PORT"])
        default_cpu_ms = float(os.environ.get("WORK_CPU_MS", "5"))
        cores = float(os.environ.get("PHOENIX_CORES", "1")) * float(os.environ.get("PHOENIX_CORE_SHARE", "1"))
    except (KeyError, ValueError) as error:
        print(
            f"PHOENIX_PORT, WORK_CPU_MS, PHOENIX_CORES and PHOENIX_CORE_SHARE must be numbers: {error}", file=sys.stderr
        )
        return 2
    limiter = Limiter(cores if os.environ.get("PHOENIX_SELF_LIMIT") == "1" else None)
    try:
        server = Server(port, default_cpu_ms, limiter)
    except OSError as error:
        print(f"cannot listen on 127.0.0.1:{port}: {error.strerror}", file=sys.stderr)
        return 1
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
