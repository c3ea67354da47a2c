"""The tour of the README and the tutorials, followed word by word: each command runs as it stands and shows what the document
shows.  So does the simulator's explanation of a job in its how-to.

Rules
  1. A line of a block that begins with `$` is a command for bash, in a directory with the checkout's examples and no cloud.
     The lines below it are its output; of a command of the README without any, that of the same command further up.
  2. Of the output, times, ports, hosts and measurements vary, and an ellipsis stands for anything.  The rest is the same, above
     all numbers of jobs, instances and releases.
  3. A command that only reads is repeated until it shows what the document shows: a reader takes time, and any instance may
     answer.
  4. Which elements of the array lose their hosts is chance: the names of the document are replaced by those of this run.  So is
     the host of the job with the checkpoint, and the address of the load balancer.
  5. What takes long or opens a browser is replaced (`INSTEAD`), and its output is not compared.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]
TOUR = "docs/examples/tour"
RUN_S = 90.0
READ_S = 30.0
READS = re.compile(
    r"curl|phoenix (queue|departments|hosts(?! drain| uncordon)|story|show|output|why|instances|releases)\b"
)
INSTEAD = (
    (r"export PATH=.*|URL=.*|phoenix dashboard .*", "true"),
    (r"phoenix load (.*) --rate 25 .*", r"phoenix load \1 --rate 25 --for 1s"),
    (r"phoenix load .* --rate 70 .*", "phoenix signal web --requests 150 --target 100 --for 2s"),
    (r"phoenix story web .*", r"\g<0>"),  # it names the load
)
UNORDERED = ("phoenix hosts", "phoenix launch")  # their lines come in an order of chance
FAILS = "-- false"
LOST = {"README.md": ("3_1", "3_15"), "batch.md": ("4_12", "4_15"), "web.md": ()}
PLACE, DRAINED = "/tmp/shop", "host000"  # of the documents
VARIES = (
    r"\d{4}-\d\d-\d\dT[\d:.]+Z",
    r"host\d{3}",
    r"127\.0\.0\.1:\d+",
    r"phoenix-[0-9a-f]{6}",
    r"/\S+/\.phoenix",
    r"\d+ attempts? ahead",
    r"step \d+",
    r"(?:\d+m)?\d+s\b",
    r"\d+(?:\.\d+)? (?:s|ms|%)(?!\S)",
    r" ?[+-]\d+\.\d+",  # a change, which is empty where there is none
    r"\d+\.\d+",
    r" ?… ?",
)
VARYING = re.compile("|".join(f"({each})" for each in VARIES))
MAY_LACK = VARIES[-3]
ANYTHING = VARIES[-1]


class Step(NamedTuple):
    """A command of a document and the output that the document shows, or ""."""

    command: str
    output: str


def steps(text: str) -> Iterator[Step]:
    """Rule 1, of one part of a document."""
    command, output = "", ""
    for line in [*text.splitlines(), "(end)"]:
        begins, inside = line.startswith("    $ "), line.startswith("    ")
        if command and (begins or not inside):
            yield Step(command, output)
            command = ""
        if begins:
            command, output = re.sub(r" {2,}#.*", "", line.removeprefix("    $ ")).strip(), ""
        elif inside:
            output += line + "\n"


def squeezed(text: str) -> str:
    return " ".join(text.split())


def pattern(output: str) -> str:
    """Rule 2, as a regular expression of the output with single spaces."""
    text, found, end = squeezed(output), "", 0
    for match in VARYING.finditer(text):
        found += re.escape(text[end : match.start()])
        kind = VARIES[(match.lastindex or 1) - 1]
        found += ".*" if kind == ANYTHING else f"(?:{kind})?" if kind == MAY_LACK else kind
        end = match.end()
    return found + re.escape(text[end:])


def shows(output: str, document: str, is_ordered: bool) -> bool:
    """True if a command's output is that of the document."""
    if is_ordered:
        return re.fullmatch(pattern(document), squeezed(output)) is not None
    lines = [squeezed(line) for line in output.splitlines()]
    wanted = [re.sub(r"(\d+)_\d+", r"\1_\\d+", pattern(line)) for line in document.splitlines()]
    return all(any(re.fullmatch(each, line) for line in lines) for each in wanted)


def bash(command: str, directory: Path, **more: str) -> tuple[int, str]:
    """Exit code, and both streams as a terminal shows them.  `more`: variables of the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHOENIX_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    return done.returncode, done.stdout


class Reader:
    """Follows a document in a directory of their own.  `lost` are the elements that lose their hosts in the document."""

    def __init__(self, checkout: Path, lost: Sequence[str]) -> None:
        self.checkout, self.lost = checkout, lost
        self.cloud = Cloud(checkout / ".phoenix")
        self.shop = tempfile.mkdtemp(prefix="phoenix-followed-")
        Path(self.shop).chmod(0o755)
        self.names = {PLACE: f"{self.shop}/shop"}  # rule 4: in the document -> in this run
        self.url = ""

    def close(self) -> None:
        self.cloud.close()
        shutil.rmtree(self.shop)

    def renamed(self, text: str) -> str:
        """Rule 4."""
        for theirs, ours in self.names.items():
            text = re.sub(rf"(?<!\w){re.escape(theirs)}(?!\w)", ours, text)
        return text

    def follow(self, step: Step) -> None:
        if step.command.startswith("phoenix hosts drain"):
            self._await_checkpoint(step.command)
        command, document = self.renamed(step.command), self.renamed(step.output)
        for expression, instead in INSTEAD:
            if re.fullmatch(expression, command):
                command, document = re.sub(expression, instead, command), ""
        self._run(command, document)
        if command.startswith("phoenix up"):
            self._find_balancer(document)
        if command == "phoenix scale web 3" and self.lost:
            self._find_lost()

    def _run(self, command: str, document: str) -> None:
        output = ""

        def done() -> bool:
            nonlocal output
            code, output = bash(command.replace("curl ", "curl -s "), self.checkout, URL=self.url)
            is_ordered = not any(each in command for each in UNORDERED)
            as_shown = not document or shows(output, document, is_ordered)
            return as_shown and code == (1 if command.endswith(FAILS) else 0)

        try:
            assert until(done, "", within_s=READ_S) if READS.match(command) else done()
        except AssertionError:
            raise AssertionError(f"$ {command}\n{output}\nthe document shows:\n{document}") from None

    def _find_balancer(self, document: str) -> None:
        shown = re.search(r"^ *web: +(\S+)", document, re.M)
        assert shown
        self.url = self.names[shown[1]] = self.cloud.status()["balancers"]["web"]

    def _find_lost(self) -> None:
        """The jobs that wait after an attempt."""

        def lost() -> list[str]:
            pending = self.cloud.json("queue", "--state", "pending")["jobs"]
            return [job["unit"] for job in pending if job["attempt"]]

        until(lambda: len(lost()) == len(self.lost), "not as many jobs lost their hosts as in the document")
        self.names |= dict(zip(self.lost, lost(), strict=True))

    def _await_checkpoint(self, command: str) -> None:
        assert DRAINED in command
        job = self.cloud.json("queue")["jobs"][0]
        until(lambda: self.cloud.json("show", job["job"])["attempts"][0].get("checkpoint"), "the job saves nothing")
        self.names[DRAINED] = job["hosts"][0]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with the examples; the job that saves counts faster."""
    shutil.copytree(ROOT / TOUR, tmp_path / TOUR)
    saved = tmp_path / TOUR / "saved.sh"
    saved.write_text(saved.read_text().replace("sleep 1\n", "sleep 0.1\n"))
    return tmp_path


def part(document: Path) -> list[Step]:
    """What a reader follows: of the README its tour, with what it shows of the same commands further up."""
    found = list(steps(document.read_text()))
    if document.name != "README.md":
        return found
    shown = {step.command: step.output for step in reversed(found) if step.output}
    tour = document.read_text().partition("\n## A short tour\n")[2].partition("\n## ")[0]
    return [step._replace(output=step.output or shown.get(step.command, "")) for step in steps(tour)]


def test_the_simulator_explains_the_job_of_its_page() -> None:
    (step,) = [each for each in steps((ROOT / "docs/howto/simulator.md").read_text()) if "--explain" in each.command]
    code, output = bash(step.command, ROOT)
    assert code == 0
    assert shows(output, step.output, is_ordered=True), output


# Releases that each serve for seconds before the next, jobs that run as long as readers need to look at them.
LONG = [pytest.param(f"docs/tutorial/{name}.md", marks=pytest.mark.long) for name in ("batch", "web")]


@pytest.mark.parametrize("document", ["README.md", *LONG])
def test_each_command_shows_what_the_document_shows(document: str, checkout: Path) -> None:
    followed = part(ROOT / document)
    assert len(followed) > 10
    reader = Reader(checkout, LOST[Path(document).name])
    try:
        for step in followed:
            reader.follow(step)
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("output", "document", "expected"),
    [
        ("4\n", "    4\n", True),
        ("4\n", "    3\n", False),
        ("host000 (hpc): job 5 is ended now", "host000 (hpc): job 6 is ended now", False),
        ("host003 (hpc): job 5 is ended now", "host000 (hpc): job 5\n  is ended now", True),
        ("hi from web.3, release 2", "hi from web.4, release 2", False),
        ("hpc  13 13  7 pending", "hpc  13 13  8 pending", False),
        ("web  2 instances, 2 wanted  41 %", "web  2 instances, 2 wanted  5 %", True),
        ("one\ntwo\nthree", "one\n…\nthree", True),
        ("one\ntwo\nthree", "one\nthree", False),
        ("one\ntwo", "one", False),
        ("lost  0.00  0.00  0.00", "lost  0.01  0.01  0.00  -0.01", True),
    ],
)
def test_numbers_of_jobs_are_compared_and_measurements_are_not(output: str, document: str, expected: bool) -> None:
    assert shows(output, document, is_ordered=True) is expected


def test_lines_of_chance_come_in_any_order() -> None:
    output = "host000 web.1\nhost001 3_2\nhost002 web.3\n"
    assert shows(output, "…\nhost014 web.3\nhost012 3_13\n", is_ordered=False)
    assert not shows(output, "host012 4_13\n", is_ordered=False)
    assert not shows(output, "host012 web.4\n", is_ordered=False)
