"""One VM, to try what no reading call shows: the template, the quota, and the right to deploy.  Nothing is left behind.

Rules
  1. It is allocated on HOLD: no scheduler starts it, and it takes no room on a host.
  2. It carries a PHOENIX_ID of a cloud that does not exist, so that no executor takes it for its own.
  3. The deployment that is tried cannot happen: the VM asks for more cores than the host has, and OpenNebula is asked to
     enforce that.  Permission is checked first (recorded), so the answer tells whether it would have been allowed.
  4. Where VMs are machines a small one is then really run, to measure how long that takes (`pace`).
  5. Whatever happens, it is terminated hard; where the answer of the allocation was lost, it is looked for by its name.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

from phoenix.doctor import pace
from phoenix.doctor.endpoint import Endpoint, Trouble
from phoenix.doctor.findings import Finding, fail, ok, warn, worst
from phoenix.doctor.requirements import REAL, Wanted
from schemas.size import Size
from services.domain.capabilities import CAPABILITIES
from services.executor.core.call_errors import Failure
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import Templates

CORES_TOO_MANY: Final = 100_000  # no machine has them; OpenNebula stores them without a complaint
MEMORY_MB: Final = 64
RUNS_MEMORY_MB: Final = 512  # a distribution's kernel and systemd boot with it
UNIT: Final = "dry-run"
TRIES: Final = 8
PAUSE_S: Final = 0.05  # the first; each one is twice as long: 6 s in all, and a real oned needs 32 ms for one on HOLD


def dry_run(endpoint: Endpoint, wanted: Wanted, host: int | None) -> list[Finding]:
    """`host`: the id of a usable one, to which the deployment is tried."""
    cloud = f"doctor-{os.getpid()}-{int(time.time())}"
    hypervisor = next((one for one in CAPABILITIES if one == wanted.hypervisor), None)
    templates = Templates(os.urandom(32), wanted.door or "http://127.0.0.1", wanted.template, hypervisor)
    found: list[Finding] = []
    try:
        small = _allocate(endpoint, templates, cloud, 1, 1)
        found.append(ok("dry run", f"VM {small} was allocated on HOLD with the cloud's template"))
        if host is not None:
            found += _deploy(endpoint, templates, cloud, host)
            if wanted.hypervisor in REAL and worst(found) != "fail":
                vm = _allocate(endpoint, templates, cloud, 3, 1, RUNS_MEMORY_MB)
                found += pace.measure(endpoint, wanted, vm, host, f"/{UNIT}/3/")
    except Trouble as trouble:
        found.append(endpoint.trouble("dry run", trouble))
    finally:
        found += _clean(endpoint, cloud)
    return found


def _allocate(
    endpoint: Endpoint, templates: Templates, cloud: str, attempt: int, cores: int, memory_mb: int = MEMORY_MB
) -> int:
    call = Allocate(UNIT, attempt, 0, "", Size(cores, memory_mb), f"{UNIT}/{attempt}/0")
    text = templates.of(cloud, call)
    return int(endpoint.ask(lambda one: one.vm.allocate(text, True)))


def _deploy(endpoint: Endpoint, templates: Templates, cloud: str, host: int) -> list[Finding]:
    try:
        large = _allocate(endpoint, templates, cloud, 2, CORES_TOO_MANY)
    except Trouble as trouble:
        if trouble.failure is not Failure.QUOTA:
            raise
        return [warn("dry run", "the quota is too small to try a deployment that cannot happen", "run one job instead")]
    try:
        endpoint.ask(lambda one: one.vm.deploy(large, host, True, -1, ""))
    except Trouble as trouble:
        if trouble.failure is Failure.CAPACITY:
            return [ok("dry run", "a deployment would have been allowed: it was refused for its size alone")]
        raise
    advice = "OpenNebula does not enforce capacity: look at the host's RESERVED_CPU and at oned's version"
    return [fail("dry run", f"a VM of {CORES_TOO_MANY} cores was accepted by host {host}", advice)]


def _clean(endpoint: Endpoint, cloud: str) -> list[Finding]:
    """End every VM of this run, and see that it is gone."""
    left: list[int] = []
    for tried in range(TRIES):
        with suppress(Trouble):
            left = _left(endpoint, cloud)
            if not left:
                return [ok("dry run", "nothing of it is left")]
        for vm in left:
            with suppress(Trouble):
                endpoint.ask(lambda one, vm=vm: one.vm.action("terminate-hard", vm))  # type: ignore[misc]
        time.sleep(PAUSE_S * 2**tried)
    shown = " ".join(map(str, left)) or f"those named {cloud}-…"
    return [fail("dry run", f"VMs of the dry run could not be ended: {shown}", f"onevm terminate --hard {shown}")]


def _left(endpoint: Endpoint, cloud: str) -> list[int]:
    pool = endpoint.tree(lambda one: one.vmpool.info(-2, -1, -1, -1))
    named = [x for x in pool.findall("VM") if (x.findtext("NAME") or "").startswith(f"{cloud}-")]
    return [int(x.findtext("ID") or -1) for x in named]
