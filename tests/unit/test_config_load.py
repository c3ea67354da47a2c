"""The configuration file: what is accepted, and how each mistake is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.config import BatchPolicy, CloudConfig, Department, User, WebPolicy
from services.runtime.config.checks import check_cloud
from services.runtime.config.file import ConfigError, load, loads
from services.runtime.config.text import diff, dump_toml

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
[cloud]
name = "demo"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "shop"
kind = "web"
[department.web]
target = 0.7
[[user]]
name = "ann"
department = "hpc"
[[user]]
name = "root"
department = "operators"
role = "operator"
"""
FACTORS = "[department.batch.multi_factor]\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, "phoenix.toml")
    return str(caught.value).splitlines()


def after(marker: str, addition: str, text: str = GOOD) -> str:
    assert marker in text
    return text.replace(marker, f"{marker}\n{addition}", 1)


def test_defaults_stand_for_what_is_not_said() -> None:
    config = loads(GOOD, base=Path("/site"))
    hpc, shop = config.cloud.departments
    assert hpc.batch == BatchPolicy()
    assert hpc.web is None
    assert shop.web == WebPolicy(target=0.7)
    assert config.cloud.user("root") == User(name="root", department="operators", role="operator")
    assert config.http.url == "http://127.0.0.1:7480"
    assert config.nats.credentials_dir == Path("/site/data/credentials")
    assert config.processes() == ("admission", "provisioner", "executor", "monitor", "scheduler.hpc", "scheduler.shop")
    assert len(set(config.metrics.ports.values())) == len(config.processes())
    assert set(config.metrics.ports) == set(config.processes())


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "phoenix.toml"
    path.write_text(GOOD + '[data]\ndirectory = "state"\n[opennebula]\nauth_file = "one_auth"\n')
    config = load(path)
    assert config.data_dir == tmp_path / "state"
    assert config.opennebula.auth_file == tmp_path / "one_auth"
    assert config.guest_key_file == tmp_path / "state/credentials/guest.key"


def test_the_sample_configuration_is_valid_and_shows_the_defaults() -> None:
    config = load(ROOT / "deploy/phoenix.toml")
    assert [(d.name, d.kind) for d in config.cloud.departments] == [("hpc", "batch"), ("web", "web")]
    assert config.cloud.departments[0].batch == BatchPolicy()
    assert config.cloud.departments[1].web == WebPolicy()


OTHER_TABLES = GOOD + '\n[secrets]\ndirectory = "keys"\n[journal]\nkeep_messages = 7\narchive = "/other/disk"\n'
SAMPLES = [
    GOOD,
    OTHER_TABLES,
    (ROOT / "deploy/phoenix.toml").read_text(),
    after('"batch"', FACTORS + "shares = { ann = 3 }"),
]


@pytest.mark.parametrize("text", SAMPLES)
def test_what_is_written_is_read_back(text: str) -> None:
    config = loads(text, base=ROOT)
    assert loads(dump_toml(config), base=Path("/elsewhere")) == config


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])), max_size=3),
    st.dictionaries(st.from_regex(r"[A-Za-z_. -]{1,8}", fullmatch=True), st.text(max_size=20), max_size=3),
)
def test_any_text_survives_the_round_trip(command: list[str], environment: dict[str, str]) -> None:
    web = WebPolicy(command=tuple(command), environment=environment)
    config = loads(GOOD)
    cloud = CloudConfig(name="x", departments=(Department(name="w", kind="web", web=web),))
    config = type(config)(cloud=cloud, **{f: getattr(config, f) for f in ("nats", "http", "monitor", "data")})
    again = loads(dump_toml(config)).cloud.departments[0].web
    assert again == web


def test_every_problem_is_told_at_once_in_the_order_of_the_file() -> None:
    text = """[cloud]
name = "Demo"
[polcy]
notice_s = 1
[policy]
notice_s = 0
[[department]]
name = "hpc"
kind = "bach"
[[department]]
name = "shop"
kind = "web"
[department.web]
thresold = 0.8
threshold = 1.8
instances_min = "two"
[[user]]
name = "ann"
department = "hcp"
"""
    assert problems(text) == [
        'phoenix.toml:2: cloud.name: "Demo": should be lower-case letters, digits and hyphens, starting with a letter, '
        "at most 32 characters",
        'phoenix.toml:3: polcy: a table: there is no such key; did you mean "policy"?',
        "phoenix.toml:6: policy.notice_s: 0.0: should be more than 0 and at most 86400",
        'phoenix.toml:9: department.kind (of "hpc"): "bach": should be one of "batch", "web"; did you mean "batch"?',
        'phoenix.toml:14: department.web.thresold (of "shop"): 0.8: there is no such key; did you mean "threshold"?',
        'phoenix.toml:15: department.web.threshold (of "shop"): 1.8: should be more than 0 and less than 1',
        'phoenix.toml:16: department.web.instances_min (of "shop"): "two": should be a whole number',
        'phoenix.toml:19: user.department (of "ann"): "hcp": should be a department of this file; did you mean "hpc"?',
    ]


@pytest.mark.parametrize(
    ("text", "key", "right"),
    [
        (after('kind = "batch"', "guarantee = 3\nmaximum = 2"), "department.guarantee", "at most maximum (2 hosts)"),
        (after('kind = "batch"', "guarantee = -1"), "department.guarantee", "at least 0"),
        (after('kind = "batch"', "guarantee = 90_000") .replace('kind = "web"', 'kind = "web"\nguarantee = 20_000'),
         "department.guarantee", "they add up to 110000"),
        (after('kind = "batch"', "weight = 0"), "department.weight", "at least 1e-06"),
        (after('kind = "batch"', "weight = nan"), "department.weight", "at least 1e-06"),
        (after('kind = "batch"', '[department.batch]\non_reclaim = "suspend"') + '[opennebula]\nhypervisor = "lxc"\nendpoint = "http://one:2633/RPC2"\n',
         "department.batch.on_reclaim", "cannot suspend a running VM"),
        (after('kind = "batch"', "[department.batch]\nsave_s = -1"), "department.batch.save_s", "at least 0"),
        (after('kind = "batch"', "[department.batch.warm]\nidle_s = -1"), "department.batch.warm.idle_s", "at least 0"),
        (after('kind = "batch"', "[department.batch.warm]\nvms_max = 0"), "department.batch.warm.vms_max", "at least 1"),
        (after('kind = "batch"', '[department.batch.warm]\nshare = "users"'), "department.batch.warm.share",
         'did you mean "user"?'),
        (GOOD + '[opennebula]\nhypervisor = "lxc"\n', "opennebula.hypervisor", "name the endpoint of their OpenNebula too"),
        (GOOD + '[opennebula]\nhypervisor = "vmware"\n', "opennebula.hypervisor", 'one of "process"'),
        (after('kind = "batch"', "[department.batch]\nreservations_max = 0"), "department.batch.reservations_max",
         "at least 1"),
        (after('kind = "batch"', "[department.batch]\nreservations_max = 1001"), "department.batch.reservations_max",
         "at most 1000"),
        (after('kind = "batch"', "[department.batch]\nmemory_per_core_mb = 0"), "department.batch.memory_per_core_mb",
         "at least 1"),
        (after('kind = "batch"', "[department.batch]\nmemory_per_core_mb = 1_073_741_825"),
         "department.batch.memory_per_core_mb", "at most 1073741824"),
        (after('kind = "batch"', "[department.batch]\nwalltime_default_s = 700_000"), "department.batch.walltime_default_s",
         "at most walltime_max_s (604800)"),
        (after('kind = "batch"', '[department.batch]\nwalltime_max_s = 60'), "department.batch.walltime_default_s",
         "at most walltime_max_s (60)"),
        (after('kind = "batch"', "[department.web]\nthreshold = 0.5"), "department.web", 'of kind "batch"'),
        (after("target = 0.7", "instances_min = 0"), "department.web.instances_min",
         "at least 1: load is measured at instances, so a department without one would not come back"),
        (after("target = 0.7", "instances_min = -1"), "department.web.instances_min", "at least 0"),
        (after("target = 0.7", "instances_min = 5\ninstances_max = 4"), "department.web.instances_min", "instances_max (4)"),
        (after('kind = "web"', "maximum = 2").replace("target = 0.7", "instances_min = 5"),
         "department.web.instances_min", "maximum of 2 hosts; this needs 5"),
        (after("target = 0.7", "window_s = true"), "department.web.window_s", "should be a number"),
        (after("target = 0.7", "command = ['a', 1]"), "department.web.command", "a list, each item a text in quotes"),
        (after("target = 0.7", "max_surge = 0"), "department.web.max_surge", "at least 1, or max_unavailable"),
        (after("target = 0.7", "surge = 'free'"), "department.web.surge", "idle"),
        (after("target = 0.7", "start_failures_max = -1"), "department.web.start_failures_max", "at least 0"),
        (after("target = 0.7", "image = 'a\\b'"), "department.web.image", "neither control characters nor quotes"),
        (after("target = 0.7", "health_path = 'healthz'"), "department.web.health_path", "such as /healthz"),
        (after("target = 0.7", "health_path = '/up;shutdown'"), "department.web.health_path", "/ . _ ~ % ?"),
        (after('"batch"', FACTORS + "period_s = 0"), "department.batch.multi_factor.period_s", "at least 1"),
        (after('"batch"', FACTORS + "shares.ann = -1.0"), "department.batch.multi_factor.shares.ann", "at least 0"),
        (GOOD + "\n[http]\nheader_timeout_s = 0", "http.header_timeout_s", "1"),
        (GOOD + "\n[http]\nconnections_max = 1", "http.connections_max", "16"),
        (GOOD + "\n[http]\nconnections_per_address_max = 0", "http.connections_per_address_max", "8"),
        (GOOD.replace('"shop"', '"hpc"'), "department.name", "unique"),
        (GOOD.replace('"shop"', '"service"'), "department.name", "the place of the services' own inboxes"),
        (GOOD.replace('"shop"', '"operators"'), "department.name", "another name"),
        (GOOD.replace('"shop"', '"web.shop"'), "department.name", "lower-case letters"),
        (GOOD.replace('name = "ann"', 'name = "root"'), "user.name", "unique in the cloud"),
        (GOOD.replace('name = "ann"', 'name = "an_n"'), "user.name", "lower-case letters"),
        (GOOD.replace('name = "ann"', 'name = "*"'), "user.name", "lower-case letters"),
        (GOOD.replace('name = "ann"', 'name = "service-admission"'), "user.name", "services have those"),
        (GOOD.replace('role = "operator"', 'role = "manager"'), "user.role", 'should be "operator"'),
        (GOOD.replace('department = "operators"', 'department = "hpc"'), "user.department", "belongs to no department"),
        (GOOD + "[policy]\nkill_s = 0.1\n", "policy.kill_s", "grace_s (0.3)"),
        (GOOD + "[runtime]\nlease_ttl_s = 0.5\nheartbeat_s = 0.4\n", "runtime.lease_ttl_s", "twice heartbeat_s"),
        (GOOD + '[runtime]\nlog_level = "warn"\n', "runtime.log_level", 'did you mean "warning"?'),
        (GOOD + '[nats]\nurl = "localhost:4222"\n', "nats.url", "nats://HOST:PORT"),
        (GOOD + '[nats]\nurl = "nats://a:secret@localhost:4222"\n', "nats.url", "no password"),
        (GOOD + '[http]\nlisten = "7480"\n', "http.listen", "HOST:PORT"),
        (GOOD + '[http]\nlisten = "127.0.0.1:7481"\n', "monitor.listen", "http.listen listens there"),
        (GOOD + "[metrics.ports]\nadmision = 9000\n", "metrics.ports.admision", 'did you mean "admission"?'),
        (GOOD.replace('[cloud]\nname = "demo"', ""), "cloud.name", "the name of this cloud"),
        ('[cloud]\nname = "x"\n', "department", "at least one [[department]]"),
        ('[cloud]\nname = "x"\n[department]\nname = "hpc"\nkind = "batch"\n', "department", "write [[department]]"),
        (GOOD + "[nats]\ncredentials_dir = 3\n", "nats.credentials_dir", "a path in quotes"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_problem(text: str, key: str, right: str) -> None:
    (line,) = problems(text)
    assert re.match(rf"phoenix\.toml:(\d+:)? {re.escape(key)}( \(of|: )", line)
    assert right in line


def test_a_missing_key_is_told_with_its_table() -> None:
    (line,) = problems(GOOD.replace('name = "hpc"\nkind = "batch"', 'name = "hpc"'))
    assert line == 'phoenix.toml:4: department.kind (of "hpc"): missing: should be one of "batch", "web"'


def test_a_secret_in_a_url_is_not_repeated() -> None:
    assert "hunter2" not in problems(GOOD + '[nats]\nurl = "nats://a:hunter2@localhost:4222"\n')[0]


def test_a_file_that_is_no_toml_is_told_with_its_line() -> None:
    (line,) = problems("[cloud\nname = 3")
    assert line.startswith("phoenix.toml: the file: unusable: should be TOML: ")
    assert "line 1" in line
    (line,) = problems('[cloud]\nname = "a"\nname = "b"\n')
    assert line.endswith("(at line 3, column 11): see name, which is there twice")
    (line,) = problems("[cloud]\nname hunter2\n")
    assert line.endswith("see name")


def test_a_missing_or_binary_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: the file: .*No such file"):
        load(tmp_path / "none.toml")
    binary = tmp_path / "x.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(binary)


def test_a_configuration_that_arrives_as_a_message_is_judged_by_the_same_rules() -> None:
    cloud = CloudConfig(
        name="x",
        departments=(Department(name="w", kind="web", web=WebPolicy(threshold=2.0)),),
        users=(User(name="a", department="nowhere"),),
    )
    assert [p.key for p in check_cloud(cloud)] == ["department.web.threshold", "user.department"]


def test_guarantees_are_held_against_the_hosts_that_there_are() -> None:
    departments = tuple(Department(name=n, kind="batch", batch=BatchPolicy(), guarantee=3) for n in ("a", "b"))
    cloud = CloudConfig(name="x", departments=departments)
    assert check_cloud(cloud, hosts=6) == []
    assert [p.key for p in check_cloud(cloud, hosts=5)] == ["department.guarantee"]


def test_differences_are_told_by_name() -> None:
    a = loads(GOOD).cloud
    b = loads(
        GOOD.replace("target = 0.7", 'target = 0.9\ncommand = ["x"]')
        .replace('name = "ann"', 'name = "eve"')
        .replace('kind = "batch"', 'kind = "batch"\nmaximum = 3')
        + "[policy]\nnotice_s = 1\n[power]\nidle_s = 60\n"
    ).cloud
    assert diff(a, a) == []
    assert diff(a, b) == [
        "policy: notice_s 0.3 → 1.0",
        "power: idle_s 1800.0 → 60.0",
        "department hpc: maximum none → 3",
        "department shop: web.target 0.7 → 0.9",
        'department shop: web.command [] → ["x"]',
        "user ann: removed",
        "user eve: added (user of hpc)",
    ]
