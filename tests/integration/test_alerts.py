"""Four things go wrong on a real cloud: the shipped alerts come to a webhook by the real Prometheus and Alertmanager, and are
taken back when the cause is mended.  The dashboards' queries are asked of the same Prometheus."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up_cloud import Cloud, until
from tests.support import prometheus
from tests.support.dashboards import asked, unanswered
from tests.support.prometheus import Prometheus, Webhook

pytestmark = pytest.mark.timeout(240)

TIMES = 60  # a minute of the shipped rules is a second here
CONFIG = """
[cloud]
name = "alarmed"
[[department]]
name = "hpc"
kind = "batch"
guarantee = 2
[[department]]
name = "web"
kind = "web"
[department.web]
signal_timeout_s = 1
[[user]]
name = "alice"
department = "hpc"
[[user]]
name = "wendy"
department = "web"
role = "manager"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
"""
ALERTS = {
    "PhoenixSignalMissing": {"severity": "critical", "department": "web"},
    "PhoenixClaimNotMet": {"severity": "critical", "department": "web"},
    "PhoenixHostQuarantined": {"severity": "warning", "reason": "disabled"},
    "PhoenixNoLeader": {"severity": "critical", "process": "scheduler.hpc"},
}
RECEIVERS = {"critical": "duty", "warning": "operators"}


class Site(Cloud):
    """A cloud of four hosts, two of which are always batch's, whose web department gets its load by hand."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.publishers: list[subprocess.Popen[bytes]] = []

    def publish(self, *load: str) -> None:
        words = [
            sys.executable,
            "-m",
            "phoenix.cli",
            "signal",
            "web",
            *(load or ("0.5",)),
            "--for",
            "10m",
            "--every",
            "0.2s",
        ]
        self.publishers.append(subprocess.Popen(words, env=self.environment()))

    def fall_silent(self) -> None:
        while self.publishers:
            self.publishers[-1].kill()
            self.publishers.pop().wait()

    def enable(self, host: int, wanted: bool) -> None:
        """As `onehost enable` and `onehost disable`."""
        status = self.status()
        session = Path(status["opennebula_auth_file"]).read_text().strip()
        with xmlrpc.client.ServerProxy(status["opennebula_url"]) as server:
            assert server.one.host.status(session, host, 0 if wanted else 1)[0]  # type: ignore[index]

    def send(self, process: str, number: int) -> None:
        found = [one["pid"] for one in self.status()["processes"] if one["name"] == process]
        os.kill(found[0], number)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("alerts")
    (directory / "site.toml").write_text(CONFIG)
    site = Site(directory / "data")
    config = str(directory / "site.toml")
    site.ok("up", "--detach", "--hosts", "4", "--balancer", "none", "--config", config)
    yield site
    site.fall_silent()
    site.close()


@pytest.fixture(scope="module")
def watched(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Webhook]]:
    with prometheus.running(tmp_path_factory.mktemp("prometheus") / "p", site.status()["monitor_url"], TIMES) as both:
        yield both


def test_what_goes_wrong_is_told_and_taken_back_when_it_is_mended(
    site: Site, watched: tuple[Prometheus, Webhook]
) -> None:
    server, webhook = watched
    site.publish()
    expected = {"admission", "provisioner", "executor", "monitor", "scheduler.hpc", "scheduler.web"}
    until(lambda: set(server.up()) == expected and all(server.up().values()), "not every process is scraped")
    until(server.page, "try.sh does not say where the alerts are")
    with urllib.request.urlopen(server.page(), timeout=30) as page:  # loopback
        assert page.status == 200

    site.fall_silent()
    site.ok("scale", "web", "--exact", "4")  # two of the four hosts are guaranteed to batch
    site.enable(0, False)
    site.send("scheduler.hpc", signal.SIGSTOP)
    for name, labels in ALERTS.items():
        until(lambda name=name, labels=labels: webhook.says("firing", name, **labels), f"{name} does not come")  # type: ignore[misc]
        told = webhook.last(name, **labels)
        assert told is not None
        assert told["labels"]["cloud"] == "alarmed"
        assert told["receiver"] == RECEIVERS[labels["severity"]]
        assert told["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"

    site.publish()
    site.ok("scale", "web", "--exact", "2")
    site.enable(0, True)
    site.send("scheduler.hpc", signal.SIGCONT)
    for name, labels in ALERTS.items():
        until(lambda name=name, labels=labels: webhook.says("resolved", name, **labels), f"{name} is not taken back")  # type: ignore[misc]


def test_every_query_of_the_dashboards_has_an_answer(site: Site, watched: tuple[Prometheus, Webhook]) -> None:
    """Asked as Grafana would, of a cloud in which jobs run, wait and end, and web has claimed."""
    server, _ = watched
    left = list(asked())
    site.fall_silent()
    site.publish()
    site.publish("--requests", "40", "--target", "100")
    site.ok("submit", "--wait", "--wrap", "true")
    site.ok("submit", "-c", "4", "-a", "1-9", "--wrap", "sleep 600")
    site.ok("scale", "web", "--exact", "2")

    def all_answered() -> bool:
        nonlocal left
        left = unanswered(server.ask, left, "alarmed", ("hpc", "web"))
        return not left

    try:
        until(all_answered, "no series")
    except AssertionError:
        pytest.fail("\n".join(f"{one.dashboard}, {one.panel}: nothing for {one.query}" for one in left))
