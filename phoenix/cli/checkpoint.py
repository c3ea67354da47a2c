"""`phoenix checkpoint [FILES…]`: from inside a job, what I have done until now is safe.

Standard library only, and beside `launch.py`, whose channel it uses: it is copied next to the VMs and runs there under their
users. `docs/reference/guests.md` has the calls.

1. Files are named relative to the job's own directory (HOME) and lie below it: that is where the next attempt finds them. They
   are plain files, reached without following any link, each read once. Nothing is said before all of them were sent.
2. All or nothing: unless the answer is "acknowledged", the last checkpoint stays, and the exit code is not 0.
3. It may run in the job's grace time, so it does not wait long: a door that does not answer within the deadline is exit code 3.
4. The token is read from its file and sent in a header, never in arguments or output.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from typing import Any

if __package__:
    from phoenix.cli.launch import Channel, LaunchError, channel
else:  # the copy next to the VMs, which lies beside launch.py
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from launch import Channel, LaunchError, channel  # type: ignore[import-not-found,no-redef]

USAGE = """usage: phoenix checkpoint [--percent N] [--progress TEXT] [FILES…]
  FILES            of the job's directory: the next attempt finds them there before its script starts
  --percent N      how much of the whole job is done, 0 to 100
  --progress TEXT  the same in words (200 characters), for `phoenix show`
Runs inside a job's script, on its first node. What the job has done until now is safe; only what comes after is lost if its
hosts are needed. Without FILES the job keeps its state itself, on storage that all hosts share."""
DEADLINE_S = 60.0
FILE_BYTES_MAX = 256 << 20  # what the object store takes in one piece; the cloud's own limit is lower
UNRESERVED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
TEXT_MAX = 200
UNREACHABLE = 3


def main(argv: list[str]) -> int:
    """Run the command line after `checkpoint`; returns the exit code."""
    try:
        said = parse(argv)
        if said is None:
            print(USAGE)
            return 0
        names, body = said
        answer = say(channel("checkpoint", time.monotonic() + DEADLINE_S), names, body)
        files = f"{answer['files']} file{'' if answer['files'] == 1 else 's'}" if names else ""
        print(f"safe: {files}, {answer['bytes']} bytes" if names else "safe", flush=True)
        return 0
    except LaunchError as error:
        print(f"phoenix checkpoint: {error}", file=sys.stderr)
        return error.code


def parse(argv: list[str]) -> tuple[list[str], dict[str, Any]] | None:
    """Names below the job's directory, and what is said beside them; None: help was asked."""
    body: dict[str, Any] = {"id": os.urandom(8).hex()}
    names, rest = [], list(argv)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            return None
        if word == "--":
            names += rest
            break
        if option in ("--percent", "--progress"):
            if not equals and not rest:
                raise LaunchError(f"{option} needs a value\n{USAGE}", 2)
            body[option[2:]] = _checked(option, value if equals else rest.pop(0))
        elif word.startswith("-") and word != "-":
            raise LaunchError(f"option {word} is unknown\n{USAGE}", 2)
        else:
            names.append(word)
    return list(dict.fromkeys(relative(name) for name in names)), body


def _checked(option: str, text: str) -> float | str:
    if option == "--progress":
        if len(text) > TEXT_MAX or any(ord(character) < 32 or ord(character) == 127 for character in text):
            raise LaunchError(f"--progress: one line of at most {TEXT_MAX} characters", 2)
        return text
    try:
        percent = float(text.rstrip("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise LaunchError(f"--percent {text}: a number from 0 to 100", 2)
    return percent


def relative(name: str) -> str:
    """The file's name below the job's directory; links in the name are not followed (`read`)."""
    base = os.path.realpath(_home())
    path = os.path.normpath(os.path.join(os.path.realpath(os.getcwd()), name))
    if os.path.isabs(name):
        path = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name)))
    if ".." in name.split("/") or not path.startswith(base + "/"):
        raise LaunchError(
            f"{name}: not below the job's directory ({base}); what is on shared storage needs no name: "
            "call `phoenix checkpoint` without files",
            2,
        )
    found = path[len(base) + 1 :]
    try:
        found.encode()
    except UnicodeEncodeError:
        raise LaunchError(f"{name!r}: its name is no text", 2) from None
    if any(ord(character) < 32 or ord(character) == 127 for character in found):
        raise LaunchError(f"{name!r}: its name has control characters", 2)
    return found


def _home() -> str:
    room = os.environ.get("PHOENIX_ROOM")
    if not room:
        raise LaunchError("PHOENIX_ROOM is not set: checkpoint works only inside a job's script", 2)
    return os.path.join(room, "work")


def read(name: str) -> bytes:
    """The content of a plain file below the job's directory, reached without following any link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    parts = name.split("/")
    fd = -1
    try:
        fd = os.open(_home(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for number, part in enumerate(parts, 1):
            inner = os.open(part, flags | (os.O_DIRECTORY if number < len(parts) else 0), dir_fd=fd)
            os.close(fd)
            fd = inner
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise LaunchError(f"{name}: not a plain file", 2)
        if status.st_size > FILE_BYTES_MAX:
            raise LaunchError(f"{name}: {status.st_size} bytes are too many for a checkpoint")
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(status.st_size)  # as it is now; who writes on meanwhile gets this much
    except OSError as error:
        why = "a link, which is not followed" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise LaunchError(f"{name}: {why}", 2) from error
    finally:
        if fd >= 0:
            os.close(fd)


def say(door: Channel, names: list[str], body: dict[str, Any]) -> Any:
    """Send the files, one in memory at a time, then say that they are a checkpoint (rule 2)."""
    named = []
    if names:
        import hashlib  # a fifth of this program's time, and many checkpoints have no files
    for name in names:
        data = read(name)
        door.call("PUT", "checkpoint/files/" + quoted(name), data)
        named.append({"name": name, "sha256": hashlib.sha256(data).hexdigest()})
    return door.call("POST", "checkpoint", {**body, "files": named})


def quoted(name: str) -> str:
    """For a path of a URL. By hand: importing urllib.parse costs as long as all the rest."""
    return "".join(chr(byte) if byte in UNRESERVED else f"%{byte:02X}" for byte in name.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:] if sys.argv[1:2] == ["checkpoint"] else sys.argv[1:]))
