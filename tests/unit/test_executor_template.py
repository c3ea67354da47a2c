"""VM templates: whatever a value holds, OpenNebula reads it back as one value; the guest's token is in CONTEXT only."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from phoenix.local.opennebula.templates import parse
from schemas import facts as f
from schemas.config import CloudConfig, Department, WebPolicy
from schemas.releases import Release
from schemas.size import Size
from services.domain.capabilities import Hypervisor
from services.domain.custody.rules import RULES
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import TemplateError, Templates, attribute, quoted
from tests.support.executor_bench import Bench
from tests.support.executor_stage import FAST

CALL = Allocate("17_3", 2, 1, "h0", Size(4, 512), "17_3/2/1")
TAG = "c10d/17_3/2/1"
URL = "http://127.0.0.1:7480"


def test_a_template_is_read_back_as_it_was_meant() -> None:
    site = {"DISK": [{"IMAGE": "phoenix"}, {"SIZE": "10"}], "os": {"BOOT": "disk0"}, "LOGO": 'a "b" c'}
    read = parse(Templates(b"key", URL, site, "kvm").of("c10d", CALL))
    assert read.get("NAME") == "c10d-17_3-2-1"
    assert (read.get("CPU"), read.get("VCPU"), read.get("MEMORY"), read.get("PHOENIX_ID")) == ("4", "4", "512", TAG)
    assert read.vectors("DISK") == [{"IMAGE": "phoenix"}, {"SIZE": "10"}]
    assert read.vector("OS") == {"BOOT": "disk0"}
    assert read.get("LOGO") == 'a "b" c'
    token = hmac.new(b"key", TAG.encode(), hashlib.sha256).hexdigest()
    assert read.vector("CONTEXT") == {"PHOENIX_ID": TAG, "PHOENIX_URL": URL, "PHOENIX_TOKEN": token}


def test_the_sites_context_is_kept_beside_ours() -> None:
    read = parse(Templates(b"k", URL, {"CONTEXT": {"NETWORK": "YES"}}, "process").of("c", CALL))
    context = read.vector("CONTEXT") or {}
    assert context["NETWORK"] == "YES"
    assert set(context) == {"NETWORK", "PHOENIX_ID", "PHOENIX_URL", "PHOENIX_TOKEN"}


@pytest.mark.parametrize(
    ("hypervisor", "site", "own", "end"),
    [
        ("kvm", {}, {}, None),
        ("xen", {"HYPERVISOR": "xen"}, {}, None),
        (None, {"hypervisor": "KVM"}, {}, None),
        ("lxc", {}, {}, "cloud"),
        (None, {"HYPERVISOR": "lxc"}, {}, "cloud"),
        ("kvm", {"HYPERVISOR": "lxc"}, {}, "cloud"),  # one of the two is wrong
        ("lxc", {"HYPERVISOR": "kvm"}, {}, "cloud"),
        ("kvm", {"HYPERVISOR": "kvm"}, {"HYPERVISOR": "lxc"}, "cloud"),
        (None, {}, {}, "cloud"),  # neither is given
        (None, {"HYPERVISOR": "firecracker"}, {}, "cloud"),
    ],
)
def test_a_vm_powers_itself_off_only_where_that_does_no_harm(
    hypervisor: Hypervisor | None, site: dict[str, str], own: dict[str, str], end: str | None
) -> None:
    read = parse(Templates(b"k", URL, site, hypervisor).of("c", CALL, own))
    assert (read.vector("CONTEXT") or {}).get("PHOENIX_END") == end


def test_the_image_of_a_release_is_what_the_vm_boots() -> None:
    call = replace(CALL, unit="web.3", image="shop-2")
    site = {"DISK": [{"SIZE": "10"}, {"image": "phoenix", "IMAGE_UNAME": "phoenix"}, {"IMAGE": "data"}]}
    templates = Templates(b"k", URL, site)
    read = parse(templates.of("c", call))
    assert read.vectors("DISK") == [{"SIZE": "10"}, {"IMAGE": "shop-2", "IMAGE_UNAME": "phoenix"}, {"IMAGE": "data"}]
    assert (read.vector("CONTEXT") or {})["PHOENIX_IMAGE"] == "shop-2"
    assert parse(templates.of("c", CALL)).vectors("DISK")[1]["IMAGE"] == "phoenix"  # nobody else is concerned
    one = parse(Templates(b"k", URL, {"DISK": {"IMAGE": "phoenix"}}).of("c", call))
    assert one.vectors("DISK") == [{"IMAGE": "shop-2"}]
    for without in ({}, {"DISK": {"SIZE": "10"}}):  # where there are no images it is a label
        read = parse(Templates(b"k", URL, without).of("c", call))
        assert read.vectors("DISK") == ([{"SIZE": "10"}] if without else [])
        assert (read.vector("CONTEXT") or {})["PHOENIX_IMAGE"] == "shop-2"


@pytest.mark.parametrize(
    "site",
    [
        {"NAME": "x"},
        {"phoenix_id": "x"},
        {"cpu": 1},
        {"CONTEXT": {"PHOENIX_TOKEN": "x"}},
        {"CONTEXT": {"phoenix_url": "x"}},
        {"CONTEXT": "x"},
        {"A B": "x"},
        {"A=1\nB": "x"},
        {"DISK": {"A] B": "x"}},
        {"X": "ends with \\"},
        {"X": 'has \\" inside'},
        {"X": "nul\x00"},
        {"CONTEXT": {"GREETING": "I am $NAME"}},
        {"CONTEXT": {"START_SCRIPT": "echo $HOME > /x"}},
        {"CONTEXT": {"PRICE": "5 $"}},
    ],
)
def test_a_site_cannot_replace_what_is_ours_nor_write_what_cannot_be_read(site: dict[str, object]) -> None:
    with pytest.raises(TemplateError):
        Templates(b"k", URL, site)


def test_what_opennebula_would_replace_in_context_is_refused_by_name_and_what_is_asked_for_is_kept() -> None:
    with pytest.raises(TemplateError, match=r"CONTEXT.GREETING: should be without \$NAME: OpenNebula replaces"):
        Templates(b"k", URL, {"CONTEXT": {"GREETING": "I am $NAME"}})
    kept = {"SSH_PUBLIC_KEY": "$USER[SSH_PUBLIC_KEY]", "DNS": '$NETWORK[DNS, NETWORK_ID="1"]'}
    context = parse(Templates(b"k", URL, {"CONTEXT": kept}).of("c", CALL)).vector("CONTEXT") or {}
    assert {name: context[name] for name in kept} == kept
    assert parse(Templates(b"k", URL, {"DESCRIPTION": "$NAME"}).of("c", CALL)).get("DESCRIPTION") == "$NAME", (
        "CONTEXT alone"
    )


@given(st.text(max_size=60))
def test_no_value_breaks_out_of_its_place(value: str) -> None:
    try:
        text = attribute("A", value) + attribute("V", {"X": value, "Y": "2"}) + attribute("Z", "last")
    except TemplateError:
        return
    read = parse(text)
    assert set(read.values) == {"A", "V", "Z"}
    assert read.values["A"] == [value]
    assert read.vectors("V") == [{"X": value, "Y": "2"}]
    assert read.get("Z") == "last"


@given(st.text(alphabet='"\\\n]=,[ #$aX', max_size=20))
def test_no_value_of_the_characters_of_the_syntax_breaks_out(value: str) -> None:
    test_no_value_breaks_out_of_its_place.hypothesis.inner_test(value)  # type: ignore[attr-defined]


def test_a_value_is_refused_only_for_what_cannot_be_written() -> None:
    assert quoted("X", 'say "hi" \\n # [x], = ]') == '"say \\"hi\\" \\n # [x], = ]"'
    with pytest.raises(TemplateError, match="X: 65537 characters"):
        quoted("X", "a" * 65537)


def test_an_instance_boots_the_image_of_its_release() -> None:
    bench = Bench()
    web = Department(name="web", kind="web", web=WebPolicy(image="configured"))
    config = CloudConfig(name="test", policy=FAST, departments=(web,))
    bench.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    bench.write("provisioner", f.HostGranted(host="h0", dept="web"))
    bench.write("admission", f.ReleaseRequested(dept="web", release=1, user="wes", content=Release(image="shop-1")))
    for number in (0, 1):
        placed = f.UnitPlaced(unit=f"web.{number + 1}", attempt=1, hosts=("h0",), cores=1, memory_mb=64, release=number)
        bench.write("scheduler.web", placed)
    assert [call.image for call in bench.calls() if isinstance(call, Allocate)] == ["configured", "shop-1"]
