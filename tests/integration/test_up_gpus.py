"""The whole cloud with GPUs, on stand-in device nodes: a job is placed where they are, opens its own and not its neighbour's,
and what it had is seen everywhere that a size is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, signpost, until
from tests.support.gpu_nodes import AS_ROOT, gpu_nodes

pytestmark = pytest.mark.timeout(180)
LOOK = (
    'for n in {}; do head -c 1 $n >/dev/null 2>&1 && echo "opens ${{n##*/}}"; done; '
    'echo "has $PHOENIX_GPUS: $CUDA_VISIBLE_DEVICES"'
)
HPC = 'name = "hpc"\nkind = "batch"\n'


class Site(Cloud):
    nodes: tuple[str, ...]

    def look(self) -> str:
        return LOOK.format(" ".join(self.nodes))

    def submit(self, command: str, *words: str) -> str:
        return self.ok("submit", "--cpus-per-task", "1", *words, "--wrap", command).strip()

    def reach(self, job: str, state: str) -> dict[str, object]:
        until(lambda: self.json("show", job)["state"] == state, f"job {job} is not {state}")
        return dict(self.json("show", job))


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Four hosts; the first two have one card each."""
    with gpu_nodes(0o666, 0o666) as nodes:
        found = Site(tmp_path_factory.mktemp("cloud") / "data")
        found.nodes = nodes
        file = tmp_path_factory.mktemp("site") / "phoenix.toml"
        paths = ", ".join(f'"{node}"' for node in nodes)
        text = stack_config.DEFAULT.read_text().replace(HPC, f'{HPC}[department.batch]\norder = "leases"\n')
        file.write_text(f"{text}\n[opennebula]\ngpu_devices = [{paths}]\n")
        try:
            found.ok("up", "--detach", "--hosts", "4", "--cores", "8", "--config", str(file))
            found.ok(
                "scale", "web", "--exact", "0"
            )  # its instance takes the first host that is there, which may have a card
            until(lambda: all(row["department"] != "web" for row in found.json("hosts")["hosts"]), "web holds a host")
            yield found
        finally:
            found.close()


def test_jobs_have_a_gpu_each_and_open_no_other(cloud: Site) -> None:
    with signpost() as enough:
        wait = f"{cloud.look()}; while [ ! -e {enough} ]; do sleep 0.1; done"
        first, second = cloud.submit(wait, "--gpus", "1"), cloud.submit(wait, "--gres", "gpu:1")
        hosts = [cloud.reach(job, "running")["hosts"] for job in (first, second)]
        assert sorted(hosts) == [["host000"], ["host001"]]
        third = cloud.submit(cloud.look(), "--gpus-per-node", "1")
        rows = {row["host"]: (row["gpus_used"], row["gpus"]) for row in cloud.json("hosts")["hosts"]}
        assert rows == {"host000": (1, 1), "host001": (1, 1), "host002": (0, 0), "host003": (0, 0)}
        head, *lines = cloud.ok("hosts").splitlines()
        column = head.index("GPUS") + len("GPUS")  # numbers end where their heading ends
        assert [line[:column].split()[-1] for line in lines] == ["1/1", "1/1", "0/0", "0/0"]
        assert cloud.json("show", third)["state"] == "pending"
        assert "GPU" in cloud.ok("why", third)
        enough.touch()
        for job in (first, second, third):
            cloud.reach(job, "completed")
    found = [cloud.ok("output", job).splitlines() for job in (first, second, third)]
    if AS_ROOT:
        own = {"host000": "opens gpu0", "host001": "opens gpu1"}
        assert [each[0] for each in found[:2]] == [own[host[0]] for host in hosts]  # type: ignore[index]
        assert [len(each) for each in found] == [2, 2, 2], "each opens one"
    assert [each[-1].partition(":")[0] for each in found] == ["has 1"] * 3


def test_a_job_without_gpus_opens_none(cloud: Site) -> None:
    job = cloud.submit(cloud.look())
    assert cloud.reach(job, "completed").get("gpus") in (None, 0)
    assert cloud.ok("output", job).splitlines()[-1] == "has 0: "
    if AS_ROOT:
        assert len(cloud.ok("output", job).splitlines()) == 1


def test_more_gpus_than_a_host_has_are_refused_at_once(cloud: Site) -> None:
    refused = cloud.run("submit", "--gpus-per-node", "2", "--wrap", "true")
    assert refused.returncode == 1
    assert "--gpus-per-node" in refused.stderr
    assert "GPU" in refused.stderr


def test_when_it_would_start_is_predicted_with_its_gpus(cloud: Site) -> None:
    assert "256 MiB and 1 GPU," in cloud.ok("whatif", "--gpus-per-task", "1", "--wrap", "true")


def test_a_lease_has_gpus(cloud: Site) -> None:
    words = ("lease", "create", "--immediate", "--duration", "2m", "--gpus-per-node", "1")
    lease = cloud.ok(*words).strip()
    assert cloud.json("lease", "show", lease)["gpus"] == 1
    shown = cloud.ok("lease", "show", lease)
    assert "GPUs a node" in shown
    assert re.search(r"^GPU hours: +[0-9.]+ used of 0\.03$", shown, re.MULTILINE)
    cloud.ok("lease", "cancel", lease)
