"""What nobody sees is refused in names, and shown by its number wherever people read; what is wide keeps its columns."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from pathlib import Path

import orjson
import pytest
from rich.cells import cell_len

from phoenix.cli import __main__ as command
from phoenix.cli import events, printing, tables
from phoenix.cli.errors import CliError
from schemas.control_characters import HIDDEN, has_hidden, shown, shown_in_json

TURNING = [chr(code) for span in ((0x202A, 0x202F), (0x2066, 0x206A), (0x200B, 0x2010)) for code in range(*span)]
OTHERS = [
    "\u3164",
    "\uffa0",
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    "\xad",
    "\u061c",
    "\u2028",
    "\u2060",
    "\ufeff",
    "\ud800",
    "\U000e0041",
]
SEEN = ["job-1", "naïve", "日本語", "한국어", "שלום", "🎉", "❤️", "a b", "e\u0301"]


@pytest.mark.parametrize("hidden", [*TURNING, *OTHERS], ids=lambda c: f"{ord(c):x}")
def test_what_nobody_sees_is_shown(hidden: str) -> None:
    assert has_hidden(f"a{hidden}b")
    told = shown(f"a{hidden}b")
    assert not has_hidden(told)
    assert told.startswith("a\\")
    assert f"{ord(hidden):x}" in told


@pytest.mark.parametrize("text", SEEN)
def test_what_people_write_stays(text: str) -> None:
    assert shown(text) == text
    assert not has_hidden(text)


def test_every_character_that_formats_is_among_them() -> None:
    """All of Unicode's controls, formats, separators of lines and halves; but for signs that scripts are written with."""
    written = {0x0600, 0x0601, 0x0602, 0x0603, 0x0604, 0x0605, 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") and code not in written:
            assert has_hidden(chr(code)) or 0x13430 <= code < 0x13440 or 0x1BCA0 <= code < 0x1BCA4, hex(code)


def test_json_keeps_its_meaning() -> None:
    value = {"name": "a\u202eb\U000e0041", "日本": ["\x7f", "tab\t"]}
    told = shown_in_json(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    assert "\x7f" not in told
    assert "\n" in told  # what stands between its parts stays
    assert "\u202e" not in told
    assert json.loads(told) == value


def test_the_page_has_the_same_list() -> None:
    source = Path("services/monitor/http/page/hidden.js").read_text()
    listed = "".join(re.findall(r'^\s+"([^"]*)"', source, re.M)).replace("\\\\", "\\").strip("[]").removesuffix("gu")
    listed = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), listed).rstrip("]")
    assert listed.replace(r"\x00-\x08\x0b-\x1f", r"\x00-\x1f") == HIDDEN


def test_wide_characters_keep_the_columns() -> None:
    text = tables.render(
        ("NAME", "N", "WHO"), [("日本語", "1", "a"), ("🎉", "10", "b"), ("plain", "100", "c")], right="N"
    )
    lines = text.split("\n")
    assert len({cell_len(line) for line in lines[1:]}) == 1
    assert [cell_len(line[: line.rindex(who)]) for line, who in zip(lines[1:], "abc", strict=True)] == [13] * 3
    pairs = tables.pairs([("日本", "x"), ("name", "y")]).split("\n")
    assert [cell_len(line[:-1]) for line in pairs] == [7, 7]


def test_a_wide_line_is_cut_at_the_terminals_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "10")
    for line in tables.render(("A",), [("日" * 20,), ("x日" * 20,), ("x" * 40,)]).split("\n")[1:]:
        assert cell_len(line) in (9, 10)
        assert line.endswith("…")


def test_the_command_line_shows_them(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "a\u202eb"
    print(tables.render(("NAME",), [(bad,)]))
    print(tables.pairs([("Name", f"{bad}\nnext")]))
    printing.text(events.render({"kind": "job.submitted", "fact": {"name": bad}, "at": 0.0}))
    printing.json({"name": bad})
    printing.line({"name": bad})

    def fail(_argv: list[str]) -> int:
        raise CliError(1, f"there is no job {bad!s}", bad)

    monkeypatch.setattr(command, "_run", fail)
    assert command.main(["x"]) == 1
    told = capsysbinary.readouterr()
    assert "\u202e" not in (told.out + told.err).decode()
    assert (told.out + told.err).count(b"\\u202e") == 7
