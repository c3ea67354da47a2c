"""Run an embedded OpenNebula.

    python -m phoenix.local.opennebula --port 2633 --data DIR --auth-file FILE --hosts 8 --hypervisor process

The auth file holds `user:password` and must be readable by its owner only; without it the session is
`oneadmin:opennebula`, on the loopback. `--port 0` takes a free port; `--port-file` is written, atomically, when the
server listens. SIGTERM and SIGINT stop it cleanly. Exit codes: 0 stopped, 2 wrong arguments or files, 1 anything
else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import stat
import sys
from pathlib import Path
from typing import cast

from phoenix.local.driver import Driver
from phoenix.local.opennebula.dummy import DummyDriver
from phoenix.local.opennebula.persistence import write_atomically
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.steering import STEPS, Steering
from schemas.dimensions import DIMENSIONS, EMBEDDED
from schemas.size import size_of
from services.runtime import log
from services.runtime.watchdog import READY, Heart


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m phoenix.local.opennebula", description="An OpenNebula on this machine."
    )
    add = parser.add_argument
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    add("--log-format", default="text", choices=("text", "json"))
    add("--port", type=int, default=2633, help="port of the XML-RPC endpoint; 0: a free one")
    add("--port-file", type=Path, help="written with the port when the server listens")
    add("--status-file", type=Path, help="file written when the hypervisor has started: how VMs are isolated, as JSON")
    add("--bind", default="127.0.0.1", help="address to listen on")
    add("--data", type=Path, help="directory for state and VMs; none: nothing is stored")
    add("--auth-file", type=Path, help="file with user:password, mode 0600")
    add("--hosts", type=int, default=4)
    for dimension, number in zip(DIMENSIONS, EMBEDDED, strict=True):
        add(dimension.option, type=int, default=number, help=f"{dimension.name} of each host")
    add("--image", action="append", default=[], metavar="NAME", help="an image that VMs may name; may be repeated")
    add("--network", action="append", default=[], metavar="NAME", help="a network that VMs may name; may be repeated")
    add("--gpu-device", action="append", default=[], metavar="PATH", help="a device node behind a GPU; may be repeated")
    add("--hypervisor", choices=("dummy", "process"), default="dummy")
    add("--delay", action="append", default=[], metavar="STEP=S", help="dummy: seconds per step")
    add(
        "--rule",
        action="append",
        default=[],
        metavar="JSON",
        help='dummy: a steering rule, as {"step": "boot", "fail": "no"}',
    )
    add("--core-share", type=float, default=1.0, help="process: share of a real core that one core of a VM gets")
    add("--grace-s", type=float, default=5.0, help="process: seconds from SIGTERM to SIGKILL")
    add("--disk-mb", type=int, default=10_240, help="process: how much a VM may store on the disk")
    add("--isolate", default="auto", help="process: how VMs are isolated")
    add("--job-network", type=int, help="process: a descriptor of the network namespace that jobs are in")
    add("--steering", action="store_true", help="allow phoenix.dummy.steer")
    add("--events-port", type=int, help="port of the ZeroMQ event publisher; none: no events")
    add("--events", default="", metavar="ADDRESS", help="address of the event publisher, as ipc://PATH")
    add("--monitor-interval-s", type=float, default=2.0, help="seconds between probes of hosts and VMs")
    add("--pace", action="store_true", help="no faster than a real oned: 35 launches a second, 60 ends, 15 connections")
    return parser


def _session(path: Path | None) -> tuple[str, str]:
    if path is None:
        return "oneadmin", "opennebula"
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ValueError(f"{path}: mode {mode:04o} lets others read the password; chmod 600 it")
    user, colon, password = path.read_text("utf-8").strip().partition(":")
    if not (user and colon and password):
        raise ValueError(f"{path}: must hold one line, user:password")
    return user, password


def _delays(texts: list[str]) -> dict[str, float]:
    delays: dict[str, float] = {}
    for text in texts:
        step, _, seconds = text.partition("=")
        if step not in STEPS:
            raise ValueError(f"--delay {text}: the step must be one of {', '.join(sorted(STEPS))}")
        delays[step] = float(seconds)
    return delays


def _add_rule(steering: Steering, text: str) -> None:
    try:
        steering.add_fields(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"--rule {text}: {type(error).__name__}: {error}") from error


def _driver(options: argparse.Namespace, steering: Steering) -> Driver:
    if options.hypervisor == "dummy":
        for rule in options.rule:
            _add_rule(steering, rule)
        from phoenix.local.guest.dummy import guest_of_ours  # an HTTP client that a bare `oned` stand-in does not need

        return DummyDriver(delays_s=_delays(options.delay), steering=steering, guest=guest_of_ours)
    if options.data is None:
        raise ValueError("--hypervisor process needs --data DIR")
    from phoenix.local.process.driver import ProcessDriver  # only this hypervisor needs it

    data, share, grace_s = options.data / "process", options.core_share, options.grace_s
    if options.job_network is not None:
        os.set_inheritable(options.job_network, False)
    for node in options.gpu_device:
        if not Path(node).is_char_device():
            raise ValueError(f"{node}: a GPU must be a device node of this machine, such as /dev/nvidia0")
    limits = {"disk_mb": options.disk_mb, "network": options.job_network, "gpus": tuple(options.gpu_device)}
    return cast(Driver, ProcessDriver(data, share, grace_s, options.isolate, **limits))


def _settings(options: argparse.Namespace) -> Settings:
    user, password = _session(options.auth_file)
    return Settings(
        hosts=options.hosts,
        size=size_of(options),
        gpu_devices=tuple(options.gpu_device),
        bind=options.bind,
        port=options.port,
        events_port=options.events_port,
        events=options.events,
        steering=options.steering,
        monitor_interval_s=options.monitor_interval_s,
        data_dir=options.data,
        user=user,
        password=password,
        pace=options.pace,
        images=tuple(options.image),
        networks=tuple(options.network),
    )


async def _serve(options: argparse.Namespace) -> None:
    steering = Steering()
    server = OpenNebula(_settings(options), _driver(options, steering), steering=steering)
    heart, stop = Heart(), asyncio.Event()
    beat = asyncio.create_task(heart.beat(), name="heart")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    try:
        if options.port_file is not None:
            write_atomically(options.port_file, f"{server.port}\n".encode(), mode=0o644)
        if options.status_file is not None:
            isolation: object = getattr(
                server.driver, "isolation", dict
            )()  # only the process hypervisor keeps VMs apart
            write_atomically(options.status_file, json.dumps(isolation).encode(), mode=0o600)
        logging.getLogger("phoenix.opennebula").info("listening on %s", server.url)
        heart.say(READY)
        await stop.wait()
    finally:
        await server.close()
        beat.cancel()


def main(arguments: list[str] | None = None) -> int:
    """See the module."""
    options = _parser().parse_args(arguments)
    log.configure(options.log_level, options.log_format, service="opennebula")
    try:
        asyncio.run(_serve(options))
    except (ValueError, OSError) as error:
        print(f"phoenix opennebula: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
