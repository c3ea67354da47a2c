"""Job logs: every field that counts, whatever is wrong named with its line, and nothing changed in silence."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoenix.simulate import swf, traces
from phoenix.simulate.text_input import InputError
from phoenix.simulate.workload import LogJob

GOOD = "1 10 5 100 8 -1 -1 16 200 2049 1 34 -1 -1 2 -1 -1 -1"
HEADER = """\
; Version: 2.2
; Note: first
;   and more of it
; Note: second
; Acknowledge: http://example.org/a
; UnixStartTime: 956700003
; MaxNodes: 144 (each an 8-way SMP)
; MaxProcs: 1152
"""


def line(number: int = 1, **changed: object) -> str:
    """A good line; `f4=0` changes field 4."""
    fields = GOOD.split()
    fields[0] = str(number)
    for name, value in changed.items():
        fields[int(name[1:]) - 1] = str(value)
    return " ".join(fields)


def read(tmp_path: Path, *lines: str) -> swf.Log:
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return swf.read(path)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        swf.read(path)
    return str(caught.value)


def test_a_line_becomes_a_job(tmp_path: Path) -> None:
    log = read(tmp_path, GOOD)
    assert log.jobs == (
        LogJob(number=1, submit_s=10, run_s=100, processors=8, requested_s=200, memory_mb=3, user="34"),
    )
    assert (log.skipped, log.notes, log.header) == ([], [], {})
    assert log.processors is log.nodes is log.processors_per_node is log.started_at is None


def test_what_is_unknown_stays_unknown(tmp_path: Path) -> None:
    (job,) = read(tmp_path, line(f9=-1, f10=-1, f12=-1)).jobs
    assert (job.requested_s, job.memory_mb, job.user) == (None, None, "")


@pytest.mark.parametrize(
    ("changed", "processors"), [({"f5": 4}, 4), ({"f5": -1}, 16), ({"f5": 0}, 16), ({"f5": "4.0"}, 4)]
)
def test_processors_are_those_allocated_else_those_requested(
    tmp_path: Path, changed: dict[str, object], processors: int
) -> None:
    assert read(tmp_path, line(1, **changed)).jobs[0].processors == processors


@pytest.mark.parametrize(("used", "asked", "memory_mb"), [(1, -1, 1), (1024, -1, 1), (1025, -1, 2), (9999, 1024, 1)])
def test_memory_is_what_was_asked_for_else_used(tmp_path: Path, used: int, asked: int, memory_mb: int) -> None:
    assert read(tmp_path, line(f7=used, f10=asked)).jobs[0].memory_mb == memory_mb


def test_the_header_is_honoured(tmp_path: Path) -> None:
    log = read(tmp_path, HEADER + GOOD)
    assert log.header["Note"] == "first\nand more of it\nsecond"
    assert log.header["Acknowledge"] == "http://example.org/a"
    assert (log.processors, log.nodes, log.processors_per_node, log.started_at) == (1152, 144, 8, 956700003)


def test_a_header_that_does_not_divide_tells_no_processors_per_node(tmp_path: Path) -> None:
    assert read(tmp_path, "; MaxNodes: 100", "; MaxProcs: 150", GOOD).processors_per_node is None


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("1 2 3", "3 fields instead of 18"),
        (line(2, f2="soon"), "field 2 is not a number: 'soon'"),
        (line(2, f5="8.5"), "field 5 is not a whole number: '8.5'"),
        (line(2, f4=-1), "run time unknown (-1)"),
        (line(2, f4="nan"), "run time unknown (nan)"),
        (line(2, f4="inf"), "run time of inf s: absurd"),
        (line(2, f4="1e12"), "run time of 1e+12 s: absurd"),
        (line(2, f2=-5), "submitted at -5 s, before the log's start"),
        (line(2, f2="nan"), "submitted at nan s, before the log's start"),
        (line(2, f2="1e300"), "submitted at 1e+300 s: absurd"),
        (line(2, f5=-1, f8=0), "number of processors unknown (neither allocated nor requested)"),
        (line(2, f5=10**12), "1000000000000 processors: absurd"),
        (line(1, f11=2), "job number 1 is repeated (status 2)"),
    ],
)
def test_a_broken_line_is_named_and_skipped(tmp_path: Path, broken: str, why: str) -> None:
    log = read(tmp_path, "; Note: x", GOOD, "", broken, line(3))
    assert log.skipped == [swf.Skipped(line=4, why=why)]
    assert [job.number for job in log.jobs] == [1, 3]


def test_a_job_of_no_time_counts_as_one_second(tmp_path: Path) -> None:
    log = read(tmp_path, line(1, f4=0), line(2, f4=0.4), line(3, f4=1))
    assert [job.run_s for job in log.jobs] == [1, 1, 1]
    assert (log.raised, log.notes) == (2, ["2 jobs ran for less than 1 s: counted as 1 s"])


def test_a_log_out_of_order_is_sorted_stably_and_numbered_anew(tmp_path: Path) -> None:
    log = read(tmp_path, line(7, f2=20, f12=1), line(5, f2=10.5, f12=2), line(6, f2=20, f12=3))
    assert [(job.number, job.submit_s, job.user) for job in log.jobs] == [(1, 10.5, "2"), (2, 20, "1"), (3, 20, "3")]
    assert len(log.notes) == 2
    assert "sorted (1 job submitted before the one above)" in log.notes[0]
    assert "renumbered, 1 to 3" in log.notes[1]


@pytest.mark.parametrize("numbers", [(0, 1), (-3, 4), (4, 2)])
def test_numbers_that_do_not_rise_from_one_are_replaced(tmp_path: Path, numbers: tuple[int, int]) -> None:
    log = read(tmp_path, *(line(number) for number in numbers))
    assert [job.number for job in log.jobs] == [1, 2]


def test_a_header_that_contradicts_the_jobs_is_noted(tmp_path: Path) -> None:
    log = read(tmp_path, "; MaxJobs: 3", "; MaxProcs: 4", GOOD + " 19")
    assert [note.split(":")[0] for note in log.notes] == [
        "1 job with more than 18 fields",
        "the header promises 3 jobs, the file holds 1",
        "1 job with more processors than the header's machine has (4)",
    ]


def test_a_compressed_log_is_read_whatever_its_name(tmp_path: Path) -> None:
    for name in ("log.swf.gz", "log.swf"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((HEADER + GOOD).encode()))
        assert len(swf.read(path).jobs) == 1


def test_lines_may_end_as_on_windows_and_span_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phoenix.simulate.text_input.BLOCK_BYTES", 7)
    log = read(tmp_path, HEADER.replace("\n", "\r\n") + GOOD + "\r", line(2))
    assert (len(log.jobs), log.processors) == (2, 1152)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(line(n) for n in range(1, 3000)).encode())
    (cut := tmp_path / "cut.swf.gz").write_bytes(whole[:-20])
    (damaged := tmp_path / "damaged.swf.gz").write_bytes(whole[:60] + b"\xff" * 8 + whole[68:])
    (binary := tmp_path / "binary.swf").write_bytes(b"\x7fELF\0\0")
    (endless := tmp_path / "endless.swf").write_bytes(b"1 " * 100_000)
    assert refusal(cut) == f"{cut}:1: the compressed file ends too early: it was cut off; copy it again"
    assert "damaged" in refusal(damaged)
    assert refusal(binary) == f"{binary}:1: this is no text file"
    assert refusal(endless) == f"{endless}:1: this is no text file"
    assert refusal(tmp_path) == f"{tmp_path}: is a directory; name a file"
    assert refusal(tmp_path / "none.swf") == f"{tmp_path / 'none.swf'}: cannot be read: No such file or directory"


def test_a_log_without_a_job_says_what_was_wrong(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.swf").write_text("")
    (header := tmp_path / "header.swf").write_text(HEADER)
    (broken := tmp_path / "broken.swf").write_text("; Note: x\n1 2 3\n4 5 6\n")
    assert refusal(empty) == f"{empty}:1: there is no job in it; each job is a line of 18 numbers"
    assert refusal(header) == f"{header}:8: there is no job in it; each job is a line of 18 numbers"
    assert refusal(broken) == f"{broken}:2: none of its 2 lines is a usable job; the first: 3 fields instead of 18"


def test_a_log_longer_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phoenix.simulate.text_input.LINES_MAX", 2)
    with pytest.raises(InputError, match=r"log\.swf:3: more than 2 lines"):
        read(tmp_path, line(1), line(2), line(3))


JOBS = st.lists(
    st.builds(
        LogJob,
        number=st.just(1),
        submit_s=st.floats(0, 1e9),
        run_s=st.floats(1, 1e9),
        processors=st.integers(1, 10**6),
        requested_s=st.none() | st.floats(0.1, 1e9),
        memory_mb=st.none() | st.integers(1, 10**7),
        user=st.just("") | st.from_regex(r"[a-z0-9]+", fullmatch=True),
    ),
    min_size=1,
    max_size=20,
)


@given(JOBS)
def test_jobs_survive_being_written_and_read(jobs: list[LogJob]) -> None:
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    numbered = tuple(
        LogJob(**{name: getattr(job, name) for name in job.__struct_fields__} | {"number": number})
        for number, job in enumerate(ordered, start=1)
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.swf"
        swf.write(path, numbered, {"MaxProcs": "1000000", "Note": "one\ntwo"})
        log = swf.read(path)
    assert log.jobs == numbered
    assert (log.skipped, log.notes) == ([], [])
    assert log.header == {"Version": "2.2", "MaxProcs": "1000000", "Note": "one\ntwo"}


PUBLIC = [  # log, jobs, raised, processors of a node
    ("sdsc-blue-reconstructed-14days.swf", 2673, 0, 8),
    ("KTH-SP2-1996-2.swf.gz", 28489, 8, 1),
    ("NASA-iPSC-1993-3.1-cln.swf.gz", 18239, 173, 1),
]


@pytest.mark.parametrize(
    ("log", "jobs", "raised", "per_node"), [pytest.param(*row, marks=pytest.mark.traces(row[0])) for row in PUBLIC]
)
def test_a_public_log_is_read_whole(log: str, jobs: int, raised: int, per_node: int) -> None:
    path = traces.find(log)
    assert path is not None
    is_read_whole(path, jobs, raised, per_node)


def test_a_long_log_is_read_whole(tmp_path: Path) -> None:
    own = tmp_path / "own.swf.gz"
    own.write_bytes(gzip.compress((HEADER + "\n".join(line(n, f2=n, f4=n % 9) for n in range(1, 901))).encode()))
    is_read_whole(own, 900, 100, 8)


def is_read_whole(path: Path, jobs: int, raised: int, per_node: int) -> None:
    log = swf.read(path)
    assert (len(log.jobs), log.raised, log.skipped, log.processors_per_node) == (jobs, raised, [], per_node)
    assert "job numbers" not in " ".join(log.notes)
    assert "sorted" not in " ".join(log.notes)
