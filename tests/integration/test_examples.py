"""What docs/howto/clients.md shows to other programs: each example runs as it stands, against a cloud that really runs."""

from __future__ import annotations

import asyncio
import json
import os
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
RUN_S = 90.0
NATS_PUB = """
import argparse, asyncio, nats
parser = argparse.ArgumentParser()
for option in ("--server", "--nkey", "--inbox-prefix"):
    parser.add_argument(option, required=True)
parser.add_argument("command", choices=["pub"])
parser.add_argument("subject")
parser.add_argument("body")
args = parser.parse_args()
async def main():
    nc = await nats.connect(args.server, nkeys_seed=args.nkey, inbox_prefix=args.inbox_prefix)
    await nc.publish(args.subject, args.body.encode())
    await nc.close()
asyncio.run(main())
"""


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


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False, env=env)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cloud = Cloud(tmp_path_factory.mktemp("examples") / "data")
    cloud.ok("up", "--detach", "--hypervisor", "process", "--hosts", "16")
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


PUBLISHED = (("cpu", "8.0"), ("requests", "0.5", "100"), ("claim", "1"), ("sessions", "web.1=3"))


async def test_published_signals_reach_the_scheduler(site: Site, wendy: Any) -> None:
    """The balancer's own signal makes less of the CPU's, but not nothing."""
    events = await wendy.subscribe("phoenix.event.web.load.observed")
    await wendy.flush()
    words = [("publish_signal.py", "web", "wendy", "wendy", "2", *values) for values in PUBLISHED]
    publishers = [asyncio.create_task(asyncio.to_thread(site.python, *each)) for each in words]
    missing = {"utilisation", "requests_per_s", "requests_per_instance", "claim", "quiet"}
    while missing:
        fact = json.loads((await events.next_msg(timeout=RUN_S)).data)["fact"]
        missing -= {key for key in ("requests_per_s", "requests_per_instance", "claim", "quiet") if fact[key]}
        missing -= {"utilisation"} if (fact["utilisation"] or 0.0) > 1.0 else set()
    assert [(await publisher).returncode for publisher in publishers] == [0, 0, 0, 0]


async def test_signals_as_the_nats_tool_sends_them(site: Site, wendy: Any, tmp_path: Path) -> None:
    """The tool is no Python package; what stands in for it takes the same words and puts the same on the wire."""
    tool = tmp_path / "nats"
    tool.write_text(f"#!{sys.executable}\n{NATS_PUB}")
    tool.chmod(0o755)
    events = await wendy.subscribe("phoenix.event.web.load.observed")
    await wendy.flush()
    script, path = str(EXAMPLES / "signal-nats.sh"), f"{tmp_path}:{os.environ['PATH']}"
    words = [script, site.status["nats_url"], "web", "wendy", site.credential("wendy", "nkey"), "1", "claim", "2"]
    assert (await asyncio.to_thread(run, *words, PATH=path)).returncode == 0
    while json.loads((await events.next_msg(timeout=RUN_S)).data)["fact"]["claim"] != 2:
        pass
    assert run(*words[:6], "memory", "1").returncode == 2


def test_anothers_signal_is_denied(site: Site) -> None:
    done = site.python("publish_signal.py", "web", "alice", "alice", "5", "cpu", "0.9")
    assert done.returncode == 4
    assert "permissions violation" in done.stderr.lower()


def test_submit_with_curl(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\necho "by \\"curl\\""\n')
    done = site.curl("submit.sh", "alice", str(script))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "type" not in answer
    assert site.output(answer["job"]) == 'by "curl"\n'


def test_signal_with_curl(site: Site) -> None:
    for values in (("cpu", "0.5"), ("requests", "0.5", "100"), ("requests", "0.5"), ("claim", "0")):
        assert json.loads(site.curl("signal.sh", "web-balancer", "web", *values).stdout) == {"ok": True}
    assert json.loads(site.curl("signal.sh", "wendy", "web", "claim", "1").stdout) == {"ok": True}
    refusals = (
        ("alice", "cpu", "0.5", "denied"),
        ("web-balancer", "cpu", "-1", "invalid"),
        ("web-balancer", "claim", "1", "denied"),
    )
    for user, name, value, code in refusals:
        refused = site.curl("signal.sh", user, "web", name, value)
        assert refused.returncode == 22  # curl: an HTTP status of 400 or more
        assert json.loads(refused.stdout)["code"] == code
    assert site.curl("signal.sh", "alice", "web", "memory", "1").returncode == 2


async def test_requests_as_the_nats_tool_sends_them(site: Site) -> None:
    """No header, JSON as text, an inbox below the prefix: what `nats request` and `nats pub` put on the wire."""
    inbox = site.credential("alice", "inbox_prefix")
    nc = await nats.connect(site.status["nats_url"], nkeys_seed=site.credential("alice", "nkey"), inbox_prefix=inbox)
    answer = await nc.request("phoenix.request.hpc.alice.job.submit", b'{"argv": ["echo", "hello"]}', timeout=RUN_S)
    await nc.close()
    told = json.loads(answer.data)
    assert "type" not in told
    assert site.output(told["job"]) == "hello\n"


@pytest.mark.parametrize("name", ["submit_job.py", "publish_signal.py"])
def test_the_page_shows_the_examples_as_they_are(name: str) -> None:
    code = re.sub(r'\A""".*?"""\n+', "", (EXAMPLES / name).read_text(), flags=re.DOTALL)
    assert code.strip() in (ROOT / "docs" / "howto" / "clients.md").read_text()
