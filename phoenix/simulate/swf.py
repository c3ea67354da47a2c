"""Job logs in the Standard Workload Format, version 2.2: read with whatever is wrong in them, and written.

Source: Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers, JSSPP 1999, LNCS 1659, and the
definition at the Parallel Workloads Archive (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html).

It decides which lines are jobs and what each job's size and times are.  It must never stop at a broken line, and never drop or
change one in silence: what was left out is in `skipped`, what was changed is in `notes`.

  1. Size: processors allocated (field 5), else requested (8).  Neither: skipped.
  2. Run time: field 4.  Unknown or negative: skipped; below 1 s: 1 s, since a job that takes no time holds nothing.
  3. Limit: requested time (9); memory: requested (10), else used (7), KB for each processor.  Unknown: None.
  4. A line with a number that was there before is skipped: in logs of systems with checkpoints the first line of a job sums it
     up, and lines with status 2 to 4 repeat its parts.
  5. Jobs are in order of submission, equal times in the log's order.  Numbers are the log's if they rise in that order; else
     1, 2, ….
  6. Time 0 is the log's time 0 (UnixStartTime), not its first job.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from phoenix.simulate.text_input import InputError, lines
from phoenix.simulate.workload import LogJob

FIELDS: Final = 18
RUN_S_MIN: Final = 1.0
KB_PER_MB: Final = 1024
# Beyond these a number is a slip of the one who wrote the log: a century in seconds, and more than any machine has.
SECONDS_MAX: Final = 3.2e9
COUNT_MAX: Final = 1e9
LABEL: Final = re.compile(r";+\s*([A-Z]\w*)\s*:(?:\s+(.*))?$")
NUMBER: Final = re.compile(r"\s*([+-]?\d+)")


class Skipped(msgspec.Struct, frozen=True):
    """A line that is no usable job."""

    line: int  # from 1
    why: str


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """A job log: what was usable, what its header says, and all that was left out or changed."""

    path: Path
    jobs: tuple[LogJob, ...]
    header: dict[str, str] = {}  # by label as written; a label that comes several times has several lines
    skipped: list[Skipped] = []
    notes: list[str] = []
    raised: int = 0  # jobs whose run time was below 1 s

    def number(self, label: str) -> int | None:
        """The number that a header's value begins with, as in `MaxNodes: 144 (each an 8-way SMP)`; None if there is none."""
        found = NUMBER.match(self.header.get(label, ""))
        return int(found[1]) if found else None

    @property
    def processors(self) -> int | None:
        """Of the whole machine (MaxProcs, else MaxNodes as the format has it)."""
        return _positive(self.number("MaxProcs")) or _positive(self.number("MaxNodes"))

    @property
    def nodes(self) -> int | None:
        return _positive(self.number("MaxNodes"))

    @property
    def processors_per_node(self) -> int | None:
        """None unless the header tells both counts and one divides the other."""
        processors, nodes = _positive(self.number("MaxProcs")), self.nodes
        return processors // nodes if processors and nodes and processors % nodes == 0 else None

    @property
    def started_at(self) -> int | None:
        """When the log's time 0 was, in seconds since 1970."""
        return _positive(self.number("UnixStartTime"))


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None


# ---------------------------------------------------------------------------------------------------------------- reading


def read(path: Path | str) -> Log:
    """Read `.swf` or `.swf.gz`.  Raises InputError for a file that cannot be read or holds no usable job."""
    reader = _Reader(Path(path))
    for block in lines(reader.path):
        reader.take(block)
    return reader.log()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0  # of the file, the last one taken
        self.jobs: list[LogJob] = []
        self.numbers: set[int] = set()
        self.skipped: list[Skipped] = []
        self.header: dict[str, str] = {}
        self.label = ""  # of the header, which a line without a label continues
        self.raised = self.long = self.seen = 0

    def take(self, block: list[bytes]) -> None:
        line, jobs, numbers = self.line, self.jobs, self.numbers
        for text in block:
            line += 1
            fields = text.split()
            if not fields:
                continue
            if fields[0].startswith(b";"):
                self.comment(text.decode("utf-8", "replace").strip())
                continue
            self.seen += 1
            job = self.job(fields)
            if isinstance(job, str):
                self.skipped.append(Skipped(line, job))
            elif job.number in numbers:
                self.skipped.append(Skipped(line, f"job number {job.number} is repeated (status {_word(fields[10])})"))
            else:
                numbers.add(job.number)
                jobs.append(job)
        self.line = line

    def job(self, fields: list[bytes]) -> LogJob | str:
        """The job of a line, or why it is none."""
        if len(fields) < FIELDS:
            return f"{len(fields)} fields instead of {FIELDS}"
        try:
            number, submit_s, run_s = int(fields[0]), float(fields[1]), float(fields[3])
            allocated, requested = int(fields[4]), int(fields[7])
            limit_s, used_kb, asked_kb = float(fields[8]), float(fields[6]), float(fields[9])
        except ValueError:
            plain = _with_whole_numbers(fields)
            return self.job(plain) if plain != fields else _not_a_number(fields)
        processors = allocated if allocated > 0 else requested
        if not (0 <= submit_s <= SECONDS_MAX and 0 <= run_s <= SECONDS_MAX and 0 < processors <= COUNT_MAX):
            return _out_of_range(submit_s, run_s, processors)
        self.long += len(fields) > FIELDS
        self.raised += run_s < RUN_S_MIN
        kb = asked_kb if asked_kb > 0 else used_kb
        return LogJob(
            number=number,
            submit_s=submit_s,
            run_s=run_s if run_s > RUN_S_MIN else RUN_S_MIN,
            processors=processors,
            requested_s=limit_s if 0 < limit_s < math.inf else None,
            memory_mb=math.ceil(kb / KB_PER_MB) if 0 < kb < math.inf else None,
            user="" if (user := fields[11]) == b"-1" else user.decode("utf-8", "replace"),
        )

    def comment(self, text: str) -> None:
        """`; Label: value`; a comment without a label continues the one before it."""
        found = LABEL.match(text)
        if found is not None:
            self.label, value = found[1], (found[2] or "").strip()
        else:
            value = text.lstrip("; \t")
        if self.label and value:
            before = self.header.get(self.label)
            self.header[self.label] = f"{before}\n{value}" if before else value

    def log(self) -> Log:
        if not self.jobs:
            raise self.nothing()
        jobs, notes = _in_order(self.jobs)
        log = Log(path=self.path, jobs=jobs, header=self.header, skipped=self.skipped, notes=notes, raised=self.raised)
        if self.raised:
            notes.append(f"{_jobs(self.raised)} ran for less than 1 s: counted as 1 s")
        if self.long:
            notes.append(f"{_jobs(self.long)} with more than {FIELDS} fields: the others are not looked at")
        notes.extend(_against_header(log, self.seen))
        return log

    def nothing(self) -> InputError:
        if not self.skipped:
            return InputError("there is no job in it; each job is a line of 18 numbers", self.path, max(self.line, 1))
        first = self.skipped[0]
        return InputError(
            f"none of its {len(self.skipped)} lines is a usable job; the first: {first.why}", self.path, first.line
        )


def _word(field: bytes) -> str:
    """A field as it stands in a sentence."""
    text = field.decode("utf-8", "replace")
    return text if len(text) <= 20 else text[:19] + "…"


def _with_whole_numbers(fields: list[bytes]) -> list[bytes]:
    """Fields with `8.0` written as `8`: table programs like to write counts that way."""
    return [field[:-2] if field.endswith(b".0") else field for field in fields]


def _not_a_number(fields: list[bytes]) -> str:
    for index, whole in ((0, True), (1, False), (3, False), (4, True), (6, False), (7, True), (8, False), (9, False)):
        try:
            int(fields[index]) if whole else float(fields[index])
        except ValueError:
            return f"field {index + 1} is not a {'whole ' if whole else ''}number: {_word(fields[index])!r}"
    raise AssertionError("every field is a number")


def _out_of_range(submit_s: float, run_s: float, processors: int) -> str:
    if math.isnan(submit_s) or submit_s < 0:
        return f"submitted at {submit_s:g} s, before the log's start"
    if submit_s > SECONDS_MAX:
        return f"submitted at {submit_s:g} s: absurd"
    if run_s < 0 or math.isnan(run_s):
        return f"run time unknown ({run_s:g})"
    if run_s > SECONDS_MAX:
        return f"run time of {run_s:g} s: absurd"
    if processors > COUNT_MAX:
        return f"{processors} processors: absurd"
    return "number of processors unknown (neither allocated nor requested)"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _in_order(jobs: list[LogJob]) -> tuple[tuple[LogJob, ...], list[str]]:
    """Jobs by time of submission with rising numbers, and what had to be changed for it."""
    notes: list[str] = []
    if (early := sum(b.submit_s < a.submit_s for a, b in pairwise(jobs))) > 0:
        jobs.sort(key=lambda job: job.submit_s)  # stable: 1. time of submission, 2. place in the log
        notes.append(f"not in order of submission: sorted ({_jobs(early)} submitted before the one above)")
    if jobs[0].number < 1 or any(b.number <= a.number for a, b in pairwise(jobs)):
        jobs = [msgspec.structs.replace(job, number=number) for number, job in enumerate(jobs, start=1)]
        notes.append(f"job numbers do not rise in order of submission: renumbered, 1 to {len(jobs)}")
    return tuple(jobs), notes


def _against_header(log: Log, seen: int) -> Iterator[str]:
    """Where the header and the jobs contradict each other."""
    promised = log.number("MaxRecords") or log.number("MaxJobs")
    if promised is not None and seen < promised:
        yield f"the header promises {_jobs(promised)}, the file holds {seen:,}: parts were filtered out, or it was cut off"
    if log.processors is not None:
        wide = sum(job.processors > log.processors for job in log.jobs)
        if wide:
            yield f"{_jobs(wide)} with more processors than the header's machine has ({log.processors})"


# ---------------------------------------------------------------------------------------------------------------- writing


def write(path: Path | str, jobs: Iterable[LogJob], header: dict[str, str] | None = None) -> None:
    """Write jobs as a log that `read` and other simulators read.  `header`: label to value; a value may have several lines."""
    with Path(path).open("w", encoding="utf-8") as stream:
        for label, value in {"Version": "2.2", **(header or {})}.items():
            stream.writelines(f"; {label}: {line}\n" for line in value.splitlines())
        stream.writelines(text(job) + "\n" for job in jobs)


def text(job: LogJob) -> str:
    """A job as a line of 18 fields; what a LogJob does not hold is -1 (unknown), its status is 1 (completed)."""
    user = "_".join(job.user.split()) or "-1"  # a blank would end the field
    limit = "-1" if job.requested_s is None else _plain(job.requested_s)
    memory_kb = -1 if job.memory_mb is None else job.memory_mb * KB_PER_MB
    return (
        f"{job.number} {_plain(job.submit_s)} -1 {_plain(job.run_s)} {job.processors} -1 -1 "
        f"{job.processors} {limit} {memory_kb} 1 {user} -1 -1 -1 -1 -1 -1"
    )


def _plain(seconds: float) -> str:
    """Whole seconds without a point, as most readers expect; others as they are."""
    return str(int(seconds)) if seconds.is_integer() else repr(seconds)
