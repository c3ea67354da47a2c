"""A job listens where somebody is expected, at a port of the cloud's while its process is started again; or takes the names by
which ports are chosen."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from phoenix.local.port_claims import PASSING, claimed, is_roots
from tests.integration.up_cloud import Cloud, until

UP = ("up", "--detach", "--hosts", "2")
NOBODY = 65534


def refused(port: int) -> bool:
    """Whether somebody who tries to listen there is; as a job would, with SO_REUSEADDR."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    found = Cloud(tmp_path_factory.mktemp("ports") / "data")
    found.ok(*UP)
    yield found
    found.close()


def test_nobody_takes_a_port_of_the_cloud_while_its_process_is_started_again(cloud: Cloud) -> None:
    """What is asked meanwhile waits, and is answered."""
    parts = [part for part in cloud.json("status")["processes"] if part["name"] != "nats" and part["url"]]
    ports = {int(urlsplit(part["url"]).port or 0) for part in parts}
    known = cloud.json("status")
    ports |= {int(urlsplit(known[door]).port or 0) for door in ("http_url", "monitor_url")}
    answered: list[int] = []

    def ask() -> None:
        try:
            urlopen(f"{known['http_url']}/v1/queue", timeout=60).close()
        except HTTPError as error:
            answered.append(error.code)

    for part in parts:
        os.kill(part["pid"], signal.SIGSTOP)  # so that it does not end before the port is tried once
    asker = threading.Thread(target=ask)
    asker.start()
    for part in parts:
        os.kill(part["pid"], signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{part['pid']}/fd/0").exists() for part in parts), "they do not end")
    tried = 0
    while tried < 100 or not cloud.status()["healthy"]:
        assert [port for port in ports if not refused(port)] == []
        tried += 1
    asker.join(60)
    assert answered == [401]


def test_as_root_nobody_else_may_listen_where_nats_does(cloud: Cloud) -> None:
    port = int(urlsplit(cloud.json("status")["nats_url"]).port or 0)
    if os.geteuid() != 0 or not is_roots(1):
        assert not is_roots(port)
        return
    cloud.ok("down")
    os.seteuid(NOBODY)
    try:
        with pytest.raises(PermissionError):
            socket.create_server(("127.0.0.1", port))
    finally:
        os.seteuid(0)
    cloud.ok(*UP)


def test_names_that_anybody_may_take_keep_no_instance_from_its_port() -> None:
    """Abstract sockets belong to whoever is first."""
    taken = []
    port = next(port for port in PASSING if (claim := claimed(port)) is not None and not claim.close())
    for name in (f"\0phoenix-cloud.port.{port}", f"\0phoenix-ports.{port}"):
        taken.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        taken[-1].bind(name)
    claim = claimed(port)
    for held in taken:
        held.close()
    assert claim is not None
    claim.close()


def test_two_claims_of_one_process_exclude_each_other_and_end_one_by_one() -> None:
    port, other = [port for port in PASSING if (claim := claimed(port)) is not None and not claim.close()][:2]
    with claimed(port) or pytest.fail("not free"):
        assert claimed(port) is None
        second = claimed(other)
        assert second is not None
        second.close()
        assert claimed(port) is None, "closing another one keeps this one"
    again = claimed(port)
    assert again is not None
    again.close()
