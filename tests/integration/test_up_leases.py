"""Leases on a whole cloud, by the command line: they begin on time on hosts taken from best-effort, what collides is refused
with alternatives that are then accepted, and they end on time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from phoenix.cli.http import Client
from services.runtime.config.file import load
from tests.integration.up_cloud import DEADLINE_S, Cloud, until

pytestmark = pytest.mark.timeout(240)
# Everything that is not counted otherwise (`margin_s`) and the ask for hosts (`lead_s`) are short, or the test would be long.
SITE = """
[cloud]
name = "leases"
[policy]
kill_s = 1
[[department]]
name = "hpc"
kind = "batch"
[department.batch]
order = "leases"
[department.batch.leases]
margin_s = 1
lead_s = 4
[[user]]
name = "alice"
department = "hpc"
[[user]]
name = "bob"
department = "hpc"
[[user]]
name = "root"
department = "operators"
role = "operator"
"""
SPAN_S = 8  # of the slots
LEAD_S = 4  # as `lead_s`
LATE_MAX_S = 5.0  # on an idle machine it is some tenths
AHEAD = 60  # commands: what is said about the slots before they begin takes less than half of that
LATE = 30  # commands


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    place = tmp_path_factory.mktemp("leases")
    (place / "site.toml").write_text(SITE)
    found = Cloud(place / "data")
    found.ok("up", "--detach", "--hosts", "4", "--cores", "2", "--config", str(place / "site.toml"))
    yield found
    found.close()


def at(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()


@cache
def reader(cloud: Cloud) -> Client:
    """What happens while slots pass is read without a process: a busy machine would see their ends too late."""
    about = cloud.status()
    return Client(about["http_url"], Path(about["credentials"]["root"]["token"]).read_text().strip())


def lease(cloud: Cloud, name: str) -> dict[str, Any]:
    return dict(reader(cloud).get(f"/v1/leases/{name}"))


def placed_at(cloud: Cloud, name: str) -> float:
    return at(reader(cloud).get(f"/v1/jobs/{name}")["attempts"][0]["placed_at"])


def pace(cloud: Cloud) -> float:
    """How long a command takes on this machine now."""
    began = time.monotonic()
    for _ in range(3):
        cloud.json("lease", "list")
    return (time.monotonic() - began) / 3


def reach(cloud: Cloud, name: str, state: str) -> dict[str, Any]:
    """The deadline begins when the slot does."""
    slot = lease(cloud, name)
    to_come_s = max(0.0, at(slot["start_at"] or slot["submitted_at"]) - time.time())
    until(lambda: lease(cloud, name)["state"] == state, f"lease {name} is not {state}", DEADLINE_S + to_come_s)
    return lease(cloud, name)


def create(cloud: Cloud, *words: str) -> dict[str, Any]:
    return dict(cloud.json("lease", "create", *words))


def refused(cloud: Cloud, *words: str) -> dict[str, Any]:
    done = cloud.run("lease", *words, "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "collides" in done.stderr
    return dict(json.loads(done.stdout)["lease"])


@pytest.mark.long
def test_leases_begin_and_end_on_time(cloud: Cloud) -> None:
    filler = create(cloud, "--best-effort", "--nodes", "4", "--cores", "2", "--duration", "1h")["lease"]
    assert len(reach(cloud, filler, "running")["hosts"]) == 4
    pace_s = pace(cloud)
    late_max_s = max(LATE_MAX_S, LATE * pace_s)
    size, span = ("--nodes", "3", "--cores", "2"), ("--duration", f"{SPAN_S}s")
    first = create(cloud, *size, *span, "--start", f"+{ceil(LEAD_S + 4 + AHEAD * pace_s)}s", "--name", "lecture")
    assert lease(cloud, first["lease"])["state"] == "reserved"
    assert cloud.json("lease", "show", first["lease"])["name"] == "lecture"
    assert "(advance lease)" in cloud.ok("queue")

    told = refused(cloud, "create", *size, *span, "--start", first["start_at"])
    assert told["collides_with"] == [first["lease"]]
    assert (told["smaller"]["nodes"], told["earliest"]["start_at"]) == (1, first["end_at"])
    smaller = create(cloud, "--nodes", "1", "--cores", "2", *span, "--start", told["smaller"]["start_at"])
    later = create(cloud, *size, *span, "--start", told["earliest"]["start_at"])
    limit = refused(cloud, "extend", first["lease"], "--by", "5s")
    assert (limit["latest_end_at"], limit["collides_with"]) == (first["end_at"], [later["lease"]])
    cloud.ok("lease", "cancel", later["lease"], "--as", "alice")
    assert cloud.run("lease", "cancel", first["lease"], "--as", "bob").returncode == 4
    assert lease(cloud, later["lease"])["ending"] == "cancelled"
    longer = cloud.json("lease", "extend", first["lease"], "--by", "3s")
    assert at(longer["end_at"]) == at(first["end_at"]) + 3.0
    listed = {x["lease"]: x["state"] for x in cloud.json("lease", "list")["leases"]}
    assert listed.pop(filler) in ("running", "suspended")  # to save four VMs takes as long as the slot is away
    assert listed == {first["lease"]: "reserved", smaller["lease"]: "reserved"}

    running = reach(cloud, first["lease"], "running")
    made_way = lease(cloud, filler)
    assert (made_way["state"], made_way["preempted"]) == ("suspended", 1)
    placed = [placed_at(cloud, x["lease"]) for x in (first, smaller)]
    assert all(0.0 <= x - at(first["start_at"]) <= late_max_s for x in placed), placed
    assert len(running["hosts"]) == 3
    assert set(running["hosts"]).isdisjoint(lease(cloud, smaller["lease"])["hosts"])

    over = reach(cloud, first["lease"], "ended")
    assert over["ending"] == "stopped"
    assert 0.0 <= at(over["ended_at"]) - at(longer["end_at"]) <= late_max_s
    used_s = at(over["ended_at"]) - placed[0]
    assert over["core_s_used"] == pytest.approx(6 * used_s, abs=0.1)
    assert used_s >= SPAN_S + 3.0 - late_max_s
    assert len(reach(cloud, filler, "running")["hosts"]) == 4
    everything = cloud.json("lease", "list", "--all")["leases"]
    assert [x["lease"] for x in everything] == [filler, first["lease"], smaller["lease"], later["lease"]]
    assert "lease.extended" in cloud.ok("events", "--last", "200")
    cloud.ok("lease", "cancel", filler)


def test_a_lease_with_a_script_ends_when_it_ends(cloud: Cloud, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\necho "on $SLURM_JOB_NUM_NODES nodes: $1"\n')
    name = create(cloud, "--nodes", "2", "--immediate", "--duration", "1m", str(script), "an argument")["lease"]
    over = reach(cloud, name, "ended")
    assert over["ending"] == "completed"
    assert cloud.ok("output", name) == "on 2 nodes: an argument\n"


def asked_config(cloud: Cloud, file: Path) -> Any:
    """`file` as the cloud would adopt it."""
    return msgspec.to_builtins(load(file, load(Path(cloud.status()["config"])).opennebula).cloud)


async def ask(cloud: Cloud, request: dict[str, Any]) -> dict[str, Any]:
    """`config.apply` as any program sends it."""
    root = cloud.status()["credentials"]["root"]
    prefix = root["inbox_prefix"].encode()
    nc = await nats.connect(cloud.status()["nats_url"], nkeys_seed=root["nkey"], inbox_prefix=prefix)
    try:
        subject = "phoenix.request.operators.root.config.apply"
        return dict(json.loads((await nc.request(subject, json.dumps(request).encode(), timeout=30)).data))
    finally:
        await nc.close()


def test_an_order_that_keeps_no_times_is_not_applied_over_accepted_leases_unless_that_is_accepted(
    cloud: Cloud, tmp_path: Path
) -> None:
    name = create(cloud, "--nodes", "2", "--cores", "2", "--duration", "1m", "--start", "+2h")["lease"]
    file = tmp_path / "easy.toml"
    file.write_text(SITE.replace('order = "leases"', 'order = "easy"'))
    why = 'order = "easy" keeps no time for it: it would begin when there is room'
    (named,) = cloud.json("config", "diff", str(file))["late_leases"]
    assert named.startswith(f"lease {name} of alice, from ")
    assert named.endswith(why)
    assert f"not kept: {named}" in cloud.ok("config", "diff", str(file))
    assert cloud.json("config", "check", str(file))["warnings"] == [named]
    refused = cloud.run("config", "apply", str(file))
    assert (refused.returncode, named in refused.stderr, "--accept-late-leases" in refused.stderr) == (1, True, True)
    asked = {"config": asked_config(cloud, file)}
    raw = asyncio.run(ask(cloud, asked))
    assert (raw["code"], raw["field"]) == ("conflict", "accept_late_leases")
    assert named in raw["detail"]
    assert asyncio.run(ask(cloud, asked | {"dry_run": True}))["late_leases"] == [named]
    assert "it starts in" in cloud.ok("why", name)
    assert cloud.json("config", "apply", str(file), "--accept-late-leases")["late_leases"] == [named]
    until(lambda: "the order is now easy, which keeps no time for it" in cloud.ok("why", name), "why promises a time")
    assert "at the latest" not in cloud.ok("why", name)
    (tmp_path / "site.toml").write_text(SITE)
    cloud.ok("config", "apply", str(tmp_path / "site.toml"))
    until(lambda: "it starts in" in cloud.ok("why", name), "its time is kept again")
    cloud.ok("lease", "cancel", name)
