"""What a web department's instances are: names, templates and ports that could not work are refused, with what would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.config import Department, WebPolicy
from schemas.size import Size
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import TemplateError, Templates
from services.runtime.config.file import ConfigError, loads
from services.runtime.config.tables import Config
from services.runtime.config.text import dump_toml


def read(lines: str, opennebula: str = "") -> Config:
    head = f'[cloud]\nname = "c"\n{opennebula}\n[[department]]\nname = "web"\nkind = "web"\n[department.web]\n'
    return loads(head + lines, base=Path("/tmp"))


def web(config: Config) -> WebPolicy:
    policy = config.cloud.departments[0].web
    assert policy is not None
    return policy


KVM = '[opennebula]\nendpoint = "http://one:2633/RPC2"\nhypervisor = "kvm"'


def test_what_is_said_comes_back() -> None:
    lines = (
        'port = 8080\nsecrets = { A = "a" }\nunreachable_s = 3\ntemplate = { X = "1", CONTEXT = { GUEST_PORT = "1" } }'
    )
    config = read(lines, KVM)
    policy = web(config)
    assert (policy.port, policy.secrets, policy.unreachable_s) == (8080, {"A": "a"}, 3.0)
    assert policy.template == {"X": "1", "CONTEXT": {"GUEST_PORT": "1"}}
    assert loads(dump_toml(config)) == config


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("port = 70000", "65535"),
        ("unreachable_s = -1", "at least 0"),
        ("connections_per_instance = 0", "at least 1"),
        ("connections_per_instance = 65536", "65535"),
        ("threshold = 0.7", 'add rule = "threshold"'),
        ("window_s = 30", 'add rule = "threshold"'),
        ('secrets = { "A-B" = "x" }', "letters, digits and '_'"),
        ('secrets = { PHOENIX_ID = "x" }', "department's own"),
        ('secrets = { PORT = "x" }', "department's own"),
        ('secrets = { A = "Pa55 word!" }', "never its value"),
        ('environment = { A = "1" }\nsecrets = { A = "a" }', "not both"),
        ('template = { NAME = "x" }', "Phoenix sets it"),
        ('template = { phoenix_id = "x" }', "Phoenix sets it"),
        ('template = { "A B" = "x" }', "attribute's name"),
        ('template = { CONTEXT = "x" }', "should be a table"),
        ('template = { CONTEXT = { PHOENIX_TOKEN = "x" } }', "no PHOENIX_ names"),
        ("template = { X = 'a\\' }", "backslash"),
        ("template = { CONTEXT = { A = '$NAME' } }", "OpenNebula replaces $NAME in CONTEXT"),
        ("template = { X = { Y = '\\\"' } }", "backslash"),
    ],
)
def test_what_cannot_be_is_told_with_what_would_be_right(line: str, right: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(line, KVM)
    assert right in str(error.value)
    assert "Pa55" not in str(error.value)


def test_with_processes_a_port_is_any_free_one() -> None:
    with pytest.raises(ConfigError, match="all hosts are one machine"):
        read("port = 8080")
    assert web(read("port = 8080", KVM)).port == 8080
    assert web(read("port = 0")).port == 0


USERS = """
[[user]]
name = "web-lb"
department = "web"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
[[department]]
name = "hpc"
kind = "batch"
[[user]]
name = "ann"
department = "hpc"
"""


def test_balancers_are_users_of_the_department_or_operators() -> None:
    assert web(read("")).balancers == ()
    config = read(f'balancers = ["web-lb", "oscar"]{USERS}')
    assert web(config).balancers == ("web-lb", "oscar")
    assert loads(dump_toml(config)) == config
    with pytest.raises(ConfigError) as error:
        read(f'balancers = ["web-bl", "ann"]{USERS}')
    first, second = str(error.value).splitlines()[-2:]
    place = ':8: department.web.balancers (of "web"): '
    assert f'{place}"web-bl": should be a user of web or an operator; did you mean "web-lb"?' in first
    assert f'{place}"ann": should be a user of web or an operator' in second


def test_a_departments_attributes_take_the_place_of_the_sites_and_never_of_ours() -> None:
    site = {"DISK": {"IMAGE": "base", "SIZE": "1"}, "OS": {"ARCH": "x86_64"}, "CONTEXT": {"GUEST_PORT": "80", "B": "2"}}
    templates = Templates(b"key", "http://door", site)
    call = Allocate(key="web.1/1/0", unit="web.1", attempt=1, rank=0, host="h", size=Size(2, 64))
    own = {"disk": {"IMAGE": "shop"}, "NIC": {"NETWORK": "front"}, "CONTEXT": {"guest_port": "8080"}}
    text = templates.of("c", call, own)
    assert 'DISK = [ IMAGE = "shop" ]' in text
    assert 'OS = [ ARCH = "x86_64" ]' in text
    assert 'NIC = [ NETWORK = "front" ]' in text
    assert 'GUEST_PORT = "8080", B = "2", PHOENIX_ID = "c/web.1/1/0"' in text
    assert templates.of("c", call) == templates.of("c", call, {})
    with pytest.raises(TemplateError, match="MEMORY"):
        templates.of("c", call, {"memory": "1"})


def test_a_departments_image_gives_way_to_its_releases() -> None:
    call = Allocate(key="web.1/1/0", unit="web.1", attempt=1, rank=0, host="h", size=Size(2, 64), image="v2")
    text = Templates(b"key", "http://door", {}).of("c", call, {"DISK": {"IMAGE": "v1", "SIZE": "9"}})
    assert 'DISK = [ IMAGE = "v2", SIZE = "9" ]' in text
    assert Department(name="web", kind="web").web is None
