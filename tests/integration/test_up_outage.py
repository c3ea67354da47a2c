"""A web department whose program is ill, on a whole cloud: every place says so within seconds, those that have served are
kept, and it heals by itself."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, signpost, until
from tests.support.failures import OFFLINE, host_status

pytestmark = pytest.mark.timeout(180)
ANSWER = "/healthz answered HTTP 500"
PROGRAM = """
import http.server, os
class Answers(http.server.BaseHTTPRequestHandler):
    log_message = print
    def do_GET(self):
        if self.path == "/end":
            os.write(2, b"no more memory for /end\\n")
            os._exit(7)
        self.send_response(500 if os.path.exists(os.environ["ILL"]) else 200)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Answers).serve_forever()
"""


@pytest.fixture
def ill() -> Iterator[Path]:
    """While it exists, the health path of all instances answers 500."""
    with signpost() as path:
        yield path


@pytest.fixture
def site(tmp_path: Path, ill: Path) -> Iterator[Cloud]:
    web = f"""[department.web]
command = ["python3", "-c", '''{PROGRAM}''']
environment = {{ ILL = "{ill}" }}
unreachable_s = 2
min_ready_s = 0.5
"""
    text = stack_config.DEFAULT.read_text().replace("[department.web]\n", web)
    text = text.replace("instances_min = 1\n", "instances_min = 2\n")
    (tmp_path / "site.toml").write_text(text)
    found = Cloud(tmp_path / "data")
    found.ok("up", "--detach", "--hosts", "4", "--cores", "1", "--config", str(tmp_path / "site.toml"))
    until(lambda: serving(found) == 2, "two instances do not serve")
    yield found
    found.close()


def department(cloud: Cloud) -> dict[str, Any]:
    return dict(next(one for one in cloud.json("departments")["departments"] if one["department"] == "web"))


def serving(cloud: Cloud) -> int:
    return int(department(cloud)["instances_serving"])


def metrics(cloud: Cloud) -> str:
    url = next(one["url"] for one in cloud.status()["processes"] if one["name"] == "monitor")
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def booting(cloud: Cloud) -> list[str]:
    return [line for line in cloud.ok("instances", "web").splitlines() if "booting" in line]


def test_an_outage_is_told_everywhere_and_heals(site: Cloud, ill: Path) -> None:
    ill.touch()
    until(lambda: serving(site) == 0, "the outage is not noticed", within_s=20)
    found = department(site)
    assert (found["instances_not_ready"], found["not_ready_answer"]) == (2, ANSWER)
    told = " ".join(site.ok("why", "web").split())
    assert f"0 of 2 instances serve; 2 are not ready: {ANSWER}, for " in told
    listed = [line for line in site.ok("instances", "web").splitlines() if "not-ready" in line]
    assert [line.endswith(ANSWER) for line in listed] == [True, True]
    assert "2 not ready" in site.ok("departments")
    until(
        lambda: [one["reason"]["code"] for one in department(site)["troubles"]] == ["not_ready"],
        "the monitor is not told",
    )
    assert re.search(r'phoenix_web_instances_serving\{[^}]*department="web"[^}]*\} 0\.0', metrics(site))
    until(lambda: "0 of 2 instances serve" in site.run("status").stdout, "status does not say it")
    until(lambda: any(line.endswith(ANSWER) for line in booting(site)), "no successor is tried, or it does not say why")
    ill.unlink()
    until(lambda: serving(site) == 2 and department(site)["instances_not_ready"] == 0, "it does not heal")
    ended = [one["why"]["code"] for one in site.json("instances", "web", "--all")["instances"] if one["why"]]
    assert "not_ready" not in ended  # those that had served were kept


def test_a_program_that_ends_says_how_and_what_it_wrote_last(site: Cloud) -> None:
    (first, _) = site.json("instances", "web")["instances"]
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{first['address']}/end").read()
    row = until(lambda: [x for x in site.json("instances", "web", "--all")["instances"] if x["why"]], "it does not end")
    assert row[0]["why"]["code"] == "program_ended"
    words = 'its program ended with exit code 7, and wrote last: "no more memory for /end"'
    assert words in site.ok("instances", "web", "--all")
    assert words in site.ok("events", "-d", "web", "--after", "0", "--as", "wendy")
    until(lambda: serving(site) == 2, "it has no successor")


def test_a_lost_host_is_told_by_status_until_somebody_knows_of_it(site: Cloud) -> None:
    """`phoenix status` ends with 1 then, as of every other thing that an operator should look at."""
    (name, *_) = sorted(one["host"] for one in site.json("hosts")["hosts"])
    host_status(site, name, OFFLINE)
    until(lambda: f"executor: 1 host is lost: {name}" in site.run("status").stdout, "status does not say it")
    assert site.run("status").returncode == 1
    site.ok("hosts", "cordon", name, "--reason", "a disk is changed")
    until(lambda: site.run("status").returncode == 0, "a cordoned host is still reported")
