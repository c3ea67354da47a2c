"""The whole cloud, by the command line: jobs really run, people learn what they may not do, configuration changes while it
runs, and what `down` interrupts is done after `up`."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from phoenix.local import stack_config
from phoenix.local.balancer import stats
from schemas import facts as f
from schemas.envelope import decode
from schemas.ids import vm_tag
from schemas.subjects import JOURNAL_STREAM, journal_writer
from services.admission import metrics as admission
from services.admission.guests.tokens import GuestTokens, job_token
from services.executor.edge import metrics as executor
from services.monitor.metrics import certificates, families, headroom, token_ends
from services.runtime.config import file as runtime_config
from services.runtime.families import Names
from services.runtime.families_shell import SHELL
from services.scheduler.edge import metrics as scheduler
from tests.integration.up_cloud import Cloud, signpost, until
from tests.support.leaks import content, messages, places
from tests.support.scraped import faults, linted

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    found = Cloud(tmp_path_factory.mktemp("cloud") / "data")
    file = tmp_path_factory.mktemp("site") / "phoenix.toml"
    file.write_text(f'{stack_config.DEFAULT.read_text()}\n[runtime]\nlog_level = "debug"\n')
    found.ok("up", "--detach", "--hosts", "4", "--cores", "8", "--config", str(file))
    yield found
    found.close()


def show(cloud: Cloud, job: str) -> dict[str, Any]:
    return dict(cloud.json("show", job))


def state(cloud: Cloud, job: str) -> str:
    return str(show(cloud, job)["state"])


def reach(cloud: Cloud, job: str, *states: str) -> dict[str, Any]:
    until(lambda: state(cloud, job) in states, f"job {job} is not {states}")
    return show(cloud, job)


def test_a_job_runs_and_its_output_comes_back(cloud: Cloud) -> None:
    job = cloud.ok("submit", "--wrap", "echo out $PHOENIX_JOB_ID; echo err >&2; exit 3").strip()
    assert job.isdecimal()
    found = reach(cloud, job, "failed")
    assert found["exit_code"] == 3
    assert len(found["attempts"]) == 1
    assert found["submitted_at"].endswith("Z")
    assert cloud.ok("output", job) == f"out {job}\n"
    assert cloud.ok("output", job, "--stderr") == "err\n"


def test_another_departments_events_are_denied_and_ones_own_are_shown(cloud: Cloud) -> None:
    denied = cloud.run("events", "-d", "hpc", "--as", "wendy")
    assert (denied.returncode, denied.stdout) == (4, "")
    assert "wendy may not do this" in denied.stderr
    own = cloud.ok("events", "-d", "web", "--as", "wendy", "--after", "0", "--json")
    assert '"department":"web"' in own.replace(" ", "")
    assert len(cloud.ok("events", "--last", "5").splitlines()) == 5


def test_wait_gives_the_jobs_exit_code_and_writes_its_files(cloud: Cloud, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\n#SBATCH -J named\n#SBATCH --licenses=high\n#SBATCH -t 5\necho "got $1"; exit 7\n')
    done = cloud.run("submit", "--wait", "-o", str(tmp_path / "%x-%j.out"), str(script), "the argument")
    assert done.returncode == 7
    job = done.stdout.strip()
    assert (tmp_path / f"named-{job}.out").read_text() == "got the argument\n"
    assert "--licenses=high (line 3)" in done.stderr


def test_submit_as_json_after_the_script_too(cloud: Cloud, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    job = cloud.json("submit", str(script))["job"]
    reach(cloud, job, "completed")


def test_an_array_and_what_depends_on_it(cloud: Cloud) -> None:
    array = cloud.ok("submit", "-a", "1-3%2", "--wrap", "echo index $SLURM_ARRAY_TASK_ID").strip()
    after = cloud.ok("submit", "-d", f"afterok:{array}", "--wrap", "echo after").strip()
    reach(cloud, after, "completed")
    assert state(cloud, array) == "completed"
    assert cloud.ok("output", f"{array}_2") == "index 2\n"


def test_inputs_and_kept_files(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("seven")
    done = cloud.run(
        "submit", "--wait", "--input", str(tmp_path / "in.txt"), "--keep", "*.res", "--wrap", "cat in.txt > a.res"
    )
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert "a.res" in cloud.ok("output", job, "--files")
    assert cloud.ok("output", job, "--file", "a.res") == "seven"


def test_hold_why_release(cloud: Cloud) -> None:
    job = cloud.ok("submit", "--hold", "--wrap", "true").strip()
    assert state(cloud, job) == "held"
    told = cloud.ok("why", job)
    assert "It is held." in told
    assert f"phoenix release {job}" in told
    cloud.ok("release", job)
    reach(cloud, job, "completed")


def test_cancel_a_running_job(cloud: Cloud) -> None:
    job = cloud.ok("submit", "--wrap", "sleep 600").strip()
    reach(cloud, job, "running")
    assert job in cloud.ok("queue")
    cloud.ok("cancel", job)
    reach(cloud, job, "cancelled")


def test_follow_shows_output_while_the_job_runs(cloud: Cloud) -> None:
    job = cloud.ok("submit", "--wrap", "echo first; sleep 1; echo last").strip()
    reach(cloud, job, "starting", "running", "completed")
    assert cloud.ok("output", job, "--follow") == "first\nlast\n"


def test_anothers_job_needs_a_manager(cloud: Cloud) -> None:
    job = cloud.ok("submit", "--hold", "--wrap", "true").strip()
    denied = cloud.run("cancel", job, "--as", "wendy")
    assert denied.returncode in (2, 4)  # another department's job may be reported as unknown
    assert state(cloud, job) == "held"
    cloud.ok("cancel", job, "--as", "mona")
    reach(cloud, job, "cancelled")


def test_what_no_host_could_hold_is_refused_with_its_field(cloud: Cloud) -> None:
    refused = cloud.run("submit", "-c", "64", "--wrap", "true")
    assert refused.returncode == 1
    assert "cpus_per_task" in refused.stderr or "cores" in refused.stderr


def test_unknown_things_are_exit_code_2(cloud: Cloud) -> None:
    for words in (["show", "999999"], ["why", "999999"], ["output", "999999"], ["cancel", "999999"]):
        assert cloud.run(*words).returncode == 2, words
    mistyped = cloud.run("queue", "--department", "hcp")
    assert mistyped.returncode == 2
    assert "did you mean 'hpc'?" in mistyped.stderr
    assert "did you mean 'alice'?" in cloud.run("queue", "--as", "alcie").stderr


def test_hosts_departments_events(cloud: Cloud) -> None:
    hosts = cloud.json("hosts")["hosts"]
    assert len(hosts) == 4
    assert {d["department"] for d in cloud.json("departments")["departments"]} == {"hpc", "web"}
    assert "host.granted" in cloud.ok("events", "--last", "200")
    assert " is granted to " in cloud.ok("events", "--last", "200", "--sentences")
    name = hosts[-1]["host"]
    cloud.ok("hosts", "cordon", name, "--reason", "a test")
    until(
        lambda: next(h for h in cloud.json("hosts")["hosts"] if h["host"] == name)["cordoned"] == "a test",
        "not cordoned",
    )
    cloud.ok("hosts", "uncordon", name)
    until(lambda: not next(h for h in cloud.json("hosts")["hosts"] if h["host"] == name)["cordoned"], "still cordoned")
    unknown = cloud.run("hosts", "cordon", name + "x", "--reason", "a test")
    assert unknown.returncode == 2
    assert f"did you mean '{name}'?" in unknown.stderr


def test_why_and_story_of_hosts_and_departments(cloud: Cloud) -> None:
    name = next(host["host"] for host in cloud.json("hosts")["hosts"] if host["department"] == "hpc")
    assert cloud.ok("why", name).startswith(f"host {name}:\n  1. Held by hpc since ")
    assert cloud.ok("why", "hpc").startswith("department hpc:\n  1. It wants ")
    assert f"{name} is granted to hpc: " in cloud.ok("story", name)
    assert cloud.json("story", "hpc", "--last", "5")["kind"] == "department"
    job = cloud.ok("submit", "-N", "4", "--exclusive", "--time", "1", "--wrap", "true").strip()  # web has a host
    assert cloud.json("story", job)["steps"][0]["kind"] == "job.submitted"
    assert cloud.json("why", job)["start"]["sure"] == "cannot_say"
    cloud.ok("cancel", job)


def test_scale_starts_instances_and_auto_takes_them_back(cloud: Cloud) -> None:
    def running() -> int:
        return int(
            next(d for d in cloud.json("departments")["departments"] if d["department"] == "web")["instances_running"]
        )

    cloud.ok("scale", "web", "2")
    until(lambda: running() >= 2, "no second instance")
    cloud.ok("scale", "web", "--auto")


def test_every_process_exports_what_is_declared_and_nothing_else(cloud: Cloud) -> None:
    assert cloud.run("submit", "--wait", "--wrap", "exit 3").returncode == 3
    status = cloud.status()
    names = {Names.DEPARTMENTS: ["hpc", "web"], Names.OWNERS: ["", "hpc", "web"], Names.USERS: status["users"]}
    own = {
        "monitor": (families.TABLE, headroom.TABLE, certificates.TABLE, token_ends.TABLE),
        "admission": (admission.TABLE,),
        "executor": (executor.TABLE,),
        "scheduler.hpc": (scheduler.EVERY,),
        "scheduler.web": (scheduler.EVERY, scheduler.WEB),
        "provisioner": (),
    }
    assert set(status["metrics"]) == set(own)
    for process, tables in own.items():
        text = get(status["metrics"][process])
        assert faults(text, (SHELL, *tables), names) == [], process
        assert linted(text) == "", process
        assert "process_cpu_seconds_total" in text
    text = get(f"{status['balancers']['web'].rstrip('/')}/_balancer/metrics")
    assert (faults(text, (stats.TABLE,), names), linted(text)) == ([], "")
    shown = get(f"{status['monitor_url']}/metrics")
    for line in ('hosts{department="hpc",state="held"}', 'job_outcomes_total{department="hpc",outcome="failed"}'):
        assert float(shown.partition(f"phoenix_{line} ")[2].partition("\n")[0]) > 0, line
    busy = 'phoenix_cores_busy{department="hpc"}'
    until(lambda: busy in get(status["metrics"]["executor"]), "the hosts are not measured")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_service_that_is_killed_comes_back_and_no_job_is_lost(cloud: Cloud) -> None:
    with signpost() as enough:
        job = cloud.ok("submit", "--wrap", f"while [ ! -e {enough} ]; do sleep 0.1; done; echo done").strip()
        reach(cloud, job, "running")
        for name in ("executor", "scheduler.hpc", "admission", "provisioner", "monitor"):
            os.kill(next(p["pid"] for p in cloud.status()["processes"] if p["name"] == name), signal.SIGKILL)
        enough.touch()  # it ends while some of them are away
        until(lambda: cloud.status()["healthy"], "not everything came back")
        found = reach(cloud, job, "completed")
    assert len(found["attempts"]) == 1
    assert cloud.ok("output", job) == "done\n"


def test_config_apply_adds_and_removes_a_department_while_running(cloud: Cloud, tmp_path: Path) -> None:
    default = stack_config.DEFAULT.read_text()
    more = default + '\n[[department]]\nname = "bio"\nkind = "batch"\n[[user]]\nname = "bob"\ndepartment = "bio"\n'
    file = tmp_path / "site.toml"
    file.write_text(more)
    told = cloud.json("config", "diff", str(file))
    assert told["changes"]
    assert told["later"] == ['runtime: log_level "debug" → "info"']
    assert "not while it runs, but with `phoenix down` and `phoenix up" in cloud.ok("config", "apply", str(file))
    assert cloud.json("config", "diff", str(file))["changes"] == []
    until(lambda: "config.apply" in cloud.ok("audit", "--kind", "config."), "who applied it is not in the audit")
    done = cloud.run("submit", "--department", "bio", "--wait", "--wrap", "echo for bio")
    assert done.returncode == 0, done.stderr
    assert cloud.json("status")["healthy"]
    file.write_text(default)
    cloud.ok("config", "apply", str(file))
    status = cloud.json("status")
    assert "scheduler.bio" not in {p["name"] for p in status["processes"]}
    assert not Path(cloud.data / "credentials" / "bob.token").exists()
    assert status["healthy"]
    assert [job["state"] for job in cloud.json("history", "--department", "bio")["jobs"]] == ["completed"]
    assert cloud.json("usage", "--department", "bio")["departments"][0]["submitted"] == 1
    assert cloud.run("history", "--department", "boi").returncode == 2
    assert cloud.run("usage", "--department", "boi").returncode == 2
    assert cloud.run("history", "--department", "bio", "--as", "alice").returncode == 2


PROGRAM = """import http.server, os
print(os.environ['PHOENIX_INSTANCE'], len(os.environ['DB_PASSWORD']), flush=True)
do = {'do_GET': lambda s: (s.send_response(200), s.end_headers())}
server = type('H', (http.server.BaseHTTPRequestHandler,), do)
http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['PORT'])), server).serve_forever()"""
WEB = f"""[department.web]
instances_per_host = 8
instance_memory_mb = 64
command = ["python3", "-c", '''{PROGRAM}''']
secrets = {{ DB_PASSWORD = "db" }}
"""


def test_eight_instances_of_one_core_fill_a_host_of_eight_run_what_is_said_and_are_shown(
    cloud: Cloud, tmp_path: Path
) -> None:
    file = tmp_path / "site.toml"
    file.write_text(stack_config.DEFAULT.read_text().replace("[department.web]\n", WEB))
    applied = cloud.run("config", "apply", str(file))
    assert (applied.returncode, "secret db of web is missing" in applied.stderr) == (0, True)
    before = {one["instance"] for one in cloud.json("instances")["instances"]}
    cloud.ok("scale", "web", str(len(before) + 8))
    until(lambda: "cannot boot: secret db of web is missing" in cloud.ok("why", "web"), "why does not say it")
    assert "secret db of web is missing" in cloud.ok("instances")
    (tmp_path / "value").write_text("hunter2\n")
    cloud.ok("secret", "set", "web", "db", "--file", str(tmp_path / "value"))

    def serving() -> list[dict[str, Any]]:
        told = [one for one in cloud.json("instances", "web")["instances"] if one["instance"] not in before]
        new = [one for one in told if one["state"] == "in-service" and one["cpu"] is not None]
        return new if len(new) >= 8 else []

    found = until(serving, "eight instances do not serve, or are not measured")
    hosts = [one["host"] for one in found]
    assert max(hosts.count(host) for host in hosts) in (7, 8)  # one that was there before may have taken a core
    assert all(one["sessions"] == 0 for one in found)
    name = found[0]["instance"]
    assert cloud.ok("logs", name) == f"{name} 7\n"
    cloud.ok("scale", "web", "--exact", "1")
    ended = "instances", "web", "--all"
    until(lambda: "its last session has ended" in cloud.ok(*ended), "no balancer says that an instance has drained")
    assert cloud.ok("logs", name) == f"{name} 7\n"  # it is gone, or will be
    assert places(b"hunter2", cloud.data) == [cloud.data / "credentials" / "secrets" / "web" / "db"]
    cloud.ok("scale", "web", "--auto")
    file.write_text(stack_config.DEFAULT.read_text())
    cloud.ok("config", "apply", str(file))


def test_a_deleted_token_and_key_are_made_anew_by_an_apply_that_changes_nothing(cloud: Cloud) -> None:
    told = cloud.status()
    token, key = (Path(told["credentials"]["alice"][kind]) for kind in ("token", "nkey"))
    old = token.read_text()
    token.unlink()
    key.unlink()
    said = cloud.ok("config", "apply", str(cloud.data / "phoenix.toml"))
    assert sorted(said.splitlines()) == [f"made: {key.name}", f"made: {token.name}"]
    assert token.read_text() != old
    assert cloud.ok("submit", "--as", "alice", "--wait", "--wrap", "true")  # the door takes the new token
    asked = urllib.request.Request(f"{told['http_url']}/v1/queue", headers={"Authorization": f"Bearer {old}"})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(asked, timeout=30)
    log = cloud.data / "log" / "nats.log"
    reloads = log.read_text().count("Reloaded server configuration")
    assert cloud.ok("config", "apply", str(cloud.data / "phoenix.toml")).startswith("nothing has changed")
    assert log.read_text().count("Reloaded server configuration") == reloads


@pytest.mark.long
def test_snapshots_are_made_anew_while_the_cloud_runs(cloud: Cloud) -> None:
    said = cloud.ok("snapshots", "rebuild").splitlines()
    names = [line.partition(": snapshot at journal position ")[0] for line in said]
    assert names == ["admission", "provisioner", "executor", "monitor", "scheduler.hpc", "scheduler.web"]
    assert all(int(line.rpartition(" ")[2]) > 0 for line in said)
    before = int(said[4].rpartition(" ")[2])
    cloud.ok("submit", "--wait", "--wrap", "true")
    assert int(cloud.ok("snapshots", "rebuild", "scheduler.hpc").rpartition(" ")[2]) > before
    refused = cloud.run("snapshots", "rebuild", "monotor")
    assert (refused.returncode, "no snapshot of 'monotor'" in refused.stderr) == (2, True)
    assert cloud.json("status")["healthy"]
    pids = {p["name"]: p["pid"] for p in cloud.status()["processes"]}
    for process in ("scheduler.hpc", "admission", "monitor"):  # what was saved can be started from
        os.kill(pids[process], signal.SIGKILL)

    def back() -> bool:
        told = cloud.status()
        others = [p["pid"] for p in told["processes"] if p["name"] in ("scheduler.hpc", "admission")]
        return bool(told["healthy"]) and not set(others) & {*pids.values(), None}

    until(back, "a service does not come back from its new snapshot")
    assert cloud.run("submit", "--wait", "--wrap", "true").returncode == 0


def test_what_was_asked_is_in_the_audit_with_its_place_in_the_journal(cloud: Cloud) -> None:
    began = time.time()
    job = cloud.ok("submit", "--as", "alice", "--hold", "--wrap", "true").strip()
    cloud.ok("cancel", job, "--as", "alice")
    assert cloud.run("hosts", "cordon", "host000", "--reason", "x", "--as", "alice").returncode == 4
    token = cloud.json("token", "create", "alice", "--for", "1h")
    address = cloud.json("dashboard", "--as", "mona")
    post(f"{address['url']}/v1/session", {"code": address["address"].partition("#code=")[2]})

    def asked() -> list[dict[str, Any]]:
        since = datetime.fromtimestamp(began, UTC).isoformat()
        return [json.loads(line) for line in cloud.ok("audit", "--since", since, "--json").splitlines()]

    found = until(lambda: len(told := asked()) >= 6 and told, "the audit does not have it all")
    told = {(one["kind"], one["outcome"]): one for one in found}
    submitted = told["job.submit", "granted"]
    assert (submitted["user"], submitted["names"], submitted["via"]) == ("alice", [job], "http")
    assert submitted["peer"] == "127.0.0.1"
    events = cloud.ok("events", "--after", str(submitted["position"] - 1), "--json").splitlines()
    assert json.loads(events[0])["fact"]["job"] == job
    assert told["job.cancel", "granted"]["names"] == [job]
    assert told["host.cordon", "refused"]["code"] == "denied"
    assert told["token.create", "granted"]["names"] == ["alice", token["id"]]
    assert told["session.code", "granted"]["user"] == told["session.open", "granted"]["user"] == "mona"
    assert "alice (hpc user)  host.cordon host000" in cloud.ok("audit", "--refused", "--user", "alice")
    assert cloud.run("audit", "--as", "alice").returncode == 4
    assert all(one["department"] == "hpc" for one in json_lines(cloud.ok("audit", "--as", "mona", "--json")))

    def knocked() -> list[dict[str, Any]]:
        """A client without a key connects to the broker; what the audit has of them so far."""
        broker = urlsplit(runtime_config.load(cloud.data / "phoenix.toml").nats.url)
        with socket.create_connection((broker.hostname, broker.port), timeout=30) as nobody:
            nobody.recv(4096)
            nobody.sendall(b'CONNECT {"name": "nobody"}\r\nPING\r\n')
            nobody.recv(4096)
        return [one for one in asked() if one["kind"] == "broker.connect" and one["client"] == "nobody"]

    refused = until(knocked, "whom the broker refused is not in the audit")[0]
    assert (refused["outcome"], refused["peer"], refused["code"]) == ("refused", "127.0.0.1", "denied")


def test_no_secret_is_in_logs_audit_journal_or_arguments(cloud: Cloud, tmp_path: Path) -> None:
    """At debug, and after all that was done above."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n# marker-of-the-script\necho marker-of-the-output; cat >&2 in.txt\n")
    (tmp_path / "in.txt").write_text("marker-of-the-input")
    words = ("--export", "NONE,SECRET_OF_MINE=marker-of-the-environment", "--input", str(tmp_path / "in.txt"))
    assert cloud.run("submit", "--wait", *words, str(script), "marker-of-the-argument").returncode == 0
    config = runtime_config.load(cloud.data / "phoenix.toml")
    address = cloud.json("dashboard")
    code = address["address"].partition("#code=")[2]
    cookie = post(f"{address['url']}/v1/session", {"code": code})
    kept = messages(config)
    secrets = {
        path.name: path.read_bytes().strip() for path in (cloud.data / "credentials").rglob("*") if path.is_file()
    }
    secrets.pop("tokens.json")  # hashes
    secrets["password"] = secrets["one_auth"].partition(b":")[2]
    envelopes = [decode(data, journal_writer(subject)) for subject, data in kept[JOURNAL_STREAM]]
    facts = [fact for envelope in envelopes for fact in envelope.facts]
    adopted = next(fact.cloud for fact in facts if isinstance(fact, f.ConfigAdopted))
    tokens = GuestTokens.load(config.guest_key_file)
    for fact in facts:
        if isinstance(fact, f.VmAllocated):
            guests = tokens.of(vm_tag(adopted, fact.unit, fact.attempt, fact.rank))
            secrets |= {f"guest of {fact.unit}": guests.encode(), f"job {fact.unit}": job_token(guests).encode()}
    secrets |= {f"marker-of-the-{what}": f"marker-of-the-{what}".encode() for what in MARKERS}
    secrets |= {"code": code.encode(), "cookie": cookie.encode()}
    logs = b"".join(path.read_bytes() for path in (cloud.data / "log").iterdir())
    for event in (b"written service=", b"request granted service=", b"OpenNebula called service="):
        assert event in logs  # it is at debug
    assert places(b"marker-of-the-output", cloud.data / "nats")  # … and looked for where it is
    assert len(secrets) > 30
    places_ = {"logs": logs, **{name: b"\n".join(data for _, data in some) for name, some in kept.items()}}
    found = [(name, place) for name, secret in secrets.items() for place, held in places_.items() if secret in held]
    assert found == []
    arguments = b"\n".join(content(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert [name for name, secret in secrets.items() if secret in arguments] == []


MARKERS = ("script", "output", "input", "environment", "argument")


def post(url: str, body: dict[str, Any]) -> str:
    """The cookie that is set."""
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return str(answer.headers["Set-Cookie"]).partition("=")[2].partition(";")[0]


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.long
def test_what_down_interrupts_is_done_after_up(cloud: Cloud) -> None:
    job = cloud.ok("submit", "--wrap", '[ "$PHOENIX_ATTEMPT" -gt 1 ] || sleep 300; echo done').strip()
    reach(cloud, job, "running")
    waiting = cloud.ok("submit", "--hold", "--wrap", "true").strip()
    cloud.ok("down")
    assert cloud.pids() == set()
    cloud.ok("up", "--detach")
    found = reach(cloud, job, "completed", "failed")
    assert found["state"] == "completed"
    assert len(found["attempts"]) == 2
    assert state(cloud, waiting) == "held"
    assert cloud.ok("output", job) == "done\n"
