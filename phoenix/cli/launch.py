"""`phoenix launch [-n N] [-l] CMD…`: start tasks on all the ranks of a job, from rank 0's script.

One file, standard library only: it is copied next to the VMs and runs there under their users, with whatever python3
is there, and it must start quickly. It talks to admission through the launch channel of the guest contract; the guests
of the ranks start the tasks.

1. Output comes line by line, whole lines; `-l` puts the task's number before each.
2. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to all tasks; this program ends when they have ended.
3. The exit code is that of the first task that failed (128 + signal for a death by signal), else 0. It is 1 if the
   attempt is over, 2 for wrong usage.
4. A lost connection is retried with the same launch id, which starts nothing twice.
"""

from __future__ import annotations

import binascii
import json
import os
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

USAGE = """usage: phoenix launch [-n TASKS] [-O] [-l] COMMAND [ARGUMENT…]
  -n TASKS   how many tasks to start, in blocks over the nodes (default: the job's tasks, at least one for each node)
  -O, --overcommit   more tasks than the job has cores
  -l         put the task's number before each line
Runs inside a job's script, on its first node."""
WAIT_S = 20  # one long poll; the contract allows 25
TRY_DEADLINE_S = 40.0
SIGNAL_DEADLINE_S = 5.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 2.0
LINE_BYTES_MAX = 1 << 16  # a longer line is printed in pieces
TASKS_MAX = 65536
TOKEN_MAX = 4096  # characters; ours have 43
UNREACHABLE = 3  # exit code
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# What belongs to a process or its room rather than to the work.
NOT_PASSED_ON = {"HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"}


class LaunchError(Exception):
    """What went wrong, for the person who wrote the script, and the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class BrokenAnswerError(Exception):
    """What came back is no HTTP answer that can be read here."""


class Channel:
    """The HTTP side: one keep-alive connection, retried.

    By hand over a socket: importing http.client costs twice the CPU of all the rest of this program, which on a
    twentieth of a core is a third of a second of the user's time. Answers must have a Content-Length.
    """

    def __init__(self, url: str, phoenix_id: str, token: str, until: float | None = None) -> None:
        """`until`: when to give up (`time.monotonic()`); None: never."""
        host, port = _host_and_port(url)
        self._until = until
        self._address = (host, port)
        self._base = "/v1/guest/" + phoenix_id.partition("/")[2] + "/"
        self._head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._connection: socket.socket | None = None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call until it is answered; raises `LaunchError` when that is hopeless. `body`: bytes as they are, else as JSON."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                if self._connection is None:
                    self._connection = socket.create_connection(self._address, TRY_DEADLINE_S)
                status, content = self._exchange(self._connection, method, path, body)
            except (OSError, BrokenAnswerError):
                self._connection = None
                status, content = 503, b""
            if status == 410:
                raise LaunchError("this attempt of the job is over")
            if status < 300:
                return json.loads(content) if content else None
            if status < 500:
                raise LaunchError(_sentence(content) or f"{method} {path}: {status}")
            if self._until is not None and time.monotonic() + backoff_s > self._until:
                raise LaunchError("the cloud's door does not answer", UNREACHABLE)
            time.sleep(backoff_s)
            backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)

    def call_aside(self, method: str, path: str, body: Any) -> None:
        """Call once on a connection of its own, from within a signal handler; a failure is the user's to repeat."""
        try:
            with socket.create_connection(self._address, SIGNAL_DEADLINE_S) as connection:
                self._exchange(connection, method, path, body)
        except (OSError, BrokenAnswerError) as error:
            print(f"phoenix launch: the signal was not passed on: {error}", file=sys.stderr)

    def _exchange(self, connection: socket.socket, method: str, path: str, body: Any) -> tuple[int, bytes]:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        lengths = f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        head = f"{method} {self._base}{path} HTTP/1.1\r\n{self._head}{lengths}"
        connection.sendall(head.encode() + content)
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            _receive(connection, received)
        status_line, *lines = received[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        words = status_line.split(None, 2)
        length = headers.get("content-length", "0")
        if len(words) < 2 or not words[1].isdigit() or not length.isdigit() or "transfer-encoding" in headers:
            raise BrokenAnswerError(f"not an answer with a length: {status_line[:100]}")
        del received[: end + 4]
        while len(received) < int(length):
            _receive(connection, received)
        if headers.get("connection", "").lower() == "close" and connection is self._connection:
            self._connection = None
            connection.close()
        return int(words[1]), bytes(received)


def _receive(connection: socket.socket, received: bytearray) -> None:
    data = connection.recv(1 << 16)
    if not data:
        raise BrokenAnswerError("the connection was closed")
    received += data


def _number(text: str) -> int:
    """-1 if it is none, or too long to be one of ours."""
    return int(text) if text.isdecimal() and len(text) < 10 else -1


def _is_plain(text: str) -> bool:
    """Can it stand in the head of a request?"""
    return text.isascii() and text.isprintable() and " " not in text


def _host_and_port(url: str) -> tuple[str, int]:
    scheme, _, rest = url.partition("://")
    host, _, port = rest.partition("/")[0].rpartition(":")
    if scheme != "http" or not _is_plain(url) or not host or not 1 <= _number(port) < 1 << 16:
        raise LaunchError(f"PHOENIX_URL is {url!r}; it must be http://HOST:PORT", 2)
    return host.strip("[]"), int(port)


def _sentence(content: bytes) -> str:
    """Of a refusal: what people read of it."""
    try:
        text = str(json.loads(content)["detail"])
    except (ValueError, LookupError, TypeError, RecursionError):
        text = content.decode(errors="replace")
    return text[:300]


class Printer:
    """Whole lines of each task, labelled if wished."""

    def __init__(self, labelled: bool) -> None:
        self._labelled = labelled
        self._pending: dict[tuple[int, str], bytes] = {}

    def add(self, task: int, stream: str, data: bytes) -> None:
        pending = self._pending.pop((task, stream), b"") + data
        lines = pending.split(b"\n")
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            lines.append(rest)
            rest = b""
        if rest:
            self._pending[task, stream] = rest
        self._print(task, stream, lines)

    def finish(self, task: int) -> None:
        """Print what a task left without a line end."""
        for stream in ("stdout", "stderr"):
            rest = self._pending.pop((task, stream), b"")
            if rest:
                self._print(task, stream, [rest])

    def _print(self, task: int, stream: str, lines: list[bytes]) -> None:
        label = f"{task}: ".encode() if self._labelled else b""
        out = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        out.write(b"".join(label + line + b"\n" for line in lines))
        out.flush()


def main(argv: list[str]) -> int:
    """Run the command line after `launch`; returns the exit code."""
    try:
        wish = parse(argv)
        if wish is None:
            print(USAGE)
            return 0
        return run(channel("launch"), wish)
    except LaunchError as error:
        print(f"phoenix launch: {error}", file=sys.stderr)
        return error.code


class Wish(NamedTuple):
    tasks: int
    command: list[str]
    labelled: bool = False
    overcommit: bool = False


def parse(argv: list[str]) -> Wish | None:
    """None: help was asked. By hand: importing argparse costs as long as all the rest."""
    wished, labelled, overcommit = _default_tasks(), False, False
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-h", "--help"):
            return None
        if option == "--":
            break
        if option in ("-l", "--label"):
            labelled = True
        elif option in ("-O", "--overcommit"):
            overcommit = True
        elif option in ("-n", "--ntasks") and rest:
            wished = rest.pop(0)
        elif option.startswith("-n") and option[2:].isdecimal():
            wished = option[2:]
        elif option.startswith("--ntasks="):
            wished = option.partition("=")[2]
        else:
            raise LaunchError(f"option {option} is unknown or lacks its value\n{USAGE}", 2)
    if not 1 <= _number(wished) <= TASKS_MAX:
        raise LaunchError(f"-n {wished}: the number of tasks must be from 1 to {TASKS_MAX}", 2)
    if not rest:
        raise LaunchError(f"no command is given\n{USAGE}", 2)
    return Wish(int(wished), rest, labelled, overcommit)


def _default_tasks() -> str:
    sizes = [os.environ.get(name, "1") for name in ("PHOENIX_NTASKS", "PHOENIX_NNODES")]
    return str(max(1, *map(_number, sizes)))


def channel(command: str, until: float | None = None) -> Channel:
    """The line to admission of the job that this runs in. `command`: who asks, for the person who called it elsewhere."""
    try:
        url, phoenix_id, path = (os.environ[name] for name in ("PHOENIX_URL", "PHOENIX_ID", "PHOENIX_TOKEN_FILE"))
    except KeyError as error:
        raise LaunchError(f"{error.args[0]} is not set: {command} works only inside a job's script", 2) from error
    try:
        with open(path, errors="replace") as file:
            token = file.read(TOKEN_MAX + 1).strip()
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}", 2) from error
    if not 0 < len(token) <= TOKEN_MAX or not _is_plain(token):  # what is there is not repeated
        raise LaunchError(f"{path} holds no token", 2)
    if not _is_plain(phoenix_id):
        raise LaunchError(f"PHOENIX_ID is {phoenix_id!r}: that is no job", 2)
    return Channel(url, phoenix_id, token, until)


def run(channel: Channel, wish: Wish) -> int:
    """Start the tasks, print what they say, and wait for all of them."""
    ident = os.urandom(8).hex()

    def forward(number: int, _frame: object) -> None:
        channel.call_aside("POST", f"launch/{ident}/signal", {"signal": number})

    body = {
        "id": ident,
        "argv": wish.command,
        "environment": environment(wish.tasks),
        "tasks": wish.tasks,
        "directory": directory(),
        "overcommit": wish.overcommit,
    }
    channel.call("POST", "launch", body)
    for number in FORWARDED:
        signal.signal(number, forward)
    try:
        return listen(channel, ident, wish.tasks, Printer(wish.labelled))
    except BrokenPipeError:
        # The reader is gone: end the tasks as a shell's pipeline would.
        channel.call_aside("POST", f"launch/{ident}/signal", {"signal": int(signal.SIGTERM)})
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + int(signal.SIGPIPE)


def listen(channel: Channel, ident: str, tasks: int, printer: Printer) -> int:
    """Print events until every task has ended; returns the exit code."""
    after, code = 0, 0
    running = set(range(tasks))
    while running:
        answer = channel.call("GET", f"launch/{ident}/events?after={after}&wait_s={WAIT_S}")
        for event in answer["events"]:
            after = max(after, event["n"])
            task = event["task"]
            if "exit" in event:
                printer.finish(task)
                running.discard(task)
                code = code or event["exit"]
            else:
                printer.add(task, event["stream"], binascii.a2b_base64(event["data"]))
    return code


def environment(tasks: int) -> dict[str, str]:
    """The caller's variables without what belongs to its process, its room and its rank."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_PASSED_ON and not name.startswith(("PHOENIX_", "SLURM_"))
    }
    return {**passed, "PHOENIX_NTASKS": str(tasks)}


def directory() -> str | None:
    """Where the tasks are to run: here, unless here is the room, which each rank has for itself."""
    here, room = os.getcwd(), os.environ.get("PHOENIX_ROOM")
    if room and (here + "/").startswith(os.path.realpath(room) + "/"):
        return None
    return here


if __name__ == "__main__":
    if sys.argv[1:2] != ["launch"]:
        print(f"Inside a job only `phoenix launch` is there.\n{USAGE}", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[2:]))
