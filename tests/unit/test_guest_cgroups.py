"""Which control groups a hypervisor uses, from what the kernel says about mounts and its own place."""

from __future__ import annotations

from pathlib import Path

import pytest

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
