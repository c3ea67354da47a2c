"""Where directories of VMs and programs are, and that their users can get in while others cannot look around.

Theory of operation. A job runs under a uid that is not the cloud's, so its room and our programs must be reachable for
strangers, while the data directory and other rooms must not be:

    <house>/            0711  may be passed, not listed
        rooms/          0711  rooms/<vm_id>  0700, owned by the VM's uid; rooms/<vm_id>.2 is its second job's
        stowed/         0700  rooms of VMs that are saved and on no host
        bin/            0755  phoenix, launch.py, checkpoint.py, webapp.py: self-contained copies, standard library only

Where VMs run under the cloud's own user, the house is `<data>/vms`. Where they have users of their own, the data
directory is closed to them (0700), so the house stands in the machine's temporary directory and `<data>/vms` links to
it. A cloud that starts with another isolation than before finds the house of the other kind: it moves out of it (`former`).
The programs are copies because the installation may be closed to strangers in the same way (a home under /root);
they run with the first python3 that is open.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from phoenix.local.guest.machine import Programs
from phoenix.local.process.removal import remove

NOBODY_UID = 65534
PROBE_DEADLINE_S = 20.0
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGE = Path(__file__).resolve().parents[2]
COPIES = {
    "launch.py": PACKAGE / "cli" / "launch.py",
    "checkpoint.py": PACKAGE / "cli" / "checkpoint.py",
    "webapp.py": PACKAGE / "local" / "webapp" / "program.py",
}
LAUNCHER = """#!/bin/sh
# Phoenix inside a VM: `launch` and `checkpoint` need no installation; everything else is its, where a job may use it.
[ "$1" = checkpoint ] && exec '{python}' -I -S '{checkpoint}' "$@"
{otherwise}exec '{python}' -I -S '{launch}' "$@"
"""
LAUNCHER_WITHOUT_PYTHON = """#!/bin/sh
echo 'phoenix: no python3 on this machine is readable by this job: install one outside of closed directories' >&2
exit 127
"""

_log = logging.getLogger(__name__)


class House:
    """Directories and programs of one hypervisor. `strangers`: VMs run under uids of their own."""

    def __init__(self, data_dir: Path, strangers: bool) -> None:
        self.former = None if strangers else _former(data_dir)  # the house of an isolation with users, until `empty`
        self.path = _site(data_dir, strangers)
        self.rooms = self.path / "rooms"
        self.stowed = self.path / "stowed"
        self.bin = self.path / "bin"
        modes = ((self.path, 0o711), (self.rooms, 0o711), (self.stowed, 0o700), (self.bin, 0o755))
        for directory, mode in modes:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(mode)
        # A lock on a directory tells systemd-tmpfiles that it is in use, however old its files are.
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.python = _open_python(strangers)
        self._installed = _installation(strangers, self.python)
        self.programs = self._install(_path(strangers))

    def demolish(self) -> None:
        """Remove everything; VMs and their rooms do not outlive their hypervisor."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        _cleared(self.path)

    def empty(self) -> None:
        """Remove every room: nothing of a former life of this hypervisor runs any more."""
        for room in (*self.rooms.iterdir(), *self.stowed.iterdir()):
            _cleared(room)
        if self.former is not None:
            _cleared(self.former)
            self.former = None

    def clear(self, vm_id: int) -> None:
        """Remove the rooms of one VM, of all its lives."""
        name = str(vm_id)
        for directory in (self.rooms, self.stowed):
            with contextlib.suppress(FileNotFoundError):
                for room in os.listdir(directory):
                    if room.partition(".")[0] == name:
                        _cleared(directory / room)

    def _install(self, path: str) -> Programs:
        for name, source in COPIES.items():
            if source.exists():
                _publish(self.bin / name, source.read_text(), 0o644)
        if self.python is None:
            _publish(self.bin / "phoenix", LAUNCHER_WITHOUT_PYTHON, 0o755)
            return Programs(path=f"{self.bin}:{path}", web_instance=None)
        otherwise = f'[ "$1" = launch ] || exec \'{self._installed}\' "$@"\n' if self._installed else ""
        programs = {name: self._compiled(f"{name}.py") for name in ("launch", "checkpoint")}
        launcher = LAUNCHER.format(python=self.python, otherwise=otherwise, **programs)
        _publish(self.bin / "phoenix", launcher, 0o755)
        web_instance = (self.python, "-I", "-S", str(self._compiled("webapp.py")))
        return Programs(path=f"{self.bin}:{path}", web_instance=web_instance)

    def _compiled(self, name: str) -> Path:
        """The program compiled by the interpreter that will run it: on a twentieth of a core that saves 0.1 s a start."""
        source, target = self.bin / name, self.bin / f"{name}c"
        assert self.python is not None
        compiled = f"py_compile.compile({str(source)!r}, {str(target)!r}, {name!r}, doraise=True)"
        imported = f"py_compile.compile({str(source)!r}, doraise=True)"  # where `import` looks for it: checkpoint does
        code = f"import py_compile; {compiled}; {imported}"
        done = subprocess.run([self.python, "-I", "-S", "-c", code], check=False, timeout=PROBE_DEADLINE_S)
        if done.returncode != 0:
            return source
        target.chmod(0o644)
        cache = self.bin / "__pycache__"
        cache.chmod(0o755)
        for compiled_too in cache.iterdir():
            compiled_too.chmod(0o644)
        return target


def _cleared(path: Path) -> None:
    """What cannot be removed is reported, and blocks nothing: no VM gets a directory of that name again."""
    try:
        remove(path)
    except OSError as error:
        _log.warning("%s cannot be removed: %s", path, error)


def _site(data_dir: Path, strangers: bool) -> Path:
    """Where the house stands; with strangers a link in the (closed) data directory shows where."""
    link = data_dir.resolve() / "vms"
    if not strangers:
        return link
    site = Path(tempfile.gettempdir()).resolve() / _name(link)
    site.mkdir(mode=0o700, exist_ok=True)
    status = site.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{site} exists and is not ours: remove it")
    if not link.is_symlink():
        if link.exists():
            remove(link)
        link.symlink_to(site)
    return site


def _former(data_dir: Path) -> Path | None:
    """The house that the link shows, if it is one of ours that still stands; the link is gone then."""
    link = data_dir.resolve() / "vms"
    if not link.is_symlink():
        return None
    site = link.readlink()
    link.unlink()
    try:
        status = site.lstat()
    except OSError:
        return None
    ours = site.name == _name(link) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return site if ours else None


def _name(link: Path) -> str:
    return f"phoenix-{hashlib.sha256(str(link).encode()).hexdigest()[:12]}"


def _path(strangers: bool) -> str:
    """The hypervisor's own PATH where it has one, without what strangers cannot enter: it would hide "not found"."""
    path = os.environ.get("PATH") or SYSTEM_PATH
    if not strangers:
        return path
    return ":".join(place for place in path.split(":") if _enterable(Path(place))) or SYSTEM_PATH


def _enterable(directory: Path) -> bool:
    try:
        real = directory.resolve(strict=True)
        return directory.is_absolute() and all(place.stat().st_mode & stat.S_IXOTH for place in (real, *real.parents))
    except OSError:
        return False


def _open_python(strangers: bool) -> str | None:
    """The first python3 that a stranger can run; ours if there are no strangers."""
    if not strangers:
        return sys.executable
    return next((candidate for candidate in _candidates() if _runs_for_strangers(candidate)), None)


def _installation(strangers: bool, python: str | None) -> Path | None:
    """The installed `phoenix` if jobs can use it: its interpreter and its directory must be open to them."""
    program = Path(sysconfig.get_path("scripts"), "phoenix")
    usable = not strangers or (python == str(Path(sys.executable).resolve()) and _enterable(program.parent))
    return program if usable and program.is_file() else None


def _candidates() -> Iterator[str]:
    yield str(Path(sys.executable).resolve())
    for directory in (_path(True) + ":" + SYSTEM_PATH).split(":"):
        candidate = Path(directory, "python3")
        if candidate.is_file():
            yield str(candidate.resolve())


def _runs_for_strangers(python: str) -> bool:
    """Ask the interpreter itself, as the user `nobody`: reading permissions would miss libraries, links and wrappers."""
    code = "import sys, json, selectors; sys.exit(sys.version_info < (3, 8))"
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", code],
            user=NOBODY_UID,
            group=NOBODY_UID,
            extra_groups=[],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _publish(path: Path, content: str, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(content)
    temporary.chmod(mode)
    temporary.replace(path)
