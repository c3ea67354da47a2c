"""The reader of a VM's CONTEXT in a site's image (`phoenix-guest-context`), and what `phoenix-context` makes of it.

I1  every value is read as it was before OpenNebula wrote it, by every shell
I2  what is not of the form is refused, and the message names the line; everything else is read
I3  whatever a value says, each line of networkd's file is one of those that the script writes, or the interface is left out
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.script_guest import SCRIPT, context_file
from tests.support.vm_context import configured

DEPLOY = SCRIPT.parent
SHELLS = [shell for shell in ("/bin/sh", "/bin/bash") if Path(shell).exists()]
SHOW = """. "$1"; file=$2; shift 2
for name; do scan_context "$file" "$name" || { printf '%s' "$problem"; exit 1; }; printf '%s\\0' "$value"; done"""
NAME = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
NASTY = "'\"\\\n$`=#( )é\udce9Áx"
VALUE = st.one_of(
    st.text(alphabet=NASTY, max_size=20),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(
        ["'", "\\'", "'\\''", "\n'", "'\n", "\nX='y'\n", "$(touch pwned)", "'; touch pwned; '", "-n", "\\c"]
    ),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="phoenix-context-") as directory:
        yield Path(directory)


def read(place: Path, text: str, *names: str, shell: str = SHELLS[0]) -> tuple[int, list[str]]:
    """The exit code; the values, or the message."""
    file = place / "context.sh"
    file.write_bytes(text.encode(errors="surrogateescape"))
    words: list[str | Path] = [shell, "-c", SHOW, "sh", DEPLOY / "phoenix-guest-context", file, *names]
    # As phoenix-guest and phoenix-context run it.
    done = subprocess.run(words, capture_output=True, check=False, timeout=200, cwd=place, env={"LC_ALL": "C"})
    assert done.stderr == b""
    said = done.stdout.decode(errors="surrogateescape").split("\0")
    return done.returncode, said if done.returncode else said[:-1]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(context=st.dictionaries(NAME, VALUE, min_size=1, max_size=8), shell=st.sampled_from(SHELLS))
@example(context={"A": "'", "B": "\\'", "C": "a'\n'b\n", "D": "", "E": "\n", "F": "E='x'"}, shell=SHELLS[0])
@example(context={"KEYS": "ssh-rsa AAAA it's\nssh-rsa BBBB\n", "B64": "A" * 20_000}, shell=SHELLS[-1])
def test_every_value_is_read_as_it_was(place: Path, context: dict[str, str], shell: str) -> None:
    """I1."""
    assert read(place, context_file(context), *context, "NO_SUCH", shell=shell) == (0, [*context.values(), ""])
    assert [x.name for x in place.iterdir()] == ["context.sh"]


FORM = re.compile(r"(?:(?:#[^\n]*)?\n|([A-Za-z0-9_.-]+)='((?:[^']|'\\'')*)'\n)", re.DOTALL)
LINE = st.sampled_from(
    ["A='", "'", "\\''", "'\\''", "=", "A=b", "B='c'", "#", "\n", "\n", "'\n", "x", " ", "export ", 'C="d"', "A B='c'"]
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(LINE, max_size=12).map("".join))
@example("A='b'\nX='c'; reboot\n")
@example("A='b\n\nB='c'\n")
@example("""C="d"A='b'\n""")
@example("A='b'\n='c'\n")
@example("A='b'\nhalf")
@example("A='b' \n")
def test_what_is_no_context_is_refused_by_its_line(place: Path, text: str) -> None:
    """I2."""
    rest, values, lines = f"{text}\n", {}, 0
    while found := FORM.match(rest):
        if found[1]:
            values[found[1]] = found[2].replace("'\\''", "'")
        lines += found[0].count("\n")
        rest = rest[found.end() :]
    code, said = read(place, text, "A", "B")
    if not rest:
        assert (code, said) == (0, [values.get("A", ""), values.get("B", "")])
    else:
        assert code == 1
        named = re.match(r"line (\d+)( is not NAME='value'|: the value of )", said[0])
        assert named, said
        assert lines < int(named[1]) <= text.count("\n") + 1


WRITTEN = re.compile(
    r"\[(?:Match|Link|Network|Route)\]|# By phoenix-context, of the CONTEXT\.|"
    r"(?:MACAddress|MTUBytes|Address|DNS|Domains|Gateway|Destination|Metric|DHCP|IPv6AcceptRA|LinkLocalAddressing|GatewayOnLink)="
    r"[0-9A-Za-z.:/_-][0-9A-Za-z.:/_ -]*"
)
FIELDS = (
    "IP",
    "MASK",
    "GATEWAY",
    "DNS",
    "SEARCH_DOMAIN",
    "MTU",
    "METHOD",
    "METRIC",
    "ROUTES",
    "ALIAS0_MAC",
    "ALIAS0_IP",
)
FIELDS6 = ("IP6", "IP6_GATEWAY", "IP6_PREFIX_LENGTH", "IP6_METHOD", "IP6_ULA")
GOOD = (
    "10.0.0.2",
    "255.255.255.0",
    "fd00::5",
    "64",
    "1500",
    "static",
    "dhcp",
    "auto",
    "a.example",
    "10.0.0.0/8 via 10.0.0.1",
)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(FIELDS + FIELDS6),
        st.one_of(st.sampled_from(GOOD), VALUE, st.sampled_from(GOOD).map("{}\n[Match]\nName=*".format)),
    ),
    st.one_of(st.just("02:00:0a:00:00:02"), VALUE),
)
@example({"IP": "10.0.0.2\nDHCP=yes"}, "02:00:0a:00:00:02")
@example({"DNS": "10.0.0.2]\nDHCP=yes"}, "02:00:0a:00:00:02")
@example({}, "02:00:0a:00:00:02\nName=*")
def test_no_value_becomes_a_line_of_its_own(fields: dict[str, str], mac: str) -> None:
    """I3."""
    with tempfile.TemporaryDirectory(prefix="phoenix-context-") as place:
        root = Path(place)
        said, files = configured(root, {f"ETH0_{name}": value for name, value in fields.items()} | {"ETH0_MAC": mac})
        if files:
            (text,) = files.values()
            assert all(WRITTEN.fullmatch(x) for x in text.splitlines() if x), text
            assert f"MACAddress={mac}\n" in text
            assert text.count("[Match]") == 1
        else:
            assert "ETH0 is not configured: ETH0_" in said or fields.get("METHOD") == "skip"
        resolver = root / "etc" / "resolv.conf"
        for line in resolver.read_text().splitlines() if resolver.exists() else ():
            assert re.fullmatch(r"# By .*|(search|nameserver) [0-9A-Za-z.:_ -]+", line)
