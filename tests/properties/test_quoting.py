"""Nothing that a user or a site writes breaks out of its place: through templates into OpenNebula's own parser, and through the
boot document into the environment, the arguments and the files of a job that the context script starts.

    Q1  a template with any attributes of the site is read back as it was meant, or refused
    Q2  the boot document's lines give every value back (the form that `printf %b` reads)
    Q3  whatever environment, arguments and file names a job has, its process has exactly those, and nothing else has run
    Q4  whatever a file of the job is called, it is handed in under that name
"""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from phoenix.local.opennebula.templates import parse
from schemas.size import Size
from services.admission.guests import boot_text as plain
from services.admission.guests.boot import Boot, BootInput
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import TemplateError, Templates
from tests.support.script_guest import ACCOUNT, SCRIPT, context_file

# What shells, templates and C programs treat as special, more often than chance would draw it.
NASTY = "\"'`$(){}[]\\\n\t ;&|<>*?~#!%=-,/\x01\x7fé€\u2028😀"
TEXT = st.one_of(
    st.text(alphabet=NASTY, max_size=30),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(
        [
            "$(touch pwned)",
            "`touch pwned`",
            "'; touch pwned; '",
            '"; touch pwned; "',
            "-n",
            "--",
            "\\",
            "\\c",
            "%s",
            "\n",
        ]
    ),
)
SHELLS = [shell for shell in ("/bin/sh", "/bin/bash") if Path(shell).exists()]
OURS = set(plain.environment(Boot(
    kind="job", unit="1", attempt=1, rank=0, ranks=1, department="d", user="u", name="n", cores=1, memory_mb=1,
    nodes=("h",), script="", argv=(), environment={}, grace_s=0.1,
))) | {"PATH", "HOME", "TMPDIR", "PHOENIX_ROOM", "PHOENIX_URL", "PHOENIX_ID", "PHOENIX_TOKEN_FILE"}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------- templates

ATTRIBUTE = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("NAME", "CPU", "VCPU", "MEMORY", "PHOENIX_ID", "CONTEXT")
)
VECTOR = st.dictionaries(ATTRIBUTE, TEXT, min_size=1, max_size=3)


@given(
    site=st.dictionaries(ATTRIBUTE, st.one_of(TEXT, VECTOR, st.lists(VECTOR, min_size=1, max_size=2)), max_size=4),
    context=st.dictionaries(ATTRIBUTE.filter(lambda name: not name.startswith("PHOENIX_")), TEXT, max_size=3),
)
def test_a_template_is_read_back_as_it_was_meant_or_refused(site: dict[str, Any], context: dict[str, str]) -> None:
    """Q1."""
    call = Allocate("7_1", 3, 2, "h", Size(4, 512), "7_1/3/2")
    try:
        text = Templates(b"key", "http://door:1", {**site, "CONTEXT": context}).of("c", call)
    except TemplateError:
        return
    read = parse(text)
    assert set(read.values) == {*site, "NAME", "CPU", "VCPU", "MEMORY", "PHOENIX_ID", "CONTEXT"}
    for name, value in site.items():
        assert read.values[name] == (value if isinstance(value, list) else [value])
    (told,) = read.vectors("CONTEXT")
    assert {name: told.pop(name) for name in context} == context
    assert set(told) == {"PHOENIX_ID", "PHOENIX_URL", "PHOENIX_TOKEN", "PHOENIX_END"}
    assert (told["PHOENIX_ID"], read.get("PHOENIX_ID"), read.get("NAME")) == ("c/7_1/3/2", "c/7_1/3/2", "c-7_1-3-2")


# --------------------------------------------------------------------------------------------------------------- documents


def as_printf(text: str) -> str:
    """What `printf %b` makes of it, by its specification; of escapes only those that may occur."""
    parts = text.split("\\\\")
    return "\\".join(part.replace("\\n", "\n") for part in parts)


@given(TEXT)
def test_the_lines_of_a_boot_document_give_every_value_back(value: str) -> None:
    """Q2."""
    line = plain.encoded(value)
    assert "\n" not in line
    assert as_printf(line) == value


# --------------------------------------------------------------------------------------------------------------- the script


class _Door(http.server.BaseHTTPRequestHandler):
    """The guest contract, as little of it as one job needs."""

    protocol_version = "HTTP/1.1"
    boot: Boot
    inputs: dict[str, bytes]
    kept: dict[str, bytes]

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].partition("/1/1/0/")[2]
        if path == "plain/boot":
            self._answer(200, plain.lines(self.boot))
        elif path == "plain/script":
            self._answer(200, (self.boot.script or "").encode())
        elif path.startswith("inputs/"):
            self._answer(200, self.inputs[unquote(path.removeprefix("inputs/"))])
        else:
            threading.Event().wait(0.2)
            self._answer(200, b"{}")

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path = self.path.partition("/1/1/0/")[2]
        if path.startswith("files/"):
            self.kept[unquote(path.removeprefix("files/"))] = body
        self._answer(204)

    do_PUT = do_POST = _take

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def door() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Door)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def booted(script: str, argv: list[str], **given: Any) -> Boot:
    """A job of a user, and with a name, that a shell would act on."""
    fields: dict[str, Any] = {"environment": {}, "grace_s": 0.1} | given
    return Boot(
        kind="job",
        unit="1",
        attempt=1,
        rank=0,
        ranks=1,
        department="hpc",
        user="$(touch pwned)",
        name='`touch pwned`"',
        cores=1,
        memory_mb=1,
        nodes=("h",),
        script=script,
        argv=tuple(argv),
        **fields,
    )


def lived(door: str, boot: Boot, inputs: dict[str, bytes], shell: str) -> Path:
    """Let a job live in a VM; returns its directory, in a place that whoever calls removes."""
    _Door.boot, _Door.inputs, _Door.kept = boot, inputs, {}
    place = Path(tempfile.mkdtemp(prefix="phoenix-quoting-"))
    place.chmod(0o755)
    context = {"PHOENIX_URL": door, "PHOENIX_ID": "c/1/1/0", "PHOENIX_TOKEN": "ab" * 32}
    file = place / "context.sh"
    file.write_text(context_file({**context, **({"GUEST_USER": ACCOUNT} if ACCOUNT else {})}))
    environment = {"PATH": os.environ["PATH"], "PHOENIX_GUEST_ROOM": str(place), "PHOENIX_GUEST_POWEROFF": "true"}
    with (place / "console").open("wb") as console:
        guest = subprocess.Popen(
            [shell, SCRIPT, file], env=environment, cwd=place, stderr=console, start_new_session=True
        )
        try:
            assert guest.wait(60) == 0
        finally:  # a VM's end ends what helped its guest, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)
    assert "reported" in (place / "console").read_text()
    assert not list(place.rglob("pwned"))
    return place


FILE = st.one_of(
    st.text(alphabet=NASTY.translate({ord(x): None for x in "\n\t/\x01\x7f\u2028"}), min_size=1, max_size=20),
    st.sampled_from(
        ["-rf", "--help", "$(touch pwned)", "`touch pwned`", "a b", "'", '"', "%2e", "*", "\\n", "#", "?x=1"]
    ),
).filter(lambda name: name not in (".", ".."))
SHOW = """#!/bin/sh
cat /proc/$$/environ >"$HOME/environ"
printf '%s\\0' "$@" >"$HOME/arguments"
"""


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    environment=st.dictionaries(TEXT.filter(lambda x: x and "=" not in x and x not in OURS), TEXT, max_size=20),
    argv=st.lists(TEXT, min_size=1, max_size=20),
    files=st.lists(FILE, max_size=5, unique=True),
    shell=st.sampled_from(SHELLS),
)
@example(
    environment={"LONG": "x\\\n" * 30_000, "-u": "1", "A B": "2"}, argv=["y" * 100_000, ""], files=[], shell=SHELLS[0]
)
@example(environment={"NL": "\n\n", "END": "a\n"}, argv=["-x", "--", "\n"], files=["-", "a\\nb"], shell=SHELLS[-1])
def test_a_job_has_exactly_what_was_submitted(
    door: str, environment: dict[str, str], argv: list[str], files: list[str], shell: str
) -> None:
    """Q3."""
    inputs = {f"in/{name}": name.encode() for name in files}
    given = tuple(BootInput(name=name, size=len(data)) for name, data in inputs.items())
    boot = booted(SHOW, argv, environment=environment, inputs=given)
    place = lived(door, boot, inputs, shell)
    try:
        work = place / "1-1-0" / "work"
        raw = (work / "environ").read_bytes().split(b"\0")[:-1]
        seen = dict(item.split(b"=", 1) for item in raw)
        assert {name: seen[name.encode()].decode() for name in environment} == environment
        assert {name.decode() for name in seen} - set(environment) <= OURS
        assert seen[b"PHOENIX_JOB_NAME"].decode() == boot.name
        assert (work / "arguments").read_bytes().split(b"\0")[:-1] == [x.encode() for x in argv]
        assert {f"in/{x.name}": x.read_bytes() for x in (work / "in").glob("*")} == inputs
    finally:
        shutil.rmtree(place)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=st.lists(FILE, min_size=1, max_size=5, unique=True), shell=st.sampled_from(SHELLS))
@example(files=["$(touch pwned)", "-rf", "a b", "\\n", "%41", "*", "é"], shell=SHELLS[0])
def test_a_kept_file_arrives_under_its_own_name(door: str, files: list[str], shell: str) -> None:
    """Q4."""
    boot = booted(
        'mkdir out; for name; do printf %s "$name" >"./out/$name"; done', files, keep=("out/*", "$(touch pwned)/*")
    )
    place = lived(door, boot, {}, shell)
    shutil.rmtree(place)
    assert {f"out/{name}": name.encode() for name in files} == _Door.kept
