"""How long a VM takes at this site: until OpenNebula says that it runs, until its guest calls, and to end when it is asked.

Theory of operation
  One small VM with the cloud's own template is deployed on a host that has room for it, and looked at until it runs.  If the
  address at which the cloud listens for guests is free, this process listens there meanwhile: the first request that names the
  VM is its guest's.  It answers that it is busy, as a service that starts does, so the guest asks again and the VM stays.
  Then the VM is asked to end as a job's is.  The configuration's times are compared with that.

Rules
  1. It carries a PHOENIX_ID of a cloud that does not exist; `dry_run` ends whatever is left of it.
  2. A time is believed to suit if it is a few times the measured one: a busy site is slower than an idle one.
  3. Nothing is measured where VMs are processes: there the defaults were made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from phoenix.doctor.endpoint import Endpoint, Trouble
from phoenix.doctor.findings import Finding, fail, ok, warn
from phoenix.doctor.requirements import Wanted
from services.executor.core.call_errors import Failure
from services.executor.core.calls import Phase, phase_of
from services.executor.opennebula.messages import in_words
from services.runtime.log import message_of

RUN_S: Final = 600.0  # the copy of an image may take minutes
CALL_S: Final = 300.0  # from RUNNING; a system that boots takes a minute on a busy host
END_S: Final = 200.0  # OpenNebula's drivers give up after three minutes
LOOK_S: Final = 0.25
BOOT_TIMES, GRACE_TIMES, KILL_TIMES = 10, 2, 6  # several starts at once share disks and lines; an end waits for little
LEAST: Final = {"boot_timeout_s": 60, "grace_s": 1, "kill_s": 5}


class Took(NamedTuple):
    """Seconds; None: not seen.  `ran`: until RUNNING; `called`: until the guest's first request; `ended`: from the order to
    its end."""

    ran: float
    called: float | None
    ended: float | None


def measure(endpoint: Endpoint, wanted: Wanted, vm: int, host: int, name: str) -> list[Finding]:
    """Of this VM, which is on HOLD.  `name`: what a request of its guest contains.  Raises `Trouble`."""
    began = time.monotonic()
    with _door(wanted.listen, name) as (called, closed):
        try:
            endpoint.ask(lambda one: one.vm.deploy(vm, host, True, -1, ""))
        except Trouble as trouble:
            if trouble.failure is Failure.CAPACITY:
                return [warn("pace", f"not measured: {trouble.why}", "again when a host has a core and 512 MiB free")]
            raise
        ran, phase, why = _until(endpoint, vm, (Phase.RUNNING,), began + RUN_S)
        if phase is not Phase.RUNNING:
            state = why or f"it is {phase.value if phase is not None else 'on its way'} after {ran - began:.0f} s"
            return [fail("pace", f"VM {vm} does not run: {state}", "onevm show, and the driver's log on the host")]
        answered = None if closed else called.wait(CALL_S)
        heard = time.monotonic() if answered else None
    asked = time.monotonic()
    endpoint.ask(lambda one: one.vm.action("terminate", vm))
    over, phase, _ = _until(endpoint, vm, (Phase.OVER,), asked + END_S)
    took = Took(ran - began, None if heard is None else heard - began, over - asked if phase is Phase.OVER else None)
    return judged(took, wanted, closed)


def judged(took: Took, wanted: Wanted, closed: str = "") -> list[Finding]:
    """What follows.  `closed`: why no guest could be heard."""
    words = [f"a VM runs after {took.ran:.1f} s"]
    found = []
    if took.called is not None:
        words.append(f"its guest called after {took.called:.1f} s")
    if took.ended is not None:
        words.append(f"it ended {took.ended:.1f} s after it was asked to")
    lacking = {key: value for key, value in proposed(took).items() if getattr(wanted, key) < value / 2}
    says = ", ".join(words)
    if lacking:
        values = ", ".join(f"{_TABLE[key]} {key} = {value}" for key, value in lacking.items())
        found.append(warn("pace", says, f"in the configuration, since a busy site is slower still: {values}"))
    else:
        found.append(ok("pace", f"{says}; the configuration's times suit that"))
    if closed:
        found.append(warn("pace", f"its guest was not listened for: {closed}", "measure while the cloud is down"))
    elif took.called is None:
        advice = "from a VM: curl the [http] url; is phoenix-guest in the image, and does it start at boot?"
        found.append(fail("pace", f"no guest called {wanted.door} within {CALL_S:.0f} s", advice))
    if took.ended is None:
        advice = "ACPI in [opennebula.template] FEATURES, and a system in the image that answers the power button"
        found.append(warn("pace", f"it did not end within {END_S:.0f} s of being asked to: jobs get no grace", advice))
    return found


_TABLE: Final = {
    "boot_timeout_s": "[department.batch] and [department.web]",
    "grace_s": "[policy]",
    "kill_s": "[policy]",
}


def proposed(took: Took) -> dict[str, int]:
    """Values for the configuration."""
    found = {"boot_timeout_s": BOOT_TIMES * (took.ran if took.called is None else took.called)}
    if took.ended is not None:
        found |= {"grace_s": GRACE_TIMES * took.ended, "kill_s": KILL_TIMES * took.ended}
    return {key: max(LEAST[key], _round(value)) for key, value in found.items()}


def _round(seconds: float) -> int:
    """Up, to a number that a person would write."""
    step = next((step for bound, step in ((10, 1), (60, 5), (300, 30)) if seconds <= bound), 60)
    return int(-(-seconds // step) * step)


def _until(
    endpoint: Endpoint, vm: int, wanted: tuple[Phase, ...], due: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[float, Phase | None, str]:
    """When one of these phases was seen first, or the VM failed, or its time was up; the phase, and OpenNebula's words."""
    while True:
        phase, why = _seen(endpoint, vm)
        now = time.monotonic()
        if phase in wanted or phase in (Phase.FAILED, Phase.OFF, Phase.OVER) or now >= due:
            return now, phase, why
        sleep(LOOK_S)


def _seen(endpoint: Endpoint, vm: int) -> tuple[Phase | None, str]:
    try:
        tree = endpoint.tree(lambda one: one.vm.info(vm, False))
    except Trouble as trouble:
        if trouble.failure is Failure.GONE:
            return Phase.OVER, ""
        raise
    state, lcm = (int(tree.findtext(name) or 0) for name in ("STATE", "LCM_STATE"))
    return phase_of(state, lcm), in_words(tree.findtext("USER_TEMPLATE/ERROR") or "")


@contextmanager
def _door(listen: str, name: str) -> Iterator[tuple[threading.Event, str]]:
    """Listen where guests call; yields what is set by the first request that names the VM, and why nothing listens, if so."""
    called = threading.Event()

    class Busy(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            if name in self.path or name in str(self.headers):
                called.set()
            self.send_response(503)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """A doctor prints findings alone."""

    host, _, port = listen.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), Busy)
    except (OSError, ValueError) as error:
        yield called, f"{listen}: {message_of(error)}"
        return
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield called, ""
    finally:
        with suppress(OSError):
            server.shutdown()
            server.server_close()
        thread.join()
