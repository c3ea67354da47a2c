"""`phoenix usage` on a cloud that runs: what people used adds up, web borrows a host, a rebuilt monitor says the same."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import nats
import pytest

from services.monitor.history.schema import dump
from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(180)
HOSTS, CORES = 4, 2
START_MAX_S = 30.0  # from the first fact until all hosts are described


def at(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Every test stands on the same past: alice's job 1 and mona's job 2 are done, an array of alice's was preempted by web
    and cancelled, and web keeps two hosts."""
    found = Cloud(tmp_path_factory.mktemp("cloud") / "data")
    found.ok("up", "--detach", "--hosts", str(HOSTS), "--cores", str(CORES))
    try:
        live_through(found)
        yield found
    finally:
        found.close()


def live_through(cloud: Cloud) -> None:
    for user in ("alice", "mona"):
        assert cloud.run("submit", "--as", user, "--wait", "-c", "1", "--wrap", "sleep 0.3").returncode == 0
    long = cloud.ok("submit", "--as", "alice", "-c", str(CORES), "-a", "1-3", "--wrap", "sleep 600").strip()
    all_running(cloud, long, 3)
    cloud.ok("scale", "web", "2")
    until(lambda: users(cloud)["alice"]["preempted"], "nothing was preempted")
    until(lambda: usage(cloud)["departments"][1]["borrowed_s"] > 0, "web borrows nothing")
    for element in (1, 2, 3):
        cloud.ok("cancel", f"{long}_{element}")
    until(lambda: users(cloud)["alice"]["ended"].get("cancelled") == 3, "not all have ended")


def usage(cloud: Cloud, *words: str) -> dict[str, Any]:
    return dict(cloud.json("usage", *words))


def users(cloud: Cloud) -> dict[str, dict[str, Any]]:
    return {row["user"]: row for row in usage(cloud, "--by", "user", "--department", "hpc")["rows"]}


def lost_by_metrics(cloud: Cloud) -> float:
    url = cloud.status()["monitor_url"]
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        found = re.search(r'phoenix_lost_core_seconds_total{department="hpc"} (\S+)', answer.read().decode())
    assert found is not None
    return float(found[1])


def all_running(cloud: Cloud, job: str, count: int) -> None:
    until(lambda: cloud.json("show", job).get("counts", {}).get("running") == count, "not all of the array runs")


def test_what_was_used_adds_up_and_a_monitor_made_anew_says_the_same(cloud: Cloud) -> None:
    answer = usage(cloud)
    hpc, web = answer["departments"]
    site = answer["site"]
    held = sum(one["held_s"] + one["draining_s"] for one in (hpc, web))
    assert held + site["free_s"] + site["lost_s"] + site["absent_s"] == pytest.approx(site["hosts_s"], abs=1e-6)
    assert hpc["held_s"] - hpc["own_s"] == pytest.approx(hpc["borrowed_s"] - hpc["lent_s"], abs=1e-6)
    assert hpc["lost_to"] == {"web": hpc["lost_core_s"]}
    assert hpc["hosts_given_back"] + hpc["hosts_seized"] >= 1  # its own load on a busy machine may make web want more
    assert web["borrowed_s"] > 0
    text = cloud.ok("usage")
    assert re.search(r"Z \(\d+s\): [\d.]+ hosts with [\d.]+ cores on average", text)  # at first there were none
    assert "core-hours of work to web." in text

    rows = cloud.ok("usage", "--by", "user", "--csv").splitlines()[1:]
    assert [row.split(",")[3] for row in rows] == ["alice", "mona", ""]

    before, counted = users(cloud), lost_by_metrics(cloud)
    assert before["mona"]["ended"] == {"completed": 1}
    assert before["mona"]["used_core_s"] >= 0.3
    assert before["alice"]["ended"] == {"cancelled": 3, "completed": 1}
    os.kill(next(p["pid"] for p in cloud.status()["processes"] if p["name"] == "monitor"), signal.SIGKILL)
    until(lambda: cloud.status()["healthy"], "the monitor did not come back")
    until(lambda: cloud.run("usage").returncode == 0, "no answer")
    assert users(cloud) == before
    assert lost_by_metrics(cloud) == counted
    again = usage(cloud)
    assert again["since"] == answer["since"]
    assert again["departments"][0]["lost_to"] == hpc["lost_to"]


def test_all_hosts_are_accounted_for_since_the_beginning(cloud: Cloud) -> None:
    answer = usage(cloud)
    since, now = at(answer["since"]), at(answer["until"])
    assert HOSTS * (now - since - START_MAX_S) <= answer["site"]["hosts_s"] <= HOSTS * (now - since + 1.0)
    assert usage(cloud, "--since", "24h")["site"]["hosts_s"] >= answer["site"]["hosts_s"]


async def test_programs_ask_over_nats(cloud: Cloud) -> None:
    wendy = cloud.status()["credentials"]["wendy"]
    prefix = wendy["inbox_prefix"].encode()
    nc = await nats.connect(cloud.status()["nats_url"], nkeys_seed=wendy["nkey"], inbox_prefix=prefix)
    try:

        async def ask(**fields: object) -> dict[str, Any]:
            subject, body = "phoenix.query.monitor.web.usage", json.dumps(fields).encode()
            return dict(json.loads((await nc.request(subject, body, timeout=30)).data))

        found = await ask(by="user")
        assert [one["department"] for one in found["departments"]] == ["web"]
        assert found["departments"][0]["held_s"] > 0
        assert [row["user"] for row in found["rows"]] == [""]
        assert (await ask(since="2255-03-10T16:00:00Z"))["departments"][0]["held_s"] == 0.0
        assert (await ask(by="host"))["code"] == "invalid"
        assert (await ask(since="soon"))["code"] == "invalid"
    finally:
        await nc.close()


def test_people_see_their_own_department(cloud: Cloud) -> None:
    assert [one["department"] for one in usage(cloud, "--as", "wendy")["departments"]] == ["web"]
    assert cloud.run("usage", "--as", "wendy", "--department", "hpc").returncode == 4
    assert cloud.run("usage", "--since", "tomorrow").returncode == 2
    assert "--since 2999-01-01 is to come" in cloud.run("usage", "--since", "2999-01-01").stderr
    assert cloud.run("usage", "--since", "1h", "--until", "2h").returncode == 2
    lines = cloud.ok("usage", "--by", "user", "--csv").splitlines()
    assert lines[0].startswith("since,until,department,user,used_pct,used_core_s,")
    assert lines[-1].split(",")[2:4] == ["web", ""]  # its instances


def test_what_another_configuration_would_have_done(cloud: Cloud, tmp_path: Path) -> None:
    """The journal of this cloud, played again: close to what happened; and on fewer hosts, where jobs wait."""
    found = cloud.json("whatif", "--hosts", "2", "--since", "24h")
    happened, present, new = (found["departments"][side]["hpc"] for side in ("happened", "present", "new"))
    assert happened["submitted"] >= 4
    for name in ("submitted", "completed", "cancelled"):
        assert (name, present[name]) == (name, happened[name])
    assert new["unfinished"] + new["refused"] + new["cancelled"] >= 1  # two hosts: one is the web department's
    assert found["hosts"] == {"present": HOSTS, "new": 2}
    assert found["paces"]["boot_s"] > 0

    wrong = tmp_path / "wrong.toml"
    text = (cloud.data / "phoenix.toml").read_text()
    wrong.write_text(text.replace('order = "first-fit"', 'order = "frist-fit"'))
    refused = cloud.run("whatif", "--config", str(wrong), "--since", "1h")
    assert (refused.returncode, 'did you mean "first-fit"?' in refused.stderr) == (1, True)
    assert cloud.run("whatif", "--since", "1h", "--as", "alice").returncode == 4
    assert cloud.run("whatif", "--since", "soon").returncode == 2

    right, plot = tmp_path / "right.toml", tmp_path / "hosts.svg"
    right.write_text(text.replace('order = "first-fit"', 'order = "easy"'))
    shown = cloud.run("whatif", "--config", str(right), "--since", "24h", "--by", "user", "--plot", str(plot))
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"hpc +alice +jobs", shown.stdout)
    assert "The replay under the present configuration" in shown.stdout
    assert plot.read_text().startswith("<?xml")


def rows(path: Path) -> list[str]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [line for line in dump(db) if line.startswith(("jobs ", "losses ", "leases "))]  # the others continue
    finally:
        db.close()


def test_history_knows_every_job_and_can_be_made_anew(cloud: Cloud) -> None:
    found = cloud.json("history", "--sort", "submitted", "--ascending")["jobs"]
    assert [(job["unit"], job["user"], job["state"], job["exit_code"]) for job in found[:2]] == [
        ("1", "alice", "completed", 0),
        ("2", "mona", "completed", 0),
    ]
    lost = {line.split("'")[1] for line in rows(cloud.data / "history.sqlite") if line.startswith("losses ")}
    assert lost, "work of the array was lost to web"
    assert lost <= {job["unit"] for job in found if job["job"] == "3" and job["attempt"]}
    one, rest = cloud.json("history", "--limit", "1"), cloud.json("history", "--all")["jobs"]
    again = cloud.json("history", "--limit", "100", "--after", one["next"])["jobs"]
    assert [job["unit"] for job in one["jobs"] + again] == [job["unit"] for job in rest]
    assert [job["unit"] for job in cloud.json("history", "--user", "mona")["jobs"]] == ["2"]
    assert {job["state"] for job in cloud.json("history", "--state", "cancelled")["jobs"]} == {"cancelled"}
    for words in (("history", "--host", "nowhere"), ("hosts", "--state", "gone"), ("queue", "--user", "alise")):
        assert cloud.run(*words).returncode == 2, words
    lines = cloud.ok("history", "--csv").splitlines()
    assert (lines[0].split(",")[0], len(lines)) == ("unit", len(found) + 1)
    assert "completed" in cloud.ok("history", "--user", "mona")
    assert cloud.run("history", "--state", "gone").returncode == 2
    assert cloud.run("history", "--after", "x").returncode == 2
    refused = cloud.run("history", "--user", "alise")
    assert (refused.returncode, "did you mean 'alice'?" in refused.stderr) == (2, True)

    prices = str(Path(__file__).parents[2] / "deploy" / "prices.toml")
    told = cloud.ok("bill", "--prices", prices, "--since", "3d", "--until", "1d")
    assert "Nothing was used that has a price" in told
    so_far = cloud.json("bill", "--prices", prices)
    assert (so_far["so_far"] is not None, so_far["unpriced_core_ms"]) == (True, 0)
    assert {line["per"] for line in so_far["lines"]} >= {"core_hour", "borrowed_host_hour", "lent_host_hour"}
    assert sum(Decimal(line["amount"]) for line in so_far["lines"]) == Decimal(so_far["total"])
    assert "So far, until " in cloud.ok("bill", "--prices", prices)
    none = cloud.run("bill").stderr
    assert "this cloud has no price table" in none
    assert "at the next `phoenix down` and `phoenix up --config FILE`" in none  # not with `phoenix config apply`
    assert cloud.run("bill", "--prices", str(cloud.data / "none.toml")).returncode == 1

    live = cloud.data / "history.sqlite"
    before = rows(live)
    with sqlite3.connect(live, timeout=30) as spoilt:
        spoilt.execute("DELETE FROM jobs")
    assert rows(live) != before
    done = cloud.run("history", "rebuild")
    assert re.match(r"history rebuilt up to journal position \d+ in ", done.stdout), done.stderr
    assert "WARNING" not in done.stderr
    until(lambda: cloud.run("history").returncode == 0, "no answer")
    assert rows(live) == before
    assert users(cloud)["mona"]["ended"] == {"completed": 1}


def journal(cloud: Cloud) -> list[dict[str, Any]]:
    """The record's envelopes, but for measurements, which continue by themselves."""
    about = cloud.status()
    token = Path(about["credentials"]["oscar"]["token"]).read_text().strip()
    request = urllib.request.Request(f"{about['http_url']}/v1/record")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = [json.loads(line) for line in answer.read().splitlines() if line]
    return [line for line in lines[1:-1] if any(fact["kind"] != "load.observed" for fact in line["facts"])]


def test_when_a_job_would_start_and_nothing_is_submitted(cloud: Cloud) -> None:
    until(lambda: not cloud.json("queue", "--state", "pending,starting,running,completing")["jobs"], "no rest")
    assert cloud.json("departments")["departments"][0]["hosts_held"] == 2  # web keeps two: a person said so
    before = journal(cloud)
    words = ["--as", "alice", "-N", "2", "-c", str(CORES), "-t", "5", "--wrap", "sleep 280"]
    found = cloud.json("whatif", *words)
    assert "Nothing was submitted." in cloud.ok("whatif", *words)
    refused = cloud.run("whatif", "-N", "99", "--wrap", "true")
    submitted = cloud.run("submit", "-N", "99", "--wrap", "true")
    assert (refused.returncode, refused.stderr) == (submitted.returncode, submitted.stderr)
    assert journal(cloud) == before, "to ask changes nothing in the journal"

    assert (found["now"], found["nodes"], found["cores"]) == (True, 2, CORES)
    job = cloud.ok("submit", *words).strip()
    until(lambda: cloud.json("show", job)["state"] == "running", "it does not run")
    assert cloud.json("show", job)["hosts"] == found["forecast"]["hosts"]

    behind = cloud.json("whatif", *words)
    assert not behind["now"]
    assert behind["forecast"]["sure"] == "by_walltimes"
    assert 200.0 < at(behind["forecast"]["start_at"]) - at(behind["at"]) <= 300.0
    cloud.ok("cancel", job)
