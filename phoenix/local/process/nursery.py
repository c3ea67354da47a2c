"""The nursery: one small process that starts, signals and reaps every process of every VM of one hypervisor.

Theory of operation. The hypervisor is a large asyncio process: forking it costs milliseconds and copies its secrets.
So it starts this program once (`python -I -S`, standard library only) and asks it, over a stream socket on descriptor
0, to start processes. The nursery forks itself (it is small), makes the child what it must be and executes.

Frames are `u32 length, u64 id, JSON`, answers `u32 length, JSON`; a `run` frame carries the descriptors of the child's stdin,
stdout and stderr.

1. A child leads its own session. It enters its cgroups and drops its rights *before* it executes anything of the job.
   "Started" is reported when it executes its program: from then on all of it is found, and stopped, by its cgroup, uid or
   marker.  Where this machine keeps it from getting there it is refused, with the reason; what the job itself has asked for in
   vain (a program, a file as stdin) is the job's failure, as in a shell.
2. The nursery is the parent, so a leader's pid is its own until it is reaped here, which is after all that is its VM's has been
   killed: no signal hits a stranger through a reused pid. Pids of others are read from the kernel a moment before.
3. It is a child subreaper: what a job orphans becomes its child. Nothing can hide behind a double fork.
4. End of file on the socket means the hypervisor is gone, also by kill -9: everything is killed, then it exits.
5. A child has PR_SET_PDEATHSIG, so it dies when the nursery does. The kernel clears that flag when credentials change,
   hence it is set after the rights were dropped; the parent is checked afterwards, for the race.
6. It knows no tokens and reads no file of the cloud; it never interprets what it starts.
7. A job starts with every signal at its default and none blocked, whatever the cloud was started with: exec would hand on what
   `nohup`, or the background of a script, ignores. (Signals 32 and 33 belong to the C library, which lets no program set them.)
8. A frame that is too large or cannot be read refuses that one request, and nothing else.
9. A process that is moved into a control group is not counted against its limit of processes by the kernel, so a child that
   finds it exceeded refuses itself.
10. Where jobs have users of their own, each sees no other's processes, nor their arguments: the nursery, and so whatever it
   starts, has a /proc mounted with hidepid, in a mount namespace in which everything else is the machine's (Linux 5.8; where
   the machine does not let it, arguments are seen by all, as on any machine).
11. Where jobs have a network of their own, the nursery is in it, and so is whatever it starts: only what serves the machine's
   network, a web instance, goes back there before it drops its rights.  No job can: it has no right to.
12. A machine with GPUs gives each job the device nodes of its own and closes those of the others (`devices`); a child for which
   that fails is refused.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, NoReturn

from phoenix.local.process.devices import fence
from phoenix.local.process.network import JobsPlace
from phoenix.local.process.processes import children_of, group_of, kill, kill_group, owned_pids, purge

HEADER = struct.Struct("!IQ")
ANSWER = struct.Struct("!I")
FRAME_BYTES_MAX = 16 * 1024 * 1024  # one script's environment and arguments; the kernel's own limit is 6 MiB
OPEN_FILES_MAX = 65536  # what an MPI rank or a web server may want; the default soft limit is often 1024
WHY_BYTES_MAX = 1000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
CLONE_NEWNS, MS_NOSUID_NODEV_NOEXEC, MS_REC_SLAVE = 0x20000, 0xE, 0x84000
HIDE, NETWORK = "hide-processes", "network="  # arguments; a descriptor's number follows
EXIT_CANNOT_EXECUTE, EXIT_NOT_FOUND = 126, 127  # what a POSIX shell answers

_libc = ctypes.CDLL(None, use_errno=True)
_ignored: list[signal.Signals | int] = []  # what this process ignores, and a job must not (rule 7)
_jobs_place: JobsPlace | None = None  # if jobs have a network of their own (rule 11)


class Child:
    """A leader that was started: its pid, and what belongs to it."""

    __slots__ = ("cgroups", "ident", "marker", "pid", "sole", "start")

    def __init__(self, ident: int, pid: int, request: dict[str, Any], start: int) -> None:
        self.ident = ident
        self.pid = pid
        self.start = start  # says why it could not get ready, and is closed when it executes
        self.cgroups: list[str] = request.get("cgroups", [])
        self.marker: str | None = request.get("marker")
        # Only the last leader of a VM takes the rest of the VM with it: launched tasks come and go beside the script.
        self.sole: bool = request.get("sole", True)


class Nursery:
    """The loop of the program; its only state is the table of live leaders."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, Child] = {}  # by pid
        self.by_ident: dict[int, Child] = {}
        self.starting: dict[int, Child] = {}  # by `start`
        self.poll = select.poll()
        self.pid = os.getpid()

    def serve(self) -> None:
        """Answer until the hypervisor closes its end."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, _hear_nothing)
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(reader, select.POLLIN)
        while True:
            for fd, _ in self.poll.poll():
                if fd == reader:
                    _drain(reader)
                    self.reap()
                elif fd != self.control.fileno():
                    self.hear_start(fd)
                elif not self.receive():
                    return

    def receive(self) -> bool:
        header, fds, _, _ = socket.recv_fds(self.control, HEADER.size, 3)
        while 0 < len(header) < HEADER.size:
            more = self.control.recv(HEADER.size - len(header))
            if not more:
                return False
            header += more
        if not header:
            return False
        size, ident = HEADER.unpack(header)
        try:
            if size > FRAME_BYTES_MAX:
                why = f"arguments and environment are too large ({size} bytes; at most {FRAME_BYTES_MAX})"
                self.refuse(ident, why)
                return _skip_exactly(self.control, size)
            body = _read_exactly(self.control, size)
            if body is None:
                return False
            try:
                request = json.loads(body)
            except ValueError as error:
                self.refuse(ident, f"its description cannot be read: {error}")
            else:
                self.obey(request, fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def refuse(self, ident: int, why: str) -> None:
        self.send({"event": "refused", "id": ident, "why": why})

    def obey(self, request: dict[str, Any], fds: list[int]) -> None:
        op, ident = request["op"], request["id"]
        if op == "run":
            self.run(ident, request, fds)
        elif op == "signal":
            child = self.by_ident.get(ident)
            # Everything of the VM, by cgroup, uid or marker, or only the group that the child leads.
            pids = owned_pids(request.get("cgroups", []), request.get("uid"), request.get("marker"))
            for pid in pids:
                kill(pid, request["signal"])
            if child is not None and child.pid not in pids:
                kill_group(child.pid, request["signal"])

        elif op == "warn" and ident in self.by_ident:
            self.warn(self.by_ident[ident].pid, request)

    def warn(self, leader: int, request: dict[str, Any]) -> None:
        """A signal for the leader alone, or for those of its process group that are not the leader."""
        if request["script"]:
            kill(leader, request["signal"])
            return
        for pid in owned_pids(request.get("cgroups", []), request.get("uid"), request.get("marker")):
            if pid != leader and group_of(pid) == leader:
                kill(pid, request["signal"])

    def run(self, ident: int, request: dict[str, Any], fds: list[int]) -> None:
        ends: tuple[int, ...] = ()
        if _jobs_place is not None:
            _jobs_place.look()
        try:
            ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            pid = os.fork()
        except OSError as error:
            for end in ends:
                os.close(end)
            self.refuse(ident, os.strerror(error.errno or 0))
            return
        start, ready = ends
        if pid == 0:
            _become(request, fds, self.pid, ready)
        os.close(ready)
        child = Child(ident, pid, request, start)
        self.children[pid] = self.by_ident[ident] = self.starting[start] = child
        self.poll.register(start, select.POLLIN)

    def hear_start(self, fd: int) -> None:
        """A child executes, has said why it does not, or is gone."""
        child = self.starting.get(fd)
        if child is None:
            return  # it has ended in the meantime
        try:
            why = os.read(fd, WHY_BYTES_MAX)
        except BlockingIOError:
            return
        del self.starting[fd]
        self.poll.unregister(fd)
        os.close(fd)
        if why:
            self.refuse(child.ident, why.decode(errors="replace"))
        else:
            self.send({"event": "started", "id": child.ident, "pid": child.pid})

    def reap(self) -> None:
        """Collect every child that has ended; a leader's left-overs die before its pid is given back."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            child = self.children.pop(ended.si_pid, None)
            if child is not None:
                kill_group(child.pid, signal.SIGKILL)
                if child.sole:
                    purge(child.cgroups, None, child.marker, spare=child.pid)
            _, status, usage = os.wait4(ended.si_pid, 0)
            if child is not None:
                self.hear_start(child.start)
                del self.by_ident[child.ident]
                self.send(_obituary(child.ident, status, usage))

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        try:
            self.control.sendall(ANSWER.pack(len(body)) + body)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise

    def finish(self) -> None:
        """Kill every leader, its VM and everything that was orphaned to this process; return when nothing is left."""
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            for child in list(self.children.values()):
                kill_group(child.pid, signal.SIGKILL)
                purge(child.cgroups, None, child.marker, spare=child.pid)
            for pid in children_of(self.pid):
                kill(pid, signal.SIGKILL)
            try:
                while True:
                    pid, _ = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    self.children.pop(pid, None)
            except ChildProcessError:
                return
            time.sleep(0.002)


def _hear_nothing(_number: int, _frame: object) -> None:
    """A handler for signals that only have to be caught."""


def _obituary(ident: int, status: int, usage: resource.struct_rusage) -> dict[str, Any]:
    return {
        "event": "ended",
        "id": ident,
        "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "max_rss_kb": usage.ru_maxrss,
    }


def _become(request: dict[str, Any], fds: list[int], parent: int, ready: int) -> NoReturn:
    """In the child: become what the request says and execute; never returns, never raises."""
    code = EXIT_CANNOT_EXECUTE
    try:
        _get_ready(request, fds, parent)
    except BaseException as error:
        os.write(ready, str(error).encode()[:WHY_BYTES_MAX] or b"no reason is known")
        os._exit(code)
    try:
        _open_stdin(request)
        code = _execute(request["argv"], request["environment"])
    except BaseException as error:
        os.write(2, f"phoenix: the process could not be started: {error}\n".encode())
    finally:
        os._exit(code)


def _get_ready(request: dict[str, Any], fds: list[int], parent: int) -> None:
    """What this machine must do for it. Raises OSError."""
    signal.set_wakeup_fd(-1)
    for ignored in _ignored:
        signal.signal(ignored, signal.SIG_DFL)
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number, inheritable=True)
    for path in request.get("cgroups", []):
        group = os.open(path + "/cgroup.procs", os.O_WRONLY)
        os.write(group, b"0")
        os.close(group)
        _check_count(path)
    if request.get("serves") and _jobs_place is not None:
        _jobs_place.go_back()
    if request.get("devices"):
        fence(request["room"], request["devices"], request["uid"])
    _drop_rights(request)
    if os.getppid() != parent:
        os._exit(EXIT_CANNOT_EXECUTE)
    os.umask(0o022)
    _enter(request)


def _check_count(path: str) -> None:
    """Rule 9.  Raises OSError."""
    try:
        with open(path + "/pids.max") as most, open(path + "/pids.current") as now:
            limit, count = most.read().strip(), int(now.read())
    except FileNotFoundError:
        return  # not every group has this limit
    if limit != "max" and count > int(limit):
        raise OSError(f"all {limit} processes that this machine may have are in use")


def _drop_rights(request: dict[str, Any]) -> None:
    for name, limit in request.get("rlimits", {}).items():
        _limit(getattr(resource, name), limit)
    uid = request.get("uid")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _limit(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _enter(request: dict[str, Any]) -> None:
    """Go to the wished directory if this user may, else to the room, saying so on stderr and in the room's note."""
    wished = request.get("directory")
    if wished:
        try:
            os.chdir(wished)
            return
        except OSError as error:
            note = f"the directory {wished} cannot be entered ({os.strerror(error.errno or 0)}): ran in the VM's own directory"
            os.write(2, f"phoenix: {note}\n".encode())
            _leave_note(request, note)
    os.chdir(request["room"])


def _open_stdin(request: dict[str, Any]) -> None:
    """The file that the job wants on its stdin, with its own rights and from where it runs. Raises OSError."""
    path = request.get("stdin")
    if path:
        fd = os.open(path, os.O_RDONLY)
        os.dup2(fd, 0, inheritable=True)
        os.close(fd)


def _execute(argv: list[str], environment: dict[str, str]) -> int:
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    except OSError as error:
        why, code = _why_not(argv[0], environment, error)
        os.write(2, f"phoenix: cannot run {argv[0]}: {why}\n".encode())
        return code


def _why_not(name: str, environment: dict[str, str], error: OSError) -> tuple[str, int]:
    """The sentence, and a shell's exit code. A directory of PATH that may not be looked into is one without it."""
    places = [name] if "/" in name else [os.path.join(place, name) for place in os.get_exec_path(environment)]
    if not any(map(os.path.isfile, places)):
        return "there is no such program" + ("" if "/" in name else " in PATH"), EXIT_NOT_FOUND
    if error.errno == errno.ENOENT:
        return "its first line names no interpreter that is there", EXIT_NOT_FOUND
    return os.strerror(error.errno or 0), EXIT_CANNOT_EXECUTE


def _leave_note(request: dict[str, Any], note: str) -> None:
    path = request.get("note")
    if path:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        os.write(fd, note.encode())
        os.close(fd)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def _go_to_jobs() -> None:
    """Rule 11.  Raises OSError."""
    global _jobs_place  # noqa: PLW0603  # of this process, which is one nursery
    for word in sys.argv:
        if word.startswith(NETWORK):
            _jobs_place = JobsPlace(int(word.removeprefix(NETWORK)))


def _hide_processes() -> bool:
    """Rule 10; False where the machine does not let it."""
    if _libc.unshare(CLONE_NEWNS) != 0 or _libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC_SLAVE), None) != 0:
        return False
    return bool(_libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(MS_NOSUID_NODEV_NOEXEC), b"hidepid=2") == 0)


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


def _read_exactly(control: socket.socket, size: int) -> bytes | None:
    chunks: list[bytes] = []
    while size:
        chunk = control.recv(min(size, 1 << 16))
        if not chunk:
            return None
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def _skip_exactly(control: socket.socket, size: int) -> bool:
    while size:
        chunk = control.recv(min(size, 1 << 16))
        if not chunk:
            return False
        size -= len(chunk)
    return True


def main() -> int:
    """Serve the socket that is descriptor 0 until it is closed, then leave nothing behind."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    # A terminal's Ctrl-C reaches the whole group; the nursery ends when the hypervisor does, not before. Caught, not
    # ignored: exec puts a caught signal back to its default. What it was started with as ignored it keeps ignoring, so that
    # the cloud behaves as one; its children put that back themselves.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, _hear_nothing)
    _ignored.extend(n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # also for itself: it must hear SIGCHLD
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if HIDE in sys.argv:
        _hide_processes()
    _go_to_jobs()
    # What is the same for all children is set once and inherited.
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    # A collection would touch every page and so copy them all for a child that is about to execute something else.
    gc.disable()
    gc.freeze()
    nursery = Nursery(control)
    try:
        nursery.serve()
    finally:
        nursery.finish()
    return 0
