"""What phoenix-context writes of a VM's CONTEXT, where OpenNebula's contextualisation package is not in the image."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.support.vm_context import configured, prepared

STATIC = {
    "ETH0_MAC": "02:00:c0:a8:00:02",
    "ETH0_IP": "192.168.0.2",
    "ETH0_MASK": "255.255.252.0",
    "ETH0_GATEWAY": "192.168.0.1",
    "ETH0_METRIC": "10",
    "ETH0_MTU": "9000",
    "ETH0_DNS": "192.168.0.1 192.168.0.3",
    "ETH0_SEARCH_DOMAIN": "a.example b.example",
    "ETH0_ROUTES": "10.0.0.0/8 via 192.168.0.7, 172.16.0.0/12 via 192.168.0.8",
    "ETH0_IP6": "2001:db8::5",
    "ETH0_IP6_PREFIX_LENGTH": "48",
    "ETH0_IP6_GATEWAY": "2001:db8::1",
    "ETH0_ALIAS0_MAC": "02:00:c0:a8:00:03",
    "ETH0_ALIAS0_IP": "192.168.0.9",
    "ETH0_METHOD": "",
}
WRITTEN = """# By phoenix-context, of the CONTEXT.
[Match]
MACAddress=02:00:c0:a8:00:02

[Link]
MTUBytes=9000

[Network]
Address=192.168.0.2/22
Address=2001:db8::5/48
IPv6AcceptRA=no
Address=192.168.0.9/24
DNS=192.168.0.1
DNS=192.168.0.3
Domains=a.example b.example

[Route]
Gateway=192.168.0.1
Metric=10
GatewayOnLink=yes

[Route]
Gateway=2001:db8::1
GatewayOnLink=yes

[Route]
Destination=10.0.0.0/8
Gateway=192.168.0.7
GatewayOnLink=yes

[Route]
Destination=172.16.0.0/12
Gateway=192.168.0.8
GatewayOnLink=yes
"""


def test_a_nic_has_the_addresses_routes_and_servers_of_the_context(tmp_path: Path) -> None:
    said, files = configured(tmp_path, STATIC)
    assert (said, files) == ("", {"10-phoenix-ETH0.network": WRITTEN})
    resolver = "nameserver 192.168.0.1\nnameserver 192.168.0.3\nsearch a.example b.example\n"
    assert (tmp_path / "etc" / "resolv.conf").read_text() == "# By phoenix-context, of the CONTEXT.\n" + resolver


def test_a_nic_asks_for_what_the_context_leaves_to_the_network(tmp_path: Path) -> None:
    context = {
        "ETH0_MAC": "02:00:00:00:00:01",
        "ETH0_METHOD": "dhcp",
        "ETH0_IP": "10.0.0.1",
        "ETH0_GATEWAY": "10.0.0.9",
        "ETH1_MAC": "02:00:00:00:00:02",
        "ETH1_IP": "10.0.0.2",
        "ETH1_IP6_METHOD": "auto",
        "ETH1_IP6": "fd00::2",
        "ETH2_MAC": "02:00:00:00:00:03",
        "ETH2_METHOD": "skip",
        "ETH2_IP": "10.0.0.3",
        "ETH10_MAC": "02:00:00:00:00:0a",
        "ETH10_IP6_METHOD": "disable",
        "ETH10_IP": "10.0.0.4",
    }
    said, files = configured(tmp_path, context)
    networks = {name: text.partition("[Network]\n")[2].split() for name, text in files.items()}
    assert said == ""
    assert networks == {
        "10-phoenix-ETH0.network": ["DHCP=ipv4", "IPv6AcceptRA=no"],
        "10-phoenix-ETH1.network": ["Address=10.0.0.2/24", "IPv6AcceptRA=yes"],
        "10-phoenix-ETH10.network": ["Address=10.0.0.4/24", "IPv6AcceptRA=no", "LinkLocalAddressing=no"],
    }
    assert not (tmp_path / "etc" / "resolv.conf").exists()


def test_a_nic_that_is_described_wrongly_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    said, files = configured(
        tmp_path, STATIC | {"ETH1_MAC": "02:00:00:00:00:02", "ETH1_IP": "10.0.0.2", "ETH1_MASK": "255.0.1"}
    )
    assert said == "phoenix-context: ETH1 is not configured: 255.0.1 is no mask\n"
    assert files == {"10-phoenix-ETH0.network": WRITTEN}


def test_the_host_has_its_name_root_has_its_keys_and_the_guest_has_the_context(tmp_path: Path) -> None:
    keys = "ssh-ed25519 AAAA ann's key\nssh-ed25519 BBBB"
    configured(tmp_path, {"PHOENIX_ID": "cloud/7_1/3/2", "SSH_PUBLIC_KEY": keys})
    assert (tmp_path / "etc" / "hostname").read_text() == "cloud-7-1-3-2\n"
    assert "127.0.1.1 cloud-7-1-3-2\n" in (tmp_path / "etc" / "hosts").read_text()
    authorized = tmp_path / "root" / ".ssh" / "authorized_keys"
    assert authorized.read_text() == keys + "\n"
    copy = tmp_path / "run" / "phoenix-context" / "context.sh"
    assert copy.read_bytes() == (tmp_path / "given").read_bytes()
    modes = [stat.S_IMODE(x.stat().st_mode) for x in (authorized, authorized.parent, copy, copy.parent)]
    assert modes == [0o600, 0o700, 0o600, 0o700]


def test_the_name_that_the_site_sets_takes_precedence(tmp_path: Path) -> None:
    configured(tmp_path, {"PHOENIX_ID": "cloud/7/3/2", "SET_HOSTNAME": "-db 1.example\n"})
    assert (tmp_path / "etc" / "hostname").read_text() == "db-1.example\n"


def test_what_is_no_context_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    done = prepared(tmp_path, "SET_HOSTNAME='a'\nreboot\n")
    assert (done.returncode, done.stderr) == (
        1,
        "phoenix-context: the context is not used: line 2 is not NAME='value'\n",
    )
    assert [x for x in tmp_path.rglob("*") if x.is_file()] == [tmp_path / "given"]
