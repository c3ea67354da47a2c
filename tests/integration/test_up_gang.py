"""A node that does not boot in time: the gang's attempt is undone as a whole and tried on other hosts.  A whole cloud, with a
dummy hypervisor that hangs on command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, steer, until

pytestmark = pytest.mark.timeout(240)
BATCH = "[department.batch]\nboot_timeout_s = 0.4\n"  # five times that for OpenNebula's part
SHORT = "[policy]\nkill_s = 0.5\nstuck_s = 1\n"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("gang")
    text = stack_config.DEFAULT.read_text().replace('kind = "batch"\n', 'kind = "batch"\n' + BATCH, 1)
    (directory / "site.toml").write_text(text + SHORT)
    found = Cloud(directory / "data")
    words = ("--hosts", "4", "--cores", "2", "--hypervisor", "dummy", "--steering")
    found.ok("up", "--detach", *words, "--config", str(directory / "site.toml"))
    yield found
    found.close()


def held(cloud: Cloud) -> list[str]:
    return [host["host"] for host in cloud.json("hosts")["hosts"] if host["department"] == "hpc"]


def vms(cloud: Cloud, *names: str) -> int:
    return sum(host["vms"] for host in cloud.json("hosts")["hosts"] if host["host"] in names)


@pytest.mark.long
def test_a_node_that_hangs_ends_the_attempt_of_all_and_the_next_one_is_elsewhere(cloud: Cloud) -> None:
    until(lambda: len(held(cloud)) == 3, "batch has not got what is idle")
    stuck, other, spare = sorted(held(cloud))
    steer(cloud, op="rule", step="boot", host=int(stuck.removeprefix("host")), hold=True)
    job = cloud.ok("submit", "-N", "2", "--exclusive", "--retries", "0", "--wrap", "true").strip()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not come up elsewhere")
    first, last = (cloud.json("show", job)["attempts"][number] for number in (0, -1))
    assert (first["hosts"], first["began_at"], first["disposal"]) == ([stuck, other], None, "requeue")
    assert first["why"] == {"code": "boot_timeout", "limit": "start", "boot_timeout_s": 0.4, "began": False}
    assert sorted(last["hosts"]) == [other, spare]
    assert (last["exit"], cloud.json("show", job)["exit_code"]) == (0, 0)
    steer(cloud, op="clear")
    until(lambda: vms(cloud, other, spare) == 0, "a machine of the first attempt is left")
