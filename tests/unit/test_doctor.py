"""What the doctor finds: on the embedded OpenNebula, and on answers that it does not give.  Nothing is ever left behind."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyone
import pytest
from lxml import etree

from phoenix.cli.__main__ import main
from phoenix.doctor import checks
from phoenix.doctor.endpoint import Endpoint, is_loopback, speaks_zeromq
from phoenix.doctor.examination import examine
from phoenix.doctor.findings import Finding, worst
from phoenix.doctor.requirements import Wanted
from phoenix.local.opennebula.model import Acl
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import VmState
from phoenix.local.opennebula.store import Clock
from phoenix.local.opennebula.testing import running_server
from schemas.config import Hosts
from services.executor.core.call_errors import Failure
from services.executor.opennebula.errors import failure_of
from services.executor.opennebula.template import Templates
from tests.support.ports import free_port

DUMMY = Wanted(hypervisor="dummy")
NEEDED = ("VM/* CREATE+ADMIN+USE", "HOST/* USE+MANAGE", "DATASTORE/* USE")


async def examined(url: str, session: str, wanted: Wanted = DUMMY, dry: bool = False) -> list[Finding]:
    endpoint = Endpoint(url, session, "the-file", timeout_s=5.0)
    try:
        return await asyncio.to_thread(examine, endpoint, wanted, dry)
    finally:
        endpoint.close()


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [x for x in findings if x.check == check]


def levels(findings: list[Finding]) -> dict[str, str]:
    return {check: worst(of(findings, check)) for check in dict.fromkeys(x.check for x in findings)}


async def bob(one: OpenNebula, *rules: str) -> str:
    """Another user than oneadmin, with these rights."""

    def make() -> int:
        return int(pyone.OneServer(one.url, session=one.session).user.allocate("bob", "secret", "core", []))

    number = await asyncio.to_thread(make)
    one.store.acls.clear()
    for i, rule in enumerate(rules):
        one.store.acls[100 + i] = Acl(id=100 + i, text=f"#{number} {rule} *")
    return "bob:secret"


async def test_a_good_endpoint_has_nothing_that_fails_and_a_dry_run_leaves_nothing() -> None:
    async with running_server(3, cores=8, memory_mb=16384, settings=Settings(events_port=0)) as one:
        wanted = Wanted(hypervisor="dummy", events=f"127.0.0.1:{one.events.port}")
        found = await examined(one.url, one.session, wanted, dry=True)
        assert worst(found) == "ok", [x for x in found if x.level != "ok"]
        assert {"reachable", "version", "rights", "hosts", "hypervisor", "datastores", "quotas"} <= set(levels(found))
        assert {"connections", "scheduler", "events", "speed", "dry run"} <= set(levels(found))
        assert of(found, "hosts")[0].found == "3 usable: 24 cores, 48 GiB, in cluster default"
        assert [x.found for x in of(found, "dry run")][1:] == [
            "a deployment would have been allowed: it was refused for its size alone",
            "nothing of it is left",
        ]
        assert one.store.vms == {}


async def test_a_wrong_password_is_told_once_and_nothing_else_is_tried() -> None:
    async with running_server(1) as one:
        (found,) = await examined(one.url, "oneadmin:wrong")
        assert (found.check, found.level) == ("credentials", "fail")
        assert "oneadmin" in found.fix
        assert "the-file" in found.fix
        assert "wrong" not in found.found + found.fix


async def test_a_closed_port_is_unreachable_and_something_else_there_is_told() -> None:
    (found,) = await examined(f"http://127.0.0.1:{free_port()}/RPC2", "a:b")
    assert (found.check, found.level) == ("reachable", "fail")
    assert "connection_refused" in found.found
    async with await asyncio.start_server(_says_hello, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (found,) = await examined(f"http://127.0.0.1:{port}/RPC2", "a:b")
        assert (found.check, found.level) == ("reachable", "fail")
        assert await asyncio.to_thread(speaks_zeromq, "127.0.0.1", port) == "something else than ZeroMQ answers"


async def _says_hello(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 hello, this is no OpenNebula\r\n")
    writer.close()


async def test_an_empty_cluster_fails_for_its_hosts_alone() -> None:
    async with running_server(0) as one:
        found = await examined(one.url, one.session, dry=True)
        assert [x.check for x in found if x.level == "fail"] == ["hosts"]
        assert one.store.vms == {}


async def test_a_user_without_rights_is_told_which_rules_to_make() -> None:
    async with running_server(2) as one:
        session = await bob(one, "VM/* CREATE", "HOST/* USE", "DATASTORE/* USE")
        found = await examined(one.url, session, dry=True)
        (rights,) = of(found, "rights")
        assert rights.level == "fail"
        assert rights.found == "no rule lets bob ADMIN VM, MANAGE HOST"
        assert "oneacl create '#2 VM/* ADMIN'" in rights.fix
        denied = [x for x in of(found, "dry run") if x.level == "fail"]
        assert len(denied) == 1
        assert denied[0].found.startswith("permission: ")
        assert one.store.vms == {}


async def test_a_user_with_the_documented_rules_is_good() -> None:
    async with running_server(2) as one:
        session = await bob(one, *NEEDED)
        found = await examined(one.url, session, dry=True)
        assert levels(found)["rights"] == "ok"
        assert levels(found)["dry run"] == "ok"
        assert one.store.vms == {}


async def test_a_user_who_does_not_see_whose_vms_are_there_is_warned_and_no_more() -> None:
    async with running_server(2) as one:
        session = await bob(one, "VM/@1 CREATE+ADMIN+USE", "HOST/* USE+MANAGE", "DATASTORE/* USE")
        found = of(await examined(one.url, session), "rights")
        assert [x.level for x in found] == ["ok", "warn"]
        assert "oneacl create '#2 VM/* USE'" in found[1].fix
        one.store.acls[200] = Acl(id=200, text="#2 VM/* USE *")
        assert [x.level for x in of(await examined(one.url, session), "rights")] == ["ok", "ok"]


async def test_a_quota_is_told_before_it_stops_anything() -> None:
    async with running_server(2) as one:
        session = await bob(one, *NEEDED)
        admin = pyone.OneServer(one.url, session=one.session)
        await asyncio.to_thread(admin.user.quota, 2, 'VM=[VMS="1",CPU="4"]')
        found = await examined(one.url, session, dry=True)
        assert [(x.level, x.found) for x in of(found, "quotas")][:2] == [
            ("warn", "the user's limit on VMS is 1, 0 used"),
            ("warn", "the user's limit on CPU is 4 cores, 0 used"),
        ]
        assert of(found, "dry run")[1].found == "the quota is too small to try a deployment that cannot happen"
        assert one.store.vms == {}


async def test_the_command_prints_a_table_or_json_and_ends_with_1_if_something_fails(tmp_path: Path) -> None:
    async with running_server(1) as one:
        auth = tmp_path / "auth"
        auth.write_text(one.session + "\n")
        words = ["--opennebula", one.url, "--auth", str(auth)]
        code, text = await _command(*words, "--hypervisor", "kvm", "--json")
        told = json.loads(text)
        assert (code, told["result"], told["opennebula"]) == (1, "fail", one.url)
        assert {"check": "hypervisor", "level": "fail"}.items() <= next(
            x for x in told["findings"] if x["check"] == "hypervisor"
        ).items()
        code, text = await _command(*words, "--hypervisor", "dummy")
        assert code == 0
        assert text.startswith("ok    reachable    ")
        assert "secret" not in text
        auth.write_text("oneadmin:nope")
        assert (await _command(*words))[0] == 1


async def _command(*words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "phoenix.cli", "doctor", *words, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.mark.parametrize(
    "words",
    [
        ["--opennebula", "foo"],
        ["--opennebula", "http://"],
        ["--opennebula", "http://one:99999/RPC2"],
        ["--opennebula", "http://one:x/RPC2"],
        ["--events", "one"],
        ["--events", "one:0"],
        ["--hypervisor", "vmware"],
        ["--opennebula", "http://one/RPC2", "--auth", "/no/such/file"],
    ],
)
def test_what_is_mistyped_is_told_and_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert capsys.readouterr().err.startswith("phoenix: ")


# --------------------------------------------------------------------------------------- answers of other installations


def xml(text: str) -> Any:
    return etree.fromstring(text)


def host(name: str, state: int = 2, driver: str = "kvm", **share: int) -> str:
    numbers = {"TOTAL_CPU": 800, "MAX_CPU": 700, "TOTAL_MEM": 8 << 20, "MAX_MEM": 7 << 20, **share}
    told = "".join(f"<{k}>{v}</{k}>" for k, v in numbers.items())
    return (
        f"<HOST><ID>1</ID><NAME>{name}</NAME><STATE>{state}</STATE><VM_MAD>{driver}</VM_MAD><CLUSTER>default</CLUSTER>"
        f"<HOST_SHARE>{told}</HOST_SHARE></HOST>"
    )


KVM = Wanted(hypervisor="kvm")


@pytest.mark.parametrize(
    ("driver", "tried"),
    [("kvm", 1), ("lxc", 2), ("xen", 2)],  # no host has xen: `hypervisor` fails, and rights are still tried
)
def test_a_deployment_is_tried_on_a_host_of_the_configured_hypervisor(driver: str, tried: int) -> None:
    roomy = host("b", driver="lxc", MAX_CPU=1600, MAX_MEM=16 << 20).replace("<ID>1</ID>", "<ID>2</ID>")
    assert checks.roomiest(xml(f"<P>{host('a')}{roomy}</P>"), Wanted(hypervisor=driver)) == tried


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (host("a"), {"hosts": "ok", "hypervisor": "ok"}),
        (host("a") + host("b", state=8), {"hosts": "warn", "hypervisor": "ok"}),
        (host("a", state=3), {"hosts": "fail"}),
        (host("a") + host("b", driver="lxc"), {"hosts": "ok", "hypervisor": "warn"}),
        (host("b", driver="lxc"), {"hosts": "ok", "hypervisor": "fail"}),
        (host("a", MAX_CPU=1600), {"hosts": "ok", "capacity": "warn", "hypervisor": "ok"}),
        (host("a", MAX_CPU=50), {"hosts": "ok", "capacity": "warn", "hypervisor": "ok"}),
        (host("a", MAX_MEM=8 << 20), {"hosts": "ok", "capacity": "warn", "hypervisor": "ok"}),
    ],
)
def test_hosts(pool: str, expected: dict[str, str]) -> None:
    assert levels(checks.hosts(xml(f"<HOST_POOL>{pool}</HOST_POOL>"), KVM)) == expected


def test_hosts_that_the_configuration_leaves_out_do_not_count() -> None:
    pool = xml(f"<HOST_POOL>{host('a')}{host('b', state=3)}</HOST_POOL>")
    only_a = Wanted(hypervisor="kvm", rules=Hosts(use="host=a"))
    (found, *_) = checks.hosts(pool, only_a)
    assert (found.level, found.found) == (
        "ok",
        "1 usable: 7 cores, 7 GiB, in cluster default; 1 more are left out by [hosts]",
    )
    (found,) = checks.hosts(pool, Wanted(hypervisor="kvm", rules=Hosts(clusters=("other",))))
    assert (found.level, found.found) == ("fail", "[hosts] of the configuration lets in none of 2 hosts")


def test_overcommit_needs_hosts_that_offer_more_than_they_have() -> None:
    wanted = Wanted(hypervisor="kvm", rules=Hosts(cpu_overcommit=2.0))
    assert levels(checks.hosts(xml(f"<P>{host('a')}</P>"), wanted))["capacity"] == "warn"
    assert "capacity" not in levels(checks.hosts(xml(f"<P>{host('a', MAX_CPU=1600)}</P>"), wanted))


def store(kind: int, free: int, total: int = 100_000, state: int = 0) -> str:
    return (
        f"<DATASTORE><NAME>d</NAME><TYPE>{kind}</TYPE><STATE>{state}</STATE><TM_MAD>ssh</TM_MAD>"
        f"<TOTAL_MB>{total}</TOTAL_MB><FREE_MB>{free}</FREE_MB></DATASTORE>"
    )


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (store(0, 50_000) + store(1, 50_000), ["ok", "ok"]),
        (store(0, 5_000) + store(1, 500), ["fail", "warn"]),
        (store(0, 50_000) + store(1, 50_000, state=1), ["fail", "ok"]),
        (store(0, 0, total=0) + store(1, 0, total=0), ["ok", "warn"]),
        ("", ["fail", "fail"]),
    ],
)
def test_datastores(pool: str, expected: list[str]) -> None:
    found = checks.datastores(xml(f"<DATASTORE_POOL>{pool}</DATASTORE_POOL>"))
    assert [x.level for x in found] == expected


def disk(
    name: str, free_gib: int, *, own: int | None = None, known: bool = True, state: int = 2, cluster: int = 0
) -> str:
    """A host with so much free; `own`: what its probe reports of datastore 100 itself."""
    of_store = "" if own is None else f"<DS><ID>100</ID><FREE_MB>{own << 10}</FREE_MB><TOTAL_MB>99999</TOTAL_MB></DS>"
    size = f"<FREE_DISK>{free_gib << 10}</FREE_DISK><MAX_DISK>{999_999 if known else 0}</MAX_DISK>"
    shares = f"<HOST_SHARE><DATASTORES>{size}{of_store}</DATASTORES></HOST_SHARE>"
    return f"<HOST><ID>1</ID><NAME>{name}</NAME><STATE>{state}</STATE><CLUSTER_ID>{cluster}</CLUSTER_ID>{shares}</HOST>"


@pytest.mark.parametrize(
    ("hosts", "level", "said"),
    [
        (disk("a", 50) + disk("b", 20), "ok", "20 GiB free on b, the least"),
        (disk("a", 50) + disk("b", 9), "warn", "little on b"),
        (disk("a", 0) + disk("b", 9), "warn", "little on a, b"),
        (disk("a", 0) + disk("b", 0), "fail", "0 GiB free on a, the least"),
        (disk("a", 0, own=30), "ok", "30 GiB free on a"),
        (disk("a", 50, own=0), "fail", "0 GiB free on a"),
        (disk("a", 50) + disk("b", 0, state=4) + disk("c", 0, cluster=7), "ok", "50 GiB free on a"),
        (disk("a", 50) + disk("b", 0, known=False), "warn", "b does not report it"),
    ],
)
def test_a_datastore_without_a_size_has_that_of_its_hosts(hosts: str, level: str, said: str) -> None:
    ssh = "<DATASTORE><ID>100</ID><NAME>d</NAME><TYPE>1</TYPE><TM_MAD>ssh</TM_MAD><TOTAL_MB>0</TOTAL_MB>"
    ssh += "<CLUSTERS><ID>0</ID></CLUSTERS>"
    stores = xml(f"<P>{ssh}</DATASTORE>{store(0, 50_000)}</P>")
    found = checks.datastores(stores, xml(f"<P>{hosts}</P>"), KVM)[0]
    assert (found.level, said in found.found) == (level, True), found.found
    assert "0 of 0" not in found.found


async def test_the_space_of_hosts_is_asked_of_opennebula() -> None:
    async with running_server(2) as one:
        one.store.datastores[0].tm_mad, one.store.datastores[0].total_mb = "ssh", 0
        for number, mb in ((0, 50 << 10), (1, 2 << 10)):
            one.store.hosts[number].hardware = replace(one.store.hosts[number].hardware, disk_mb=mb)
        found = of(await examined(one.url, one.session), "datastores")[0]
        assert found.level == "warn"
        assert "2 GiB free on host001, the least" in found.found


@pytest.mark.parametrize(("told", "level"), [("7.4.0", "ok"), ("7.0.1", "ok"), ("6.10.0", "warn"), ("x", "warn")])
def test_versions(told: str, level: str) -> None:
    assert [x.level for x in checks.version(told)] == [level]


@pytest.mark.parametrize(
    ("most", "policy", "expected"),
    [
        (15, "dummy", {"connections": "ok", "scheduler": "ok"}),
        (10, "rank", {"connections": "warn", "scheduler": "warn"}),
        (8, "dummy", {"connections": "fail", "scheduler": "ok"}),
    ],
)
def test_the_configuration_of_oned(most: int, policy: str, expected: dict[str, str]) -> None:
    text = f"<C><MAX_CONN>{most}</MAX_CONN><SCHED_MAD><ARGUMENTS>-t 15 -p {policy} -o dummy</ARGUMENTS></SCHED_MAD></C>"
    assert levels(checks.configuration(xml(text), KVM)) == expected


IMAGES = (
    "<IMAGE_POOL><IMAGE><ID>4</ID><NAME>phoenix</NAME><STATE>1</STATE></IMAGE>"
    "<IMAGE><ID>5</ID><NAME>new</NAME><STATE>4</STATE></IMAGE></IMAGE_POOL>"
)
GOOD: dict[str, Any] = {"DISK": {"IMAGE": "phoenix"}, "NIC": {"NETWORK": "n"}, "CONTEXT": {"NETWORK": "YES"}}


@pytest.mark.parametrize(
    ("template", "door", "expected"),
    [
        (GOOD, "http://10.0.0.5:7480", {"template": "ok"}),
        (GOOD, "http://127.0.0.1:7480", {"door": "fail"}),
        (GOOD | {"DISK": [{"IMAGE_ID": 4}, {"SIZE": 1}]}, "http://x", {"template": "ok"}),
        (GOOD | {"DISK": {"IMAGE": "other"}}, "http://x", {"template": "fail"}),
        (GOOD | {"DISK": {"IMAGE": "new"}}, "http://x", {"template": "fail"}),
        (GOOD | {"CONTEXT": {}}, "http://x", {"template": "warn"}),
        (GOOD | {"CPU": 1}, "http://x", {"template": "fail"}),
        ({}, "http://x", {"template": "fail"}),
    ],
)
def test_the_template_of_a_real_hypervisor(template: dict[str, Any], door: str, expected: dict[str, str]) -> None:
    wanted = Wanted(hypervisor="kvm", door=door, template=template)
    assert levels(checks.template(wanted, xml(IMAGES))) == expected


def test_who_publishes_where_and_what_is_loopback() -> None:
    text = "<C><HM_MAD><ARGUMENTS>-p 2101 -l 2102 -b 127.0.0.1</ARGUMENTS></HM_MAD></C>"
    assert checks.publisher(xml(text)) == ("127.0.0.1", 2101)
    assert checks.publisher(xml("<C/>")) == ("", 0)
    assert [is_loopback(x) for x in ("http://127.0.0.1:1/x", "http://[::1]:80", "http://one:2633", "127.0.0.1")] == [
        True,
        True,
        False,
        True,
    ]


async def test_a_deployment_is_tried_on_a_host_that_the_cloud_would_use() -> None:
    async with running_server(2) as one:
        session = await bob(one, "VM/* CREATE+ADMIN", "HOST/* USE", "HOST/#1 MANAGE", "DATASTORE/* USE")
        wanted = Wanted(hypervisor="dummy", rules=Hosts(use="host=host001"))
        found = await examined(one.url, session, wanted, dry=True)
        assert levels(found)["dry run"] == "ok", of(found, "dry run")


async def test_an_answer_without_sense_is_a_finding_and_what_was_found_before_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Endpoint.tree

    def garbled(self: Endpoint, call: Any) -> Any:
        tree = plain(self, call)
        for state in tree.iter("STATE"):
            state.text = "up"
        return tree

    monkeypatch.setattr(Endpoint, "tree", garbled)
    async with running_server(1) as one:
        found = await examined(one.url, one.session)
        assert levels(found)["version"] == "ok"
        assert found[-1].level == "fail"
        assert "cannot be read" in found[-1].found


def test_a_login_that_is_no_text_or_an_address_with_a_password_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "auth"
    file.write_bytes(b"\xff\xfe\n\x00")
    assert main(["doctor", "--opennebula", "http://127.0.0.1:1/RPC2", "--auth", str(file)]) == 2
    assert "user:password" in capsys.readouterr().err
    assert main(["doctor", "--opennebula", "http://a:secret@127.0.0.1:1/RPC2", "--auth", str(file)]) == 2


async def test_a_publisher_on_a_socket_file_is_heard_as_one_on_a_port(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/events.sock"
    async with running_server(1, settings=Settings(events=address)) as one:
        found = await examined(one.url, one.session, Wanted(hypervisor="dummy", events=address))
        assert of(found, "events") == [Finding("events", "ok", f"state changes are published at {address}")]
    assert await asyncio.to_thread(speaks_zeromq, address)  # nobody is there any more


# ------------------------------------------------------------------------------- logins that end, images, networks, quotas


async def test_a_token_that_ends_soon_is_told_and_one_that_has_ended_is_a_refused_login() -> None:
    clock = Clock()
    async with running_server(1, clock=clock) as one:
        admin = pyone.OneServer(one.url, session=one.session)

        def token(seconds: int) -> str:
            return str(admin.user.login("oneadmin", "", seconds))

        session = one.session.partition(":")[0]
        for seconds, expected in ((3600, ["warn"]), (30 * 86400, ["ok"]), (-1, [])):
            found = await examined(one.url, f"{session}:{await asyncio.to_thread(token, seconds)}")
            assert [x.level for x in of(found, "credentials")] == expected
            assert all("the login is a token that ends at 20" in x.found for x in of(found, "credentials"))
        short = await asyncio.to_thread(token, 60)
        clock.advance(120)
        [refused] = await examined(one.url, f"{session}:{short}")
        assert (refused.check, refused.level) == ("credentials", "fail")
        assert "a token that has not ended" in refused.fix


SITE = Settings(images=("phoenix-guest",), networks=("phoenix",))


def machine(image: str = "phoenix-guest", network: str = "phoenix", **disk: str) -> Wanted:
    template = {
        "DISK": {"IMAGE": image, "IMAGE_UNAME": "oneadmin", **disk},
        "NIC": {"NETWORK": network, "NETWORK_UNAME": "oneadmin"},
        "CONTEXT": {"NETWORK": "YES"},
    }
    return Wanted(hypervisor="kvm", door="http://phoenix.example.org:7480", template=template)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (1, ""),
        (2, ""),
        (3, "image phoenix-guest is DISABLED: VMs with it are refused"),
        (4, "image phoenix-guest is LOCKED, still being copied"),
        (5, "image phoenix-guest is ERROR: VMs with it are refused"),
    ],
)
async def test_an_image_is_what_vms_can_boot_and_opennebula_says_the_same(state: int, said: str) -> None:
    """What the doctor says, and what allocating a VM does."""
    async with running_server(1, settings=SITE) as one:
        one.store.images[0].state = state
        [found] = of(await examined(one.url, one.session, machine()), "template")
        assert (found.level, said in found.found) == ("fail" if said else "ok", True)
        text = "CPU=1\nMEMORY=64\n" + Templates(b"k", "http://x", machine().template)._site
        admin = pyone.OneServer(one.url, session=one.session)
        if state in (3, 5):
            with pytest.raises(
                pyone.OneException, match=r"Cannot acquire image 0, it is in state: (DISABLED|ERROR)"
            ) as why:
                await asyncio.to_thread(admin.vm.allocate, text, True)
            assert failure_of(why.value) is Failure.TEMPLATE
            return
        vm = one.store.vms[int(await asyncio.to_thread(admin.vm.allocate, text, True))]
        assert vm.state == (VmState.CLONING if state == 4 else VmState.HOLD)
        one.image_is_copied(0)
        assert vm.state == VmState.HOLD


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (machine(image="nosuch"), "there is no image nosuch"),
        (machine(network="nosuch"), "there is no network nosuch"),
        (machine(IMAGE_UNAME="bob"), "bob has no image phoenix-guest; oneadmin has one"),
    ],
)
async def test_what_the_template_names_is_looked_up_as_opennebula_does(wanted: Wanted, said: str) -> None:
    async with running_server(1, settings=SITE) as one:
        found = of(await examined(one.url, one.session, wanted), "template")
        assert [(x.level, x.found) for x in found] == [("fail", said)]
        text = "CPU=1\nMEMORY=64\n" + Templates(b"k", "http://x", wanted.template)._site
        admin = pyone.OneServer(one.url, session=one.session)
        with pytest.raises(pyone.OneException, match=r"does not own an? (image|network) with name") as why:
            await asyncio.to_thread(admin.vm.allocate, text, True)
        assert failure_of(why.value) is Failure.TEMPLATE
