"""`phoenix up`: start a cloud on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final

from phoenix.cli import cloud, files, local, suggest
from phoenix.cli.errors import FAILED, OK, CliError, usage
from phoenix.cli.parser import count, share
from schemas.dimensions import DIMENSIONS
from schemas.size import FIELDS

HYPERVISORS: Final = ("process", "dummy")
ISOLATES: Final = ("auto", "uid+cgroup", "uid", "none")
NETWORKS: Final = ("auto", "own", "machine")
DEFAULTS: Final = {
    "gpus": ": [opennebula] gpu_devices, dealt evenly"
}  # where it is not that of the table of dimensions
DISK_MAX_MB: Final = 1 << 30  # a petabyte
BALANCERS: Final = ("embedded", "haproxy", "none")
HOSTS_MAX: Final = 5000  # hosts of one machine's embedded cloud: more is a typing error, and would never be up
HELP: Final = """examples:
  phoenix up                               in the foreground, with a live status; Ctrl-C stops everything
  phoenix up --detach                      return when it is ready; `phoenix down` stops it
  phoenix up --hosts 128 --cores 1 --hypervisor dummy
  phoenix up --config site.toml --data /srv/phoenix
  phoenix up --balancer haproxy            HAProxy instead of the embedded load balancer
  phoenix up --balancer none               no load balancer: you run one of your own (docs/howto/haproxy.md)
  phoenix up --job-network machine         jobs listen and connect as programs of this machine do (docs/explanation/security.md)
  phoenix up --services none               only NATS and the embedded OpenNebula

Its settings are kept in the data directory (default: $PHOENIX_DATA or ./.phoenix): a later `phoenix up` there continues
where it was, with the same hosts, ports and credentials."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detach", action="store_true", help="return when the cloud is ready")
    parser.add_argument(
        "--config", type=files.named, metavar="FILE", help="configuration (default: the one in force, or hpc and web)"
    )
    parser.add_argument("--hosts", type=count, metavar="N", help="hosts of the embedded OpenNebula (default 16)")
    for d in DIMENSIONS:
        unit, default = f" in {d.unit}" if d.unit else "", DEFAULTS.get(d.field, f" {d.embedded[0]}")
        parser.add_argument(d.option, type=count, metavar="N", help=f"{d.name} of each{unit} (default{default})")
    parser.add_argument("--disk-mb", type=count, metavar="MB", help="what a job may hold on the disk (default 10240)")
    parser.add_argument(
        "--hypervisor", metavar="process|dummy", help="process: jobs really run; dummy: timed transitions"
    )
    parser.add_argument(
        "--balancer",
        metavar="embedded|haproxy|none",
        help="of the web departments: embedded (default), HAProxy with its agent, or none: you run one",
    )
    parser.add_argument("--services", metavar="none|all", help="none: only NATS and OpenNebula")
    parser.add_argument(
        "--core-share", type=share, metavar="S", help="real cores behind one core of a host (default 0.05)"
    )
    parser.add_argument("--isolate", metavar="KIND", help="auto (default), uid+cgroup, uid, none")
    parser.add_argument(
        "--job-network", metavar="KIND", help="of jobs: auto (default: own, if root can make one), own, machine"
    )
    parser.add_argument("--steering", action="store_true", default=None, help="dummy: let it be steered over XML-RPC")
    parser.add_argument(
        "--pace", action="store_true", default=None, help="the embedded OpenNebula is no faster than a real one"
    )


def run(args: argparse.Namespace) -> int:
    given = _given(args)
    if args.config is not None and not os.path.isfile(args.config):
        raise usage(f"{args.config}: there is no such file", "phoenix config check FILE reports what is wrong with one")
    from phoenix.local import up
    from phoenix.local.stack_layout import layout
    from phoenix.local.supervisor import StartError

    where = layout(cloud.data_dir(args))
    try:
        if not args.detach:
            return up.foreground(where, args.config, given, local.live(sys.stdout), _tell)
        up.detached(where, args.config, given, _tell)
    except StartError as error:
        raise CliError(FAILED, str(error)) from error
    print(local.endpoints(cloud.describe(where.data)))
    return OK


def _given(args: argparse.Namespace) -> dict[str, Any]:
    for option, value, known in (
        ("--hypervisor", args.hypervisor, HYPERVISORS),
        ("--balancer", args.balancer, BALANCERS),
        ("--services", args.services, ("none", "all")),
        ("--isolate", args.isolate, ISOLATES),
        ("--job-network", args.job_network, NETWORKS),
    ):
        if value is not None and value not in known:
            raise usage(f"{option}: {value!r} is not one of {', '.join(known)}", suggest.hint(value, known))
    for name, value, most in (
        ("--hosts", args.hosts, HOSTS_MAX),
        *((d.option, getattr(args, d.field), d.embedded[1]) for d in DIMENSIONS),  # more is a typing error
        ("--disk-mb", args.disk_mb, DISK_MAX_MB),
    ):
        if value is not None and value > most:
            raise usage(f"{name} {value}: at most {most}")
    if args.core_share is not None and not 0 < args.core_share <= 1:
        raise usage(f"--core-share {args.core_share:g}: above 0, at most 1")
    names = (
        "hosts",
        *FIELDS,
        "disk_mb",
        "hypervisor",
        "balancer",
        "services",
        "core_share",
        "isolate",
        "job_network",
        "steering",
        "pace",
    )
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _tell(text: str) -> None:
    clear = "\r\x1b[2K" if sys.stderr.isatty() else ""  # the live line may stand there
    print(f"{clear}phoenix: {text}", file=sys.stderr, flush=True)
