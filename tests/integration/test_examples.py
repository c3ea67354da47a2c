"""What README shows to programs of others: each example runs as it stands, against a cloud that really runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio

from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
RUN_S = 30.0


class Site:
    """A cloud and what its status says about it."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.status = cloud.status()

    def credential(self, user: str, kind: str) -> str:
        return str(self.status["credentials"][user][kind])

    def python(
        self, name: str, department: str, user: str, key_of: str, *more: str
    ) -> subprocess.CompletedProcess[str]:
        return run(*self.words(name, department, user, key_of, *more))

    def words(self, name: str, department: str, user: str, key_of: str, *more: str) -> list[str]:
        key = self.credential(key_of, "nkey")
        return [sys.executable, str(EXAMPLES / name), self.status["nats_url"], department, user, key, *more]

    def curl(self, name: str, user: str, *more: str) -> subprocess.CompletedProcess[str]:
        return run(str(EXAMPLES / name), self.status["http_url"], self.credential(user, "token"), *more)

    def output(self, job: str) -> str:
        until(lambda: self.cloud.json("show", job)["state"] == "completed", f"job {job} did not complete")
        return self.cloud.ok("output", job)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cloud = Cloud(tmp_path_factory.mktemp("examples") / "data")
    cloud.ok("up", "--detach", "--hypervisor", "process", "--hosts", "4")
    yield Site(cloud)
    cloud.close()


@pytest_asyncio.fixture
async def wendy(site: Site) -> Any:
    """A connection of the web department's manager, who may see its events."""
    inbox = site.credential("wendy", "inbox_prefix")
    nc = await nats.connect(site.status["nats_url"], nkeys_seed=site.credential("wendy", "nkey"), inbox_prefix=inbox)
    yield nc
    await nc.close()


def test_submit_over_nats_while_watching_the_events(site: Site) -> None:
    words = site.words("watch_events.py", "hpc", "alice", "alice", "attempt.reported")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stderr is not None
        assert watcher.stderr.readline() == "watching\n"
        job = site.python("submit_job.py", "hpc", "alice", "alice", "echo", "by nats").stdout.strip()
        seen, _ = watcher.communicate(timeout=RUN_S)
    assert site.output(job) == "by nats\n"
    kinds = [line.split()[1] for line in seen.splitlines()]
    for kind in ("job.submitted", "unit.placed", "vm.allocated", "attempt.began", "attempt.reported"):
        assert kind in kinds, seen


@pytest.mark.parametrize(("department", "user"), [("hpc", "mona"), ("web", "alice"), ("web", "wendy")])
def test_a_plain_client_is_told_at_once_that_it_may_not(site: Site, department: str, user: str) -> None:
    done = site.python("submit_job.py", department, user, "alice", "true")
    assert done.returncode == 4
    assert "not permitted: nats: permissions violation" in done.stderr.lower()


def test_a_plain_client_is_told_what_is_wrong_with_its_job(site: Site) -> None:
    done = site.python("submit_job.py", "hpc", "alice", "alice")
    assert done.returncode == 1
    assert "a job needs a script or argv" in done.stderr


async def test_a_published_signal_reaches_the_scheduler(site: Site, wendy: Any) -> None:
    events = await wendy.subscribe("phoenix.event.web.load.observed")
    await wendy.flush()
    assert site.python("publish_signal.py", "web", "wendy", "wendy", "8.0", "3").returncode == 0
    for _ in range(20):  # one a second; the balancer's own signal makes less of it, but not nothing
        message = await events.next_msg(timeout=RUN_S)
        if json.loads(message.data)["fact"]["utilisation"] > 1.0:
            return
    raise AssertionError("no observation has heard of the signal")


def test_anothers_signal_is_denied(site: Site) -> None:
    done = site.python("publish_signal.py", "web", "alice", "alice", "0.9", "5")
    assert done.returncode == 4
    assert "permissions violation" in done.stderr.lower()


def test_submit_with_curl(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\necho "by \\"curl\\""\n')
    done = site.curl("submit.sh", "alice", str(script))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"]
    assert site.output(answer["job"]) == 'by "curl"\n'


def test_signal_with_curl(site: Site) -> None:
    assert json.loads(site.curl("signal.sh", "web-balancer", "web", "0.5").stdout) == {"ok": True}
    denied = site.curl("signal.sh", "alice", "web", "0.5")
    assert denied.returncode == 22  # curl: an HTTP status of 400 or more
    assert json.loads(denied.stdout)["error"]["code"] == "denied"


async def test_requests_as_the_nats_tool_sends_them(site: Site) -> None:
    """No header, JSON as text, an inbox below the prefix: what `nats request` and `nats pub` put on the wire."""
    inbox = site.credential("alice", "inbox_prefix")
    nc = await nats.connect(site.status["nats_url"], nkeys_seed=site.credential("alice", "nkey"), inbox_prefix=inbox)
    answer = await nc.request("phoenix.request.hpc.alice.job.submit", b'{"argv": ["echo", "hello"]}', timeout=RUN_S)
    await nc.close()
    told = json.loads(answer.data)
    assert told["ok"]
    assert site.output(told["job"]) == "hello\n"


@pytest.mark.parametrize("name", ["submit_job.py", "publish_signal.py"])
def test_readme_shows_the_examples_as_they_are(name: str) -> None:
    code = re.sub(r'\A""".*?"""\n+', "", (EXAMPLES / name).read_text(), flags=re.DOTALL)
    assert code.strip() in (ROOT / "README.md").read_text()
