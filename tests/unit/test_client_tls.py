"""The client library and the command line against servers with certificates: which are trusted, and that nothing is sent to the
others."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from phoenix.cli.errors import DENIED, CliError
from phoenix.cli.http import Client as CliClient
from phoenix.cli.retrying import ask_again
from phoenix.client import Client, Invalid, SyncClient, Untrusted
from tests.support.scripted import answer, scripted

HOSTS = answer(200, {"hosts": [{"host": "h1", "state": "free"}]})
EVENT = b'{"id":"8.0","position":8,"index":0,"at":"2026-01-31T12:00:00Z","kind":"host.lost"}\n'


class Authority:
    """Its certificate in `file`, and servers whose certificates it has signed."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ca = trustme.CA()
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def server(self, name: str = "127.0.0.1", until: datetime | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(name, not_after=until).configure_cert(context)
        return context


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "others")


async def test_a_server_of_a_trusted_authority_is_asked(ours: Authority) -> None:
    async with (
        scripted(HOSTS, answer(200, EVENT), tls=ours.server()) as server,
        Client(server.url, "secret", ca_file=ours.file) as client,
    ):
        assert [host.host for host in await client.hosts()] == ["h1"]
        assert [event.id async for event in client.events(after=7, follow=False)] == ["8.0"]
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer secret"] * 2


async def test_and_by_programs_without_a_loop(ours: Authority) -> None:
    async with scripted(HOSTS, tls=ours.server()) as server:

        def ask() -> list[str]:
            with SyncClient(server.url, "secret", ca_file=str(ours.file)) as client:
                return [host.host for host in client.hosts()]

        assert await asyncio.to_thread(ask) == ["h1"]


async def test_the_environment_names_authorities_for_the_library_and_the_command_line(
    ours: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ours.file))
    async with scripted(HOSTS, HOSTS, tls=ours.server()) as server:
        async with Client(server.url, "secret") as client:
            assert len(await client.hosts()) == 1
        assert len((await asyncio.to_thread(CliClient(server.url, "secret").get, "/v1/hosts"))["hosts"]) == 1


CASES = ["unknown authority", "another name", "over"]


def wrong(case: str, ours: Authority, others: Authority) -> tuple[ssl.SSLContext, str, str]:
    """A server, and how message and hint name what is wrong with it."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    return {
        "unknown authority": (others.server(), "unable to get local issuer certificate", "certificate authority"),
        "another name": (ours.server("cloud.example"), "IP address mismatch", "the name in the address"),
        "over": (ours.server(until=past), "certificate has expired", "certificate authority"),
    }[case]


@pytest.mark.parametrize("case", CASES)
async def test_nothing_is_sent_to_a_server_that_is_not_trusted(case: str, ours: Authority, others: Authority) -> None:
    tls, message, hint = wrong(case, ours, others)
    async with scripted(HOSTS, tls=tls) as server, Client(server.url, "secret", ca_file=ours.file) as client:
        for call in (client.hosts(), client.submit(argv=["true"]), client.wait("7"), anext(client.output("7"))):
            with pytest.raises(Untrusted, match=message) as caught:
                await call
            assert not caught.value.unanswered
            assert hint in caught.value.hint
        with pytest.raises(Untrusted, match=message):
            await anext(client.events(after=7))
    assert server.asked == []


@pytest.mark.parametrize("case", CASES)
async def test_nor_by_a_program_without_a_loop_or_the_command_line(
    case: str, ours: Authority, others: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, message, hint = wrong(case, ours, others)

    def ask(url: str) -> None:
        with SyncClient(url, "secret", ca_file=ours.file) as client, pytest.raises(Untrusted, match=message):
            client.hosts()
        with pytest.raises(CliError, match=message) as caught:
            ask_again(CliClient(url, "secret"), "/v1/jobs", {"request": "r1"})
        assert (caught.value.code, hint in caught.value.hint) == (DENIED, True)

    monkeypatch.setenv("SSL_CERT_FILE", str(ours.file))
    async with scripted(HOSTS, tls=tls) as server:
        await asyncio.to_thread(ask, server.url)
    assert server.asked == []


@pytest.mark.parametrize("client", [Client, SyncClient])
def test_a_bundle_that_cannot_be_read_is_refused_at_once(
    client: type[Client] | type[SyncClient], tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").touch()
    with pytest.raises(Invalid, match="no certificate in it"):
        client("https://127.0.0.1:1", ca_file=tmp_path / "empty.pem")
    with pytest.raises(Invalid, match="cannot read the certificates: No such file"):
        client("https://127.0.0.1:1", ca_file=tmp_path / "none.pem")
