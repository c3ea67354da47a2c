"""`phoenix doctor`: is this OpenNebula ready for a cloud, does the cloud's broker write, and if not, what to do."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from phoenix.cli import cloud, files, printing
from phoenix.cli.errors import FAILED, OK, CliError, usage
from phoenix.doctor import broker
from phoenix.doctor.endpoint import Endpoint
from phoenix.doctor.examination import examine
from phoenix.doctor.findings import Finding, table, warn, worst
from phoenix.doctor.requirements import Wanted, of_config
from services.domain.capabilities import CAPABILITIES
from services.runtime.config.file import ConfigError, load
from services.runtime.config.tables import Config

HELP: Final = """examples:
  phoenix doctor --config site.toml                            the OpenNebula that a configuration names
  phoenix doctor --config site.toml --dry-run-vm               and try one VM, and how long it takes; nothing is left
  phoenix doctor --opennebula http://one:2633/RPC2 --auth one_auth --hypervisor kvm
  phoenix doctor                                               the embedded one of the cloud that runs here

Where the cloud's credentials are, it also asks nats-server whether it still writes its streams.

It changes nothing, but for --dry-run-vm.  Exit code: 0 nothing fails, 1 something does"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--opennebula", metavar="URL", type=_url, help="oned's XML-RPC endpoint")
    parser.add_argument(
        "--auth", type=files.named, metavar="FILE", help="a file with user:password (default: ~/.one/one_auth)"
    )
    parser.add_argument(
        "--config", type=files.named, metavar="FILE", help="the cloud's configuration: endpoint, template, …"
    )
    parser.add_argument("--hypervisor", choices=sorted(CAPABILITIES), help="what the hosts are expected to have")
    parser.add_argument(
        "--events", metavar="HOST:PORT", type=_place, help="where state changes are published, if oned does not say"
    )
    parser.add_argument(
        "--dry-run-vm",
        action="store_true",
        help="try the template and the rights with a VM on HOLD; where VMs are machines, run a small one and measure it",
    )


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and parts.password is None:
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no address: write http://HOST:2633/RPC2")


def _place(text: str) -> str:
    text = text.removeprefix("tcp://")
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 65536:
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")


def run(args: argparse.Namespace) -> int:
    url, auth, wanted = _what(args)
    wanted = replace(wanted, hypervisor=args.hypervisor or wanted.hypervisor, events=(args.events or wanted.events))
    endpoint = Endpoint(url, _session(auth), str(auth))
    try:
        found = examine(endpoint, wanted, args.dry_run_vm)
    finally:
        endpoint.close()
    found += _secrets(args) + _broker(args)
    level = worst(found)
    if args.json:
        printing.json({"opennebula": url, "result": level, "findings": [x.as_dict() for x in found]})
    else:
        print(table(found))
    return FAILED if level == "fail" else OK


def _secrets(args: argparse.Namespace) -> list[Finding]:
    """Of the configuration file, where one is known: what web departments' instances are to be handed."""
    from services.runtime.config.secret_files import problems

    if args.config is None:
        return []
    config = _load(args.config)
    return [
        warn("secrets", problem, "phoenix secret list DEPT")
        for problem in problems(config.secrets.directory, config.cloud)
    ]


def _broker(args: argparse.Namespace) -> list[Finding]:
    """Of the configuration file, or of the cloud that runs here."""
    if args.config is None and args.opennebula is not None:
        return []
    file = args.config or Path(str(cloud.describe(cloud.data_dir(args)).get("config", "")))
    try:
        return broker.look(_load(file))
    except (CliError, OSError) as error:
        return [warn("broker", f"it is not asked whether it writes: {error}", "phoenix doctor --config FILE")]


def _what(args: argparse.Namespace) -> tuple[str, Path, Wanted]:
    """Endpoint, login and what the cloud will ask; what is said on the command line wins."""
    if args.config is not None:
        config = _load(args.config)
        one = config.opennebula
        return args.opennebula or one.endpoint, args.auth or one.auth_file, of_config(config)
    if args.opennebula is not None:
        return args.opennebula, args.auth or Path("~/.one/one_auth").expanduser(), Wanted()
    data = cloud.data_dir(args)
    about = cloud.describe(data)
    try:
        return about["opennebula_url"], args.auth or Path(about["opennebula_auth_file"]), _of_running(about)
    except (TypeError, KeyError) as error:
        raise cloud.damaged(data) from error


def _of_running(about: dict[str, Any]) -> Wanted:
    """What the cloud that runs here asks: its configuration in force, as far as it may be read."""
    try:
        wanted = of_config(_load(Path(about["config"])))
    except (CliError, OSError, KeyError):
        wanted = Wanted(door=str(about.get("http_url", "")))
    return replace(wanted, hypervisor=wanted.hypervisor or str(about.get("hypervisor") or ""))


def _load(file: Path) -> Config:
    try:
        return load(file)
    except ConfigError as error:
        raise CliError(FAILED, f"{file} has problems:\n{error}") from error


def _session(file: Path) -> str:
    try:
        text = file.read_text(errors="replace").strip()
    except OSError as error:
        raise usage(f"{file}: cannot read the login: {error.strerror}", "--auth FILE, with user:password") from error
    if ":" not in text or len(text.splitlines()) != 1:
        raise usage(f"{file}: should hold one line, user:password")
    return text
