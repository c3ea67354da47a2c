"""A machine and what lies outside of it, as two network namespaces with a wire between them; and in the machine the jobs'
network with its way out.  Prints what is reached from there, as JSON.

    python -m tests.support.two_networks PASTA
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from phoenix.local.guest.machine import Launch
from phoenix.local.network.namespace import CLONE_NEWNET, JobsNetwork
from phoenix.local.network.pasta import PR_SET_PDEATHSIG
from phoenix.local.process.network import CLONE_NEWNS, RESOLV_CONF, RESOLVER
from phoenix.local.process.spawner import Containment, Spawner
from tests.integration.up_cloud import until

MACHINE, GATEWAY, SERVER = "198.51.100.2", "198.51.100.1", "203.0.113.7"
MACHINE_V6 = "2001:db8::2"
HELLO, DOOR_HELLO = b"outside says hello", b"the door says hello"
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kind: int) -> None:
    assert _libc.unshare(kind) == 0, os.strerror(ctypes.get_errno())


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def serve_outside(wire: socket.socket) -> None:
    """In a process of its own: the gateway, and a server behind it."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    unshare(CLONE_NEWNET)
    wire.send(b".")
    wire.recv(1)  # the wire is there
    for name, address in (("lo", f"{SERVER}/32"), ("wire1", f"{GATEWAY}/24")):
        ip("link", "set", name, "up")
        ip("address", "add", address, "dev", name)
    stream = socket.create_server((SERVER, 7))
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagram.bind((SERVER, 7))
    threading.Thread(target=echo, args=(datagram,), daemon=True).start()
    wire.send(b".")
    greet(stream, HELLO)


def greet(stream: socket.socket, said: bytes) -> None:
    while True:
        there, _ = stream.accept()
        there.sendall(said)
        there.close()


def echo(datagram: socket.socket) -> None:
    while True:
        _, sender = datagram.recvfrom(64)
        datagram.sendto(HELLO, sender)


def make_machine() -> int:
    """This process's; returns the pid of what is outside."""
    ours, theirs = socket.socketpair()
    outside = os.fork()
    if outside == 0:
        ours.close()
        serve_outside(theirs)
    ours.recv(1)
    unshare(CLONE_NEWNET)
    ip("link", "set", "lo", "up")
    ip("link", "add", "wire0", "type", "veth", "peer", "name", "wire1", "netns", str(outside))
    ip("address", "add", f"{MACHINE}/24", "dev", "wire0")
    ip("address", "add", f"{MACHINE_V6}/64", "dev", "wire0", "nodad")
    ip("link", "set", "wire0", "up")
    ip("route", "add", "default", "via", GATEWAY)
    ours.send(b".")
    ours.recv(1)
    return outside


def tried(network: JobsNetwork, host: str, port: int) -> str:
    try:
        with network.inside(), socket.create_connection((host, port), 20) as client:
            return client.recv(64).decode()
    except OSError as error:
        return type(error).__name__


def asked(network: JobsNetwork, *address: Any) -> str:
    with network.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(20)
        client.sendto(b"?", address)
        return client.recv(64).decode()


async def resolvers(network: JobsNetwork) -> dict[str, str]:
    """`/etc/resolv.conf` as a job sees it, and an instance; and a job after the machine's has been replaced."""
    file = Path(RESOLV_CONF)
    spawner = Spawner()
    spawner.network = network.net
    spawner.start()

    async def seen(serves: bool) -> str:
        with tempfile.TemporaryFile() as said:
            launch = Launch(["/bin/cat", str(file)], {}, "/", serves=serves)
            process = await spawner.run(launch, Containment(), (said.fileno(),) * 3)
            await process.wait()
            return os.pread(said.fileno(), 1000, 0).decode()

    try:
        told = {"job": await seen(False), "instance": await seen(True)}
        replace(file, "options edns0\n")
        return told | {"later": await seen(False)}
    finally:
        await spawner.close()


def replace(file: Path, more: str) -> None:
    another = file.with_suffix(".new")
    another.write_text(file.read_text() + more)
    another.rename(file)


def with_resolver(directory: Path) -> None:
    """This process finds the machine's resolver on its loopback, in an /etc that may be changed."""
    shutil.copytree("/etc", directory / "etc", symlinks=True)
    named = directory / "etc" / Path(RESOLV_CONF).name
    named.unlink(missing_ok=True)
    named.write_text("nameserver 127.0.0.53\nsearch example.com\n")
    named.chmod(0o644)
    unshare(CLONE_NEWNS)
    subprocess.run(["mount", "--make-rslave", "/"], check=True)
    subprocess.run(["mount", "--bind", str(directory / "etc"), "/etc"], check=True)
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagram.bind(("127.0.0.53", 53))
    threading.Thread(target=echo, args=(datagram,), daemon=True).start()


def open_doors(network: JobsNetwork) -> list[tuple[str, int]]:
    """At addresses of the machine, and everywhere; where they are reached."""
    doors = [socket.create_server((MACHINE, 0)), socket.create_server((MACHINE_V6, 0), family=socket.AF_INET6)]
    doors.append(socket.create_server(("0.0.0.0", 0)))
    for door in doors:
        threading.Thread(target=greet, args=(network.beside(door, 8), DOOR_HELLO), daemon=True).start()
    for host in (MACHINE, MACHINE, SERVER, "a.name"):
        network.have(host)
    return [
        (MACHINE, doors[0].getsockname()[1]),
        (MACHINE_V6, doors[1].getsockname()[1]),
        (MACHINE, doors[2].getsockname()[1]),
    ]


def start(network: JobsNetwork, program: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "phoenix.local.network.pasta", str(network.net), str(network.user), program]
    found = subprocess.Popen(words, pass_fds=(network.net, network.user))
    until(lambda: network.has_way_out() or found.poll() is not None, "pasta neither begins nor ends")
    return found


def about(pid: int) -> dict[str, Any]:
    fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    same = os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")
    return {"uid": int(fields["Uid"].split()[0]), "capabilities of the machine": same and int(fields["CapPrm"], 16) > 0}


def ends_with_parent(network: JobsNetwork, program: str) -> bool:
    """Whether it is gone when who started it has been killed."""
    ours, theirs = socket.socketpair()
    parent = os.fork()
    if parent == 0:
        theirs.send(start(network, program).pid.to_bytes(4))
        signal.pause()
    pid = int.from_bytes(ours.recv(4))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    until(lambda: not Path(f"/proc/{pid}/exe").exists(), "pasta is left")
    return True


def main(program: str) -> None:
    outside = make_machine()
    directory = Path(tempfile.mkdtemp())
    with_resolver(directory)
    network = JobsNetwork()
    doors = open_doors(network)
    # The kernel makes the route to a new IPv6 address a moment after it.
    until(lambda: tried(network, *doors[1]) == DOOR_HELLO.decode(), "the door is not reached")
    without = [tried(network, *door) for door in doors]
    pasta = start(network, program)
    try:
        with socket.create_server(("127.0.0.1", 0)) as loopback:
            port = loopback.getsockname()[1]
            threading.Thread(target=greet, args=(loopback, HELLO), daemon=True).start()
            told: dict[str, Any] = {
                "outside": tried(network, SERVER, 7),
                "datagram": asked(network, SERVER, 7),
                "doors without it": without,
                "doors": [tried(network, *door) for door in doors],
                "name": asked(network, RESOLVER, 53),
                "resolv.conf": asyncio.run(resolvers(network)),
                "loopback": {host: tried(network, host, port) for host in ("127.0.0.1", GATEWAY, MACHINE)},
                "pasta": about(pasta.pid),
            }
        pasta.kill()
        pasta.wait()
        told["pasta"]["ends with who started it"] = ends_with_parent(network, program)
    finally:
        pasta.kill()
        os.kill(outside, signal.SIGKILL)
        subprocess.run(["umount", "--lazy", "/etc"], check=True)
        shutil.rmtree(directory)
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
