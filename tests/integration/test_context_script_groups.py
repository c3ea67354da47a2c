"""What the context script reads of a machine's use: of a container its control group, wherever that is; else the machine's."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.script_guest import SCRIPT

STAT = "cpu  100 0 100 800 0 0 0 0 0 0\n"
STAT_LATER = "cpu  160 0 140 900 0 0 0 0 0 0\n"  # 100 of 200 ticks
V2 = {"cgroup.controllers": "cpu memory\n"}
# It prints the group, and how busy the machine was while the test's files were replaced by their `later` ones.
PROGRAM = """
machine=$1 kind=job cores=2
now_cs() { read -r cs _ <"$machine/proc/uptime"; cs=${cs%.*}${cs#*.}; }
. "$2-door"
find_groups
read_use
all_before=$all idled_before=$idled
cp -R "$1/later/." "$1"
read_use
how_busy
read_memory
echo "${cpu_group#"$machine"}|$busy_1000|$memory_mb"
"""


class Layout(NamedTuple):
    """`of_init`: /proc/1/cgroup; `files`: below /sys/fs/cgroup; `used`: the file with CPU time, before and a second later."""

    of_init: str
    files: dict[str, str]
    used: tuple[str, str, str]
    expected: str


def v2(
    path: str, used: tuple[int, int], more: dict[str, str] | None = None
) -> tuple[dict[str, str], tuple[str, str, str]]:
    files = {
        **V2,
        f"{path}cgroup.events": "populated 1\n",
        f"{path}memory.current": f"{64 << 20}\n",
        f"{path}memory.stat": f"inactive_file {4 << 20}\n",
        **{f"{path}{name}": text for name, text in (more or {}).items()},
    }
    before, later = (f"usage_usec {number}\nuser_usec 7\n" for number in used)
    return files, (f"{path}cpu.stat", before, later)


def v1(
    path: str, used: tuple[int, int], more: dict[str, str] | None = None
) -> tuple[dict[str, str], tuple[str, str, str]]:
    files = {
        f"memory{path}/memory.usage_in_bytes": f"{64 << 20}\n",
        f"memory{path}/memory.stat": f"inactive_file 1\ntotal_inactive_file {4 << 20}\n",
        **{f"cpuacct{path}/{name}": text for name, text in (more or {}).items()},
    }
    before, later = (f"{number}000\n" for number in used)
    return files, (f"cpuacct{path}/cpuacct.usage", before, later)


CG = "/sys/fs/cgroup"
V1_INIT = "12:memory:{0}\n4:cpu,cpuacct:{0}\n1:name=systemd:{0}/init.scope\n0::/\n"
LAYOUTS = {
    "v2, idle": Layout("0::/init.scope\n", *v2("", (10, 10)), f"{CG}|0|60"),
    "v2, in a namespace": Layout("0::/init.scope\n", *v2("", (10, 500_010)), f"{CG}|250|60"),
    "v2, without systemd": Layout("0::/\n", *v2("", (10, 2_000_010)), f"{CG}|1000|60"),
    "v2, more than asked for": Layout("0::/\n", *v2("", (10, 3_000_010)), f"{CG}|1000|60"),
    "v2, with a quota": Layout("0::/\n", *v2("", (0, 400_000), {"cpu.max": "50000 100000\n"}), f"{CG}|800|60"),
    "v2, without a quota": Layout("0::/\n", *v2("", (0, 400_000), {"cpu.max": "max 100000\n"}), f"{CG}|200|60"),
    "v2, without a namespace": Layout(
        "0::/lxc.payload.one-12/init.scope\n",
        *v2("lxc.payload.one-12/", (0, 1_000_000)),
        f"{CG}/lxc.payload.one-12|500|60",
    ),
    "v1, in a namespace": Layout(V1_INIT.format(""), *v1("", (7, 500_007)), f"{CG}/cpuacct|250|60"),
    "v1, without a namespace": Layout(
        V1_INIT.format("/lxc/one-12"), *v1("/lxc/one-12", (0, 1_000_000)), f"{CG}/cpuacct/lxc/one-12|500|60"
    ),
    "v1, with a quota": Layout(
        V1_INIT.format(""),
        *v1("", (0, 400_000), {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}),
        f"{CG}/cpuacct|800|60",
    ),
    "v1, without a quota": Layout(
        V1_INIT.format(""),
        *v1("", (0, 400_000), {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}),
        f"{CG}/cpuacct|200|60",
    ),
    "a machine of v2": Layout(
        "0::/init.scope\n", dict(V2), ("cpu.stat", "usage_usec 1\n", "usage_usec 2\n"), "|500|30"
    ),
    "a machine of v1": Layout(
        V1_INIT.format("/"),
        {"cpuacct/release_agent": "", "memory/release_agent": ""},
        ("cpuacct/cpuacct.usage", "1", "2"),
        "|500|30",
    ),
    "a machine without groups": Layout("", {}, ("none", "", ""), "|500|30"),
}


@pytest.mark.parametrize("shell", ["/bin/sh", "bash"])
def test_use_is_read_where_it_is_the_machines_own(tmp_path: Path, shell: str) -> None:
    for name, layout in LAYOUTS.items():
        place = tmp_path / name.replace(" ", "-").replace(",", "")
        group, (file, before, later) = place / "sys/fs/cgroup", layout.used
        files = {group / path: text for path, text in {**layout.files, file: before}.items()}
        files[place / "later/sys/fs/cgroup" / file] = later
        files |= {place / "proc/1/cgroup": layout.of_init, place / "later/proc/stat": STAT_LATER}
        files |= {place / "proc/stat": STAT, place / "proc/meminfo": "MemTotal: 40960 kB\nMemAvailable: 10240 kB\n"}
        files |= {place / "proc/uptime": "100.00 1.00\n", place / "later/proc/uptime": "101.00 1.00\n"}
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            [shell, "-c", PROGRAM, "sh", place, SCRIPT], capture_output=True, text=True, check=False, timeout=20
        )
        assert (done.stdout, done.stderr) == (layout.expected + "\n", ""), name
