"""The real Prometheus and Alertmanager on the shipped configuration, in a hurry, and a webhook that takes what they say.

Rules
  1. Everything listens on loopback, at free ports, and stores in a directory of the test.  Both end with the test.
  2. `hastened` divides every duration of a configuration or rule by `times`: `for`, intervals, ranges in brackets, and each
     number that is marked `# seconds`.  Nothing else is changed, so what is tested is what is shipped.
  3. Only how often it is scraped and evaluated is given (`EVERY`): a busy machine has no time for more.
  4. A copy of the shipped try.sh, beside these files, puts in the monitor and Alertmanager, and starts Prometheus.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.integration.up_cloud import until
from tests.support.ports import free_port
from tests.support.tools import tool

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
EVERY: Final = "500ms"
READY_S: Final = 40.0
STOP_S: Final = 30.0
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(?<=\[)(\d+)(ms|s|m|h|d)(?=\])|(?<=: )(\d+)(ms|s|m|h|d)(?= #|$)", re.MULTILINE)
_SECONDS: Final = re.compile(r"\b(\d+(?:\.\d+)?) # seconds")
_ASKED: Final = re.compile(r"(scrape_interval|scrape_timeout|evaluation_interval): \S+")


def hastened(text: str, times: float) -> str:
    """Rule 2."""

    def duration(found: re.Match[str]) -> str:
        number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
        return f"{max(1, round(int(number) * _UNITS[unit] * 1000 / times))}ms"

    return _SECONDS.sub(lambda found: f"{float(found[1]) / times:g} # seconds", _DURATION.sub(duration, text))


class Webhook:
    """Every alert that came, in order: its labels, and `firing` or `resolved`."""

    def __init__(self) -> None:
        came: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                came.extend({**alert, "receiver": told["receiver"]} for alert in told["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                """It is not read."""

        self.came = came
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def last(self, name: str, **labels: str) -> dict[str, Any] | None:
        """The last word on this alert, if there was one."""
        wanted = {"alertname": name, **labels}.items()
        fits = [alert for alert in self.came if wanted <= alert["labels"].items()]
        return fits[-1] if fits else None

    def says(self, status: str, name: str, **labels: str) -> bool:
        last = self.last(name, **labels)
        return last is not None and last["status"] == status


class Prometheus:
    """`ask`: its HTTP API.  `page`: the address that try.sh says, once it has said it."""

    def __init__(self, port: int, log: Path) -> None:
        self.url, self._log = f"http://127.0.0.1:{port}", log

    def page(self) -> str:
        said = re.search(r"^Prometheus for \S+: (http\S+)$", self._log.read_text(), flags=re.MULTILINE)
        return said[1] if said else ""

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=READY_S) as answer:  # loopback
            return json.load(answer)["data"]

    def up(self) -> dict[str, bool]:
        """Every process that it scrapes, and whether the last scrape succeeded."""
        found = self.ask("targets?state=active")["activeTargets"]
        return {target["labels"]["process"]: target["health"] == "up" for target in found}


@contextmanager
def running(directory: Path, monitor_url: str, times: float) -> Iterator[tuple[Prometheus, Webhook]]:
    """Both, on the shipped files, for the cloud of this monitor; Prometheus by the shipped try.sh (rule 4)."""
    webhook, one, two = Webhook(), free_port(), free_port()
    _write(directory, times, webhook.port)
    path = f"{tool('prometheus').parent}:{os.environ['PATH']}"
    prometheus = _start(
        directory,
        {"PATH": path, "PORT": f"{one}", "ALERTMANAGER": f"127.0.0.1:{two}"},
        *("sh", "try.sh", monitor_url),
        "--rules.alert.resend-delay=1s",  # Alertmanager is known some seconds after the first alert
    )
    alertmanager = _start(
        directory,
        {},
        tool("prometheus-alertmanager"),
        "--config.file=alertmanager.yml",
        "--storage.path=alerts",
        f"--web.listen-address=127.0.0.1:{two}",
        "--cluster.listen-address=",
        "--log.level=warn",
    )
    try:
        for process, port in ((prometheus, one), (alertmanager, two)):
            until(lambda process=process, port=port: _ready(process, port), "it is not ready", READY_S)
        yield Prometheus(one, directory / "sh.log"), webhook
    finally:
        for process in (prometheus, alertmanager):
            process.terminate()
        for process in (prometheus, alertmanager):
            process.wait(STOP_S)
        webhook.close()


def _write(directory: Path, times: float, webhook: int) -> None:
    for name in ("rules", "targets"):
        (directory / name).mkdir(parents=True)
    for file in DEPLOY.glob("rules/*.yml"):
        (directory / "rules" / file.name).write_text(hastened(file.read_text(), times))
    shutil.copy(DEPLOY / "try.sh", directory)
    config = _ASKED.sub(rf"\1: {EVERY}", hastened((DEPLOY / "prometheus.yml").read_text(), times))  # rule 3
    (directory / "prometheus.yml").write_text(config)
    messages = hastened((DEPLOY / "alertmanager.yml").read_text(), times).replace(":9099", f":{webhook}")
    (directory / "alertmanager.yml").write_text(messages)


def _start(directory: Path, more: dict[str, str], program: str | Path, *words: str) -> subprocess.Popen[bytes]:
    with (directory / f"{Path(program).name}.log").open("wb") as log:
        return subprocess.Popen([program, *words], cwd=directory, env=os.environ | more, stdout=log, stderr=log)


def _ready(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, f"it has ended with {process.returncode}: its log is in the test's directory"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:  # loopback
            return int(answer.status) == 200
    except OSError:
        time.sleep(0.02)
        return False
