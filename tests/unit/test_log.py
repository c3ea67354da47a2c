"""Logs: one line an event, as text and as JSON, whoever writes it; nothing breaks a line, and no secret is a field."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from services.runtime import log
from services.runtime.config import file as config
from services.runtime.config.file import ConfigError
from services.runtime.config.tables import Runtime
from services.runtime.config.text import dump_toml
from services.runtime.log import TRACE_MAX, VALUE_MAX, configure, get_log, trace_of

LOGGERS = ("phoenix", "")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = {name: (list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in LOGGERS}
    propagate, hook = logging.getLogger("phoenix").propagate, sys.excepthook
    others = threading.excepthook, sys.unraisablehook
    yield
    for name, (handlers, level) in kept.items():
        logging.getLogger(name).handlers[:] = handlers
        logging.getLogger(name).setLevel(level)
    logging.getLogger("phoenix").propagate, sys.excepthook = propagate, hook
    threading.excepthook, sys.unraisablehook = others
    logging.captureWarnings(False)


def written(monkeypatch: pytest.MonkeyPatch, level: str = "info", form: log.Form = "text") -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure(level, form, service="executor", instance="executor-1")
    return stream


def bug() -> BaseException:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError as error:
        return error


NASTY = ("plain", "with space", 'a "quote"', "a\nline", "a\r\x1b[2Jscreen", "a\u2028separator", "=", "", "\ud800half")


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("value", NASTY)
def test_nothing_breaks_a_line(monkeypatch: pytest.MonkeyPatch, form: log.Form, value: str) -> None:
    stream = written(monkeypatch, form=form)
    get_log(service="executor").info("something", host=value)
    logging.getLogger("nats.aio").error("it says %s", value)
    text = stream.getvalue()
    assert text.endswith("\n")
    assert len(text.splitlines() if form == "text" else text.split("\n")[:-1]) == 2
    assert "\x1b" not in text


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("says nothing")


def nest(depth: int) -> list[object]:
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_that_cannot_be_formed_is_one_line_all_the_same(monkeypatch: pytest.MonkeyPatch, form: log.Form) -> None:
    stream = written(monkeypatch, "info", form)
    log.get_log().info("e", job=Mute())
    log.get_log().info("e", **{"odd \ud800": Mute()})
    log.get_log().info("e", jobs=[Mute(), nest(5_000)])
    logging.getLogger("other").error("%d of %d", "no", "numbers")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert all("a line that cannot be written" in line and "test_log:" in line for line in lines)
    if form == "json":
        assert [json.loads(line)["error"] for line in lines] == [
            "RuntimeError",
            "RuntimeError",
            "RuntimeError",
            "TypeError",
        ]


def test_text_is_key_equals_value(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch)
    get_log().bind(host="h1").warning("host lost", position=17, why="no word", since=1.5, units=["3", "4_1"])
    line = stream.getvalue()
    assert line[10] == "T"
    assert (
        line.split(" ", 1)[1]
        == 'WARNING host lost service=executor instance=executor-1 host=h1 position=17 why="no word" since=1.5 units=3,4_1\n'
    )


def test_json_has_the_same_fields_with_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, form="json")
    get_log(service="executor").warning(
        "host lost", position=17, void=None, ok=True, units=("3",), event="x", big=1 << 70
    )
    told = json.loads(stream.getvalue())
    assert told.pop("at").endswith("Z")
    assert told == {
        "level": "warning",
        "event": "host lost",
        "service": "executor",
        "instance": "executor-1",  # every line says whose it is
        "position": 17,
        "void": None,
        "ok": True,
        "units": ["3"],
        "event_": "x",
        "big": str(1 << 70),
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_other_libraries_say_warnings_in_the_same_form(monkeypatch: pytest.MonkeyPatch, form: log.Form) -> None:
    stream = written(monkeypatch, "debug", form)
    for name in ("nats.aio.client", "aiohttp.server", "asyncio"):
        logging.getLogger(name).debug("payload of somebody")
        logging.getLogger(name).info("payload of somebody")
        logging.getLogger(name).warning("slow consumer")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "payload" not in stream.getvalue()
    if form == "json":
        told = [json.loads(line) for line in lines]
        assert [(one["service"], one["logger"], one["event"]) for one in told] == [
            ("executor", name, "slow consumer") for name in ("nats.aio.client", "aiohttp.server", "asyncio")
        ]
    else:
        assert lines[0].endswith("slow consumer service=executor instance=executor-1 logger=nats.aio.client")


def test_a_stack_trace_is_part_of_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, form="json")
    get_log().error("exit", trace=trace_of(bug()))
    try:
        raise ValueError("inside")
    except ValueError:
        logging.getLogger("asyncio").exception("task exception")
    sys.excepthook(RuntimeError, bug(), None)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("beware", stacklevel=1)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["event"].partition(":")[0][:14] for one in told][:3] == ["exit", "task exception", "not caught"]
    assert "two\nlines" in told[0]["trace"]
    assert told[1]["trace"].endswith("ValueError")  # what libraries raise may quote what was sent
    assert "test_log.py" in told[1]["trace"]
    assert "inside" not in told[1]["trace"].replace('raise ValueError("inside")', "")
    assert "RuntimeError" in told[2]["trace"]
    assert "beware" in told[3]["event"]


def test_of_a_long_trace_the_end_stays_and_of_a_value_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, form="json")
    get_log().error("exit", trace="a" * TRACE_MAX + "the end", why="the beginning" + "b" * VALUE_MAX)
    told = json.loads(stream.getvalue())
    assert told["trace"].endswith("the end")
    assert len(told["trace"]) == TRACE_MAX + 1
    assert told["why"].startswith("the beginning")
    assert len(told["why"]) == VALUE_MAX + 1


def test_ctrl_c_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch)
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "__excepthook__", lambda kind, *_: seen.append(kind))
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert (seen, stream.getvalue()) == ([KeyboardInterrupt], "")


@pytest.mark.parametrize("field", ["token", "guest_token", "secret", "password", "nkey_seed", "credentials"])
def test_a_field_that_is_named_like_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    stream = written(monkeypatch)
    with pytest.raises(ValueError, match=field):
        get_log().info("something", **{field: "x"})
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("level", "lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(monkeypatch: pytest.MonkeyPatch, level: str, lines: int) -> None:
    stream = written(monkeypatch, level)
    mine = get_log()
    for write in (mine.debug, mine.info, mine.warning, mine.error):
        write("something")
    assert len(stream.getvalue().splitlines()) == lines
    assert mine.is_debug is (level == "debug")


def test_lines_of_threads_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, form="json")
    threads = [threading.Thread(target=lambda: [get_log().info("something", n=n) for n in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in stream.getvalue().splitlines()]) == 160


# ---------------------------------------------------------------------------------------------------- by configuration

CLOUD = '[cloud]\nname = "c"\n[[department]]\nname = "hpc"\nkind = "batch"\n'


def test_a_level_for_each_process() -> None:
    runtime = Runtime(
        log_level="warning", log_levels={"scheduler": "info", "scheduler.hpc": "debug", "executor": "error"}
    )
    levels = [runtime.level_of(name) for name in ("scheduler.hpc", "scheduler.web", "executor", "monitor")]
    assert levels == ["debug", "info", "error", "warning"]
    assert runtime.log_words("scheduler.hpc") == ("--log-level", "debug", "--log-format", "text")


def test_levels_and_form_are_read_and_written() -> None:
    found = config.loads(f'{CLOUD}[runtime]\nlog_format = "json"\n[runtime.log_levels]\n"scheduler.hpc" = "debug"\n')
    assert (found.runtime.log_format, found.runtime.log_levels) == ("json", {"scheduler.hpc": "debug"})
    assert config.loads(dump_toml(found)).runtime == found.runtime


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ('[runtime.log_levels]\nexecutr = "debug"', "executr"),
        ('[runtime.log_levels]\n"scheduler.web" = "debug"', "scheduler.web"),
        ('[runtime.log_levels]\nexecutor = "loud"', "loud"),
        ('[runtime]\nlog_format = "xml"', "xml"),
    ],
)
def test_what_is_nonsense_is_refused(wrong: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config.loads(f"{CLOUD}{wrong}\n")


@pytest.mark.parametrize(
    "name", ["scheduler.hpc", "scheduler", "monitor", "balancer", "balancer.web", "agent", "opennebula"]
)
def test_processes_that_are_known(name: str) -> None:
    assert config.loads(f'{CLOUD}[runtime.log_levels]\n"{name}" = "debug"\n').runtime.level_of(name) == "debug"


def test_what_a_process_says_before_it_ends_is_a_line() -> None:
    code = (
        "from services.runtime.log import configure\nconfigure('info', 'json', service='x')\n"
        "import threading\nraise RuntimeError('the\\nend')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert json.loads(line)["event"] == "not caught"
    assert json.loads(line)["service"] == "x"
