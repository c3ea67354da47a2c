"""Which control groups a hypervisor uses, from what the kernel says about mounts and its own place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phoenix.local.process import nursery
from phoenix.local.process.cgroups import CgroupsUnavailableError, find_roots

V1 = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"


def test_version_1_is_below_the_own_group_of_each_hierarchy() -> None:
    version, roots = find_roots(V1, "3:cpu,cpuacct:/\n2:memory:/session/7\n0::/\n")
    assert version == 1
    assert roots == {
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory/session/7"),
    }


def test_version_2_is_below_the_one_own_group() -> None:
    version, roots = find_roots(V2, "0::/user.slice/phoenix.service\n")
    assert version == 2
    assert set(roots.values()) == {Path("/sys/fs/cgroup/user.slice/phoenix.service")}


def test_a_machine_without_any_says_so() -> None:
    with pytest.raises(CgroupsUnavailableError, match="no control group hierarchy"):
        find_roots("proc /proc proc rw 0 0\n", "")


COME_AND_GO = """
import os, sys
while True:
    os.mkdir(sys.argv[1])
    open(sys.argv[1] + "/pids.max", "w").close()
    os.unlink(sys.argv[1] + "/pids.max")
    os.rmdir(sys.argv[1])
"""


def test_a_group_that_is_removed_at_that_moment_does_not_end_the_nursery(tmp_path: Path) -> None:
    """All VMs would die with it.  The race is tried, not staged: with a look before the opening some of the rounds fail."""
    group = tmp_path / "group"
    with subprocess.Popen([sys.executable, "-c", COME_AND_GO, str(group)]) as other:
        try:
            while not group.exists():
                assert other.poll() is None
            for _ in range(10_000):
                nursery.purge([str(group)], None, None)
            assert other.poll() is None, "a group that was removed came back"
        finally:
            other.kill()
