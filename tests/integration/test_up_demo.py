"""The demo's own judgement: it must call a day lost when anything of it was, and its picture must show who held what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from phoenix.local import demo, demo_report
from phoenix.local.demo_load import Researchers, Web, people_at
from schemas.units import exact

TIMELINE = [
    {"at": exact(at), "owners": {"hpc": hpc, "web": 16 - hpc}} for at, hpc in ((100.0, 15), (110.0, 8), (120.0, 15))
]


def day(**changed: Any) -> demo_report.Day:
    """A day on which nothing was lost, but for what is changed."""
    job = {"state": "completed", "attempts": [{"attempt": 1, "disposal": "requeue"}, {"attempt": 2, "disposal": None}]}
    values: dict[str, Any] = {
        "submitted": ["1", "2"],
        "jobs": {"1": job, "2": {"state": "completed", "attempts": [{"attempt": 1}]}},
        "outputs": {"1": "finished 1", "2": "finished 2"},
        "summary": {
            "timeline": TIMELINE,
            "claims": [{}],
            "claim_median_s": 0.05,
            "claim_max_s": 0.1,
            "mean_turnaround_s": 7.5,
        },
        "web": Web(served=100),
        "began_at": 105.0,
        "ended_at": 125.0,
    }
    return demo_report.Day(**(values | changed))


def test_nothing_lost() -> None:
    assert demo_report.lost(day()) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"jobs": {"1": {"state": "completed"}, "2": {"state": "killed", "attempts": [{"exit": 137}]}}},
            "(attempt 1: exit 137)",
        ),
        ({"jobs": {"1": {"state": "completed"}}}, "job 2 is unknown"),
        ({"outputs": {"1": "finished 1", "2": ""}}, "the output of job 2"),
        (
            {"web": Web(served=5, failed=1, first_failure="HTTP status 502")},
            "1 web requests failed; the first: HTTP status 502",
        ),
        ({"web": Web()}, "no web request was served"),
    ],
)
def test_lost(changed: dict[str, Any], told: str) -> None:
    assert any(told in problem for problem in demo_report.lost(day(**changed)))


def test_owners_are_known_from_the_first_second_to_the_last() -> None:
    assert demo_report.owners_over_time(day()) == [
        (0.0, {"hpc": 15, "web": 1}),
        (5.0, {"hpc": 8, "web": 8}),
        (15.0, {"hpc": 15, "web": 1}),
        (20.0, {"hpc": 15, "web": 1}),
    ]


def test_summary() -> None:
    told = demo_report.text(day())
    for words in (
        "2 of 2",
        "1 (1 attempts",
        "7.5 s",
        "50 ms (median), 100 ms (longest)",
        "8 at the most, 1 at the end",
        "100 served",
        "the embedded one (HAProxy is not installed)",
    ):
        assert words in told
    assert "HAProxy, kept in step by phoenix-haproxy" in demo_report.text(day(balancer="haproxy"))


@pytest.mark.parametrize("name", ["day.svg", "day.png"])
def test_picture(tmp_path: Path, name: str) -> None:
    demo_report.picture(day(), tmp_path / "out" / name)
    assert (tmp_path / "out" / name).stat().st_size > 5000
    if name.endswith("svg"):
        assert "Hosts by holder" in (tmp_path / "out" / name).read_text()


def test_the_day_rises_and_falls() -> None:
    curve = [people_at(part / 100, 60) for part in range(101)]
    assert max(curve) == 60
    assert curve[0] == curve[-1] == 2
    assert curve.index(60) < 50 < len(curve) - curve[::-1].index(60)


def test_the_same_jobs_every_day() -> None:
    def study(number: int) -> dict[str, Any]:
        return Researchers(lambda _request: None, 60.0)._job(number)

    assert study(9) == study(9)
    assert (study(9)["nodes"], study(8)["nodes"]) == (2, 1)


async def test_a_job_whose_answer_was_lost_is_asked_for_again_and_not_twice() -> None:
    asked: list[str] = []

    async def jobs(request: web.Request) -> web.Response:
        asked.append((await request.json())["request"])
        if len(asked) == 1 and request.transport is not None:
            request.transport.abort()
        return web.json_response({"job": "7"})

    app = web.Application()
    app.add_routes([web.post("/v1/jobs", jobs)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession() as session:
            assert await demo.Api(session, f"http://{host}:{port}", "x").submit({"request": "demo-1"}) == "7"
    finally:
        await runner.cleanup()
    assert asked == ["demo-1", "demo-1"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError(), "no answer within 10 s"),
        (ExceptionGroup("", [demo.DemoError("a job was refused: no")]), "a job was refused: no"),
    ],
)
def test_what_ends_a_demo_is_told_in_a_sentence(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(demo, "_demo", fails)
    assert demo.main(["--data", str(tmp_path)]) == 1
    assert f"the demo failed: {told}" in capsys.readouterr().err
