"""The examples of the client library run as they stand, against a cloud that really runs; one of them is Snakemake's own
program.

Jobs run without isolation: two examples pass files on in a directory that all hosts see, and that jobs with users of their own
could not enter here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.client import SyncClient, where
from tests.integration.up_cloud import Cloud, signpost, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "client"
PAGE = ROOT / "docs" / "howto" / "clients.md"
SNAKEMAKE = ROOT / "docs" / "examples" / "snakemake"
RUN_S = 120.0


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("client-examples") / "data")
    made.ok("up", "--detach", "--hypervisor", "process", "--hosts", "8", "--isolate", "none")
    yield made
    made.close()


def python(cloud: Cloud, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(EXAMPLES / name), *words]
    env = cloud.environment()
    return subprocess.run(line, capture_output=True, text=True, timeout=RUN_S, check=False, env=env)


def ok(cloud: Cloud, name: str, *words: str) -> str:
    done = python(cloud, name, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hello_is_what_the_page_shows_and_ends_as_its_job_does(cloud: Cloud) -> None:
    code = re.sub(r'\A""".*?"""\n+', "", (EXAMPLES / "hello.py").read_text(), flags=re.DOTALL).strip()
    assert code in PAGE.read_text()
    good = python(cloud, "hello.py", "--user", "alice", "echo", "hello")
    assert (good.returncode, good.stdout) == (0, "hello\n"), good.stderr
    assert re.search(r"job \d+ is completed\n\Z", good.stderr)
    bad = python(cloud, "hello.py", "--user", "alice", "sh", "-c", "echo so far; exit 7")
    assert (bad.returncode, bad.stdout) == (7, "so far\n")
    wrong = python(cloud, "hello.py", "--user", "alice")
    assert wrong.returncode == 2
    assert "a job needs a script or argv" in wrong.stderr
    nowhere = python(cloud, "hello.py", "--data", str(cloud.data / "none"), "true")
    assert nowhere.returncode == 1
    assert "no cloud is running" in nowhere.stderr


@pytest.mark.parametrize("document", [ROOT / "README.md", PAGE], ids=lambda path: path.name)
def test_the_lines_of_a_document_are_a_program(cloud: Cloud, document: Path) -> None:
    (code,) = re.findall(r"```python\n(from phoenix.client import SyncClient\n.*?)```", document.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=RUN_S, check=True, env=cloud.environment()
    )
    assert done.stdout.strip() == ("[1, 4, 9, 16, 25]" if document.name == "README.md" else "hello")


def test_events_are_handled_once_over_restarts(cloud: Cloud, tmp_path: Path) -> None:
    words = ("watch.py", "--user", "alice", "--last", "attempt.reported", str(tmp_path / "last"))
    seen = []
    with SyncClient.find(cloud.data, user="alice") as client:
        for _ in range(2):
            client.wait(client.submit(argv=["true"]), timeout_s=RUN_S)
            seen += [line.partition(" ")[2].rstrip() for line in ok(cloud, *words).splitlines()]
            last = (tmp_path / "last").read_text()
        kept = list(client.events(after=0, follow=False))
    places = [event.id for event in kept]
    wanted = kept[: places.index(last) + 1]
    about = [f"{event.kind} {event.fact.get('unit') or event.fact.get('job') or ''}".rstrip() for event in wanted]
    assert seen == about
    assert len([line for line in seen if line.startswith("attempt.reported ")]) == 2


def test_a_parameter_sweep(cloud: Cloud) -> None:
    head, *rows = ok(cloud, "sweep.py", "--user", "alice", "0.3", "0.5", "0.8").splitlines()
    assert head.split() == ["load", "waited", "theory"]
    found = [tuple(map(float, row.split())) for row in rows]
    assert [load for load, _, _ in found] == [0.3, 0.5, 0.8]
    for _, waited, theory in found:
        assert waited == pytest.approx(theory, rel=0.15)


def test_a_sweep_with_a_value_that_cannot_be_says_which_element_failed(cloud: Cloud) -> None:
    done = python(cloud, "sweep.py", "0.5", "--user", "wendy")
    assert done.returncode == 1
    assert "web" in done.stderr


def words_of(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in re.findall("[A-Za-z]+", text):
        found[word] = found.get(word, 0) + 1
    return found


def most(text: str) -> list[str]:
    """As the examples print it, with the order of `sort` in the C locale where words are equally frequent."""
    counted = sorted(words_of(text).items(), key=lambda item: (-item[1], item[0]))
    return [f"{number} {word}" for word, number in counted[:3]]


TEXT = "one two two three three three\nfour four four four\nthree two four\nfour\n"


def test_a_workflow_and_the_same_again_submits_nothing(cloud: Cloud, tmp_path: Path) -> None:
    shared, text = tmp_path / "shared", tmp_path / "text"
    shared.mkdir()
    text.write_text(TEXT)
    words = ("--user", "alice", str(shared), str(text))
    first, again = python(cloud, "workflow.py", *words), python(cloud, "workflow.py", *words)
    assert [done.stdout.splitlines() for done in (first, again)] == [most(TEXT), most(TEXT)], first.stderr
    jobs = [re.findall(r"job (\d+)", done.stderr)[:4] for done in (first, again)]
    assert jobs[0] == jobs[1]
    assert len(set(jobs[0])) == 4


def test_a_workflow_whose_step_fails_cancels_the_rest(cloud: Cloud, tmp_path: Path) -> None:
    text, shared = tmp_path / "text", tmp_path / "shared"
    text.write_text("one\n")  # the other parts do not exist: their elements fail
    shared.mkdir()
    done = python(cloud, "workflow.py", "--user", "alice", str(shared), str(text))
    assert done.returncode == 1
    assert "count is failed" in done.stderr
    with SyncClient.find(cloud.data) as client:
        ended = [client.wait(job, timeout_s=RUN_S).state for job in re.findall(r": job (\d+)", done.stderr)]
    assert ended == ["completed", "failed", "cancelled", "cancelled"]


def test_a_web_service_follows_the_load_that_its_own_balancer_reports(cloud: Cloud) -> None:
    said = ok(cloud, "autoscale.py", "--user", "web-balancer", "--target", "10", "--phase", "10", "web", "2", "35")
    instances = [int(line.split()[-2]) for line in said.splitlines() if line.endswith(" instances")]
    assert instances[0] == 1
    assert max(instances) >= 4
    served = re.search(r"(\d+) requests served", said)
    assert served is not None
    assert int(served[1]) > 100


def test_an_operators_report(cloud: Cloud) -> None:
    with SyncClient.find(cloud.data, user="alice") as client:
        job = client.submit(argv=["false"], name="reported")
        client.wait(job, timeout_s=RUN_S)
    said = ok(cloud, "report.py", "--hours", "1")
    row = next(line for line in said.splitlines() if line.startswith("| alice"))
    user, department, jobs, completed, failed, *_ = [cell.strip() for cell in row.strip("|").split("|")]
    assert (user, department) == ("alice", "hpc")
    assert int(jobs) >= 1
    assert int(failed) >= 1
    assert int(completed) + int(failed) <= int(jobs)
    assert "## Longest waits" in said


# ------------------------------------------------------------------------------------------------------------------ Snakemake


def snakemake(
    cloud: Cloud, directory: Path, texts: Path, snakefile: Path, *more: str, path: str = ""
) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--directory", str(directory)]
    words += ["--profile", str(SNAKEMAKE / "profile"), "--config", f"texts={texts}", *more]
    path = f"{path}:{SNAKEMAKE}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = cloud.environment() | {"PATH": path, "PHOENIX_USER": "alice", "HOME": str(directory), "LC_ALL": "C"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def test_snakemake_runs_its_jobs_in_the_cloud(cloud: Cloud, tmp_path: Path) -> None:
    texts, directory = tmp_path / "texts", tmp_path / "work"
    for path in (texts, directory):
        path.mkdir()
    (texts / "a.md").write_text(TEXT)
    (texts / "b.md").write_text("one one one one one one one\n")
    often = ("--seconds-between-status-checks", "1")
    process = snakemake(cloud, directory, texts, SNAKEMAKE / "Snakefile", *often)
    said, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, said
    assert (directory / "most.txt").read_text().splitlines() == most(TEXT + "one " * 7)
    jobs = re.findall(r"external jobid '(\d+)'", said)
    with SyncClient.find(cloud.data) as client:
        ran = [(job.name, job.state, job.cores) for job in map(client.job, jobs)]
    assert sorted(ran) == [("count", "completed", 1), ("count", "completed", 1), ("merge", "completed", 1)]


def test_snakemake_learns_that_a_job_failed_and_cancels_the_one_that_runs(cloud: Cloud, tmp_path: Path) -> None:
    """Snakemake does not cancel a job whose state it is just asking for (`RemoteExecutor.cancel`): Ctrl-C comes in between."""
    calls, quiet = tmp_path / "calls", tmp_path / "quiet"
    calls.touch()
    (tmp_path / "phoenix-snakemake-status").write_text(  # `quiet` is made where no other call begins within a second
        f'#!/bin/sh\necho $$ >> {calls}\n"{SNAKEMAKE}/phoenix-snakemake-status" "$@"\n'
        f'(sleep 1; [ "$(tail -n 1 {calls})" = $$ ] && touch {quiet}) > /dev/null 2>&1 &\n'
    )
    (tmp_path / "phoenix-snakemake-status").chmod(0o755)
    with signpost() as never:
        snakefile = tmp_path / "Snakefile"
        snakefile.write_text(
            "rule all:\n    input: 'bad', 'long'\nrule bad:\n    output: 'bad'\n    shell: 'exit 3'\n"
            f"rule long:\n    output: 'long'\n    shell: 'until [ -e {never} ]; do sleep 0.1; done; touch long'\n"
        )
        more = ("--keep-going", "--seconds-between-status-checks", "5")
        process = snakemake(cloud, tmp_path, tmp_path, snakefile, *more, path=str(tmp_path))
        with SyncClient.find(cloud.data) as client:
            until(lambda: states(client, "bad") == ["failed"], "the bad job does not fail")
            until(lambda: states(client, "long") == ["running"], "the long job does not run")
            before = len(calls.read_text().splitlines())
            until(
                lambda: len(calls.read_text().splitlines()) > before + 1,
                "Snakemake does not ask for the state of its jobs",
            )
            quiet.unlink(missing_ok=True)
            until(quiet.exists, "Snakemake asks without a rest")
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=RUN_S)
            assert process.returncode != 0
            assert "Error in rule bad" in said
            assert states(client, "bad") == ["failed"]
            until(lambda: states(client, "long") == ["cancelled"], said)


def test_the_commands_of_snakemake_by_themselves(cloud: Cloud) -> None:
    with SyncClient.find(cloud.data, user="alice") as client:
        good, bad = client.submit(argv=["true"]), client.submit(argv=["false"])
        held = client.submit(argv=["true"], held=True)
        for job in (good, bad):
            client.wait(job, timeout_s=RUN_S)
        said = [command(cloud, "status", str(job)) for job in (good, bad, held, "99999")]
        assert said == [(0, "success"), (0, "failed"), (0, "running"), (0, "failed")]
        assert command(cloud, "cancel", str(good), str(held), "99999") == (0, "")
        assert client.wait(held, timeout_s=RUN_S).state == "cancelled"
    away = {"PHOENIX_DATA": "", "PHOENIX_URL": "http://127.0.0.1:1"}
    assert command(cloud, "status", "1", **away)[0] == 1  # without a token
    away["PHOENIX_TOKEN_FILE"] = str(where.find(cloud.data).user("alice").token_file)
    assert command(cloud, "status", "1", **away) == (0, "running")
    assert command(cloud, "cancel", "1", **away)[0] == 1


def command(cloud: Cloud, name: str, *words: str, **environ: str) -> tuple[int, str]:
    line = [sys.executable, str(SNAKEMAKE / f"phoenix-snakemake-{name}"), *words]
    env = cloud.environment() | {"PHOENIX_USER": "alice"} | environ
    done = subprocess.run(line, capture_output=True, text=True, timeout=RUN_S, check=False, env=env)
    return done.returncode, done.stdout.strip()


def states(client: SyncClient, name: str) -> list[str]:
    return [job.state for job in client.history(name=name)]
