"""`phoenix top`: what is on the screen."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from phoenix.cli import departments, top


def test_the_screen_shows_hosts_departments_the_queue_and_events() -> None:
    hosts = [
        {"host": "h0", "state": "held", "department": "hpc", "units": ["1"]},
        {"host": "h1", "state": "free", "department": None, "units": []},
    ]
    department = {
        "department": "hpc",
        "kind": "batch",
        "hosts_held": 1,
        "hosts_quota": 2,
        "hosts_demanded": 2,
        "jobs": {"running": 1, "pending": 1},
        "utilisation": None,
    }
    lines = [
        ["2", "late", "hpc", "alice", "pending", 1, 1, None, {"code": "queue"}],
        ["1", "early", "hpc", "alice", "running", 1, 1, 0.0, ["h0"]],
    ]
    console = Console(file=StringIO(), width=120)
    console.print(top.screen(hosts, [department], {"lines": lines, "total": 2}, ["host.granted  hpc"]))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    for part in ("2 hosts", "hpc 1", "free 1", "queue: 2", "early", "late", "host.granted"):
        assert part in shown
    assert shown.index("early") < shown.index("late")  # what runs comes first


WEB = {
    "department": "web",
    "kind": "web",
    "hosts_held": 1,
    "hosts_quota": 2,
    "hosts_demanded": 2,
    "instances_running": 2,
    "instances_wanted": 2,
    "utilisation": None,
    "requests_per_s": 412.5,
    "signal_at": "2026-11-21T12:10:07.000Z",
    "signal_missing_since": "2026-11-21T12:10:07.000Z",
}


def test_load_in_requests_and_a_missing_signal_are_seen() -> None:
    console = Console(file=StringIO(), width=140)
    console.print(top.screen([], [WEB], {"lines": [], "total": 0}, []))
    assert isinstance(console.file, StringIO)
    assert "412.5/s no signal" in console.file.getvalue()
    table, silence = departments.render([WEB]).rsplit("\n", 1)
    assert table.endswith("412.5/s")
    assert silence == (
        "web: no load has been reported since 2026-11-21T12:10:07.000Z: "
        "the number of its instances is held; see phoenix why web"
    )
    well = departments.render([WEB | {"signal_missing_since": None, "utilisation": 0.5}])
    assert well.endswith(" 50 %")


def test_other_peoples_words_are_text() -> None:
    """Neither markup of the library's, which would fail here, nor what turns a line."""
    console = Console(file=StringIO(), width=160)
    console.print(top.screen([], [], {"lines": [], "total": 0}, ["job.submitted  name=[/red][bold]\u202ex"]))
    assert isinstance(console.file, StringIO)
    assert "name=[/red][bold]\\u202ex" in console.file.getvalue()
