"""The archive's files, and how far the journal may be trimmed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.monitor.history.archivist import STEP_MAX, kept, purges, reach
from services.runtime.journal.archive import CHAIN, SEGMENT_MAX, Archive, Broken
from services.runtime.journal.fold import Stored

JOURNAL = "2026-02-03 04:05:06"


def messages(first: int, last: int) -> list[Stored]:
    return [Stored(i, "phoenix.journal.admission", b"envelope %d" % i, 1000.0 + i) for i in range(first, last + 1)]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "archive", JOURNAL)
    made.append(messages(1, 10))
    made.append(messages(11, 11))
    return made


def again(archive: Archive) -> Archive:
    return Archive(archive.directory, archive.journal)


def test_what_was_archived_is_read_back_as_it_was(archive: Archive) -> None:
    archive.append(messages(12, 12 + SEGMENT_MAX))  # two segments
    found = again(archive)
    assert found.end == 12 + SEGMENT_MAX
    assert len(found.links) == 4
    assert list(found.read()) == messages(1, found.end)
    assert list(found.read(after=9)) == messages(10, found.end)
    assert list(found.read(after=found.end)) == []


def test_the_same_messages_make_the_same_file(archive: Archive, tmp_path: Path) -> None:
    other = Archive(tmp_path / "other", JOURNAL)
    other.append(messages(1, 10))
    assert other.links[0] == archive.links[0]


@pytest.mark.parametrize(("first", "last"), [(13, 14), (11, 12), (1, 3)])
def test_what_does_not_continue_it_is_refused(archive: Archive, first: int, last: int) -> None:
    with pytest.raises(Broken, match=f"messages {first} to {last} do not follow 11"):
        archive.append(messages(first, last))
    assert again(archive).verify() == 11


def test_another_journals_messages_never_follow_though_their_numbers_do(archive: Archive) -> None:
    other = Archive(archive.directory, "another day")
    with pytest.raises(Broken, match=f"is of another journal .created {JOURNAL}, not another day."):
        other.append(messages(12, 13))
    assert again(archive).verify() == 11


def test_nothing_follows_a_segment_that_is_not_what_was_written(archive: Archive) -> None:
    (archive.directory / archive.links[-1].file).write_bytes(b"")
    with pytest.raises(Broken, match="is not the file that was written"):
        again(archive).append(messages(12, 13))


def test_a_gap_within_is_refused(archive: Archive) -> None:
    with pytest.raises(Broken, match="without a gap"):
        archive.append([*messages(12, 13), *messages(15, 16)])


def segment(archive: Archive, number: int) -> Path:
    return archive.directory / archive.links[number].file


def test_a_changed_segment_is_noticed(archive: Archive) -> None:
    file = segment(archive, 0)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(Broken, match=f"{file.name} is not the file that was written"):
        again(archive).verify()


def test_a_missing_segment_is_noticed(archive: Archive) -> None:
    segment(archive, 1).unlink()
    with pytest.raises(Broken, match=r"is missing, though the chain names it"):
        again(archive).verify()


def test_files_that_were_moved_away_are_named_before_the_first_is_read(archive: Archive, tmp_path: Path) -> None:
    archive.append(messages(12, 20))
    first, second = segment(archive, 0), segment(archive, 1)
    for file in (first, second):
        file.rename(tmp_path / file.name)
    told = f"{first}, and 1 more, the last of them {second.name}, is missing, though the chain names it: bring back"
    with pytest.raises(Broken, match=told):
        next(again(archive).read())
    with pytest.raises(Broken, match=f"{second} is missing"):
        next(again(archive).read(after=10))
    assert list(again(archive).read(after=11)) == messages(12, 20), "they are not needed"
    again(archive).append(messages(21, 21))
    for file in (first, second):
        file.symlink_to(tmp_path / file.name)
    assert again(archive).verify() == 21
    (tmp_path / first.name).unlink()
    with pytest.raises(Broken, match=f"{first} is missing"):
        next(again(archive).read())


def test_an_exchanged_segment_is_noticed_though_the_chain_was_changed_too(archive: Archive, tmp_path: Path) -> None:
    """Whoever rewrites a segment has to rewrite all that follow."""
    other = Archive(tmp_path / "other", JOURNAL)
    other.append([m._replace(data=b"forged") for m in messages(1, 10)])
    segment(archive, 0).write_bytes((other.directory / other.links[0].file).read_bytes())
    chain = archive.directory / CHAIN
    chain.write_text(chain.read_text().replace(archive.links[0].digest, other.links[0].digest))
    with pytest.raises(Broken, match="does not continue the segment before it"):
        again(archive).verify()


def test_another_journals_archive_is_refused(archive: Archive) -> None:
    with pytest.raises(Broken, match="is of another journal"):
        Archive(archive.directory, "another").verify()


def test_a_line_that_was_not_finished_is_dropped_and_its_segment_written_again(archive: Archive) -> None:
    chain = archive.directory / CHAIN
    whole = chain.read_bytes()
    chain.write_bytes(whole[:-5])
    found = again(archive)
    assert found.end == 10
    found.append(messages(11, 12))
    assert list(again(archive).read()) == messages(1, 12)


@pytest.mark.parametrize("line", ["1 10 10", "x 10 10 " + "0" * 64, "2 10 9 " + "0" * 64, "1 10 9 " + "0" * 64])
def test_a_chain_that_makes_no_sense_is_broken(archive: Archive, line: str) -> None:
    (archive.directory / CHAIN).write_text(line + "\n")
    with pytest.raises(Broken, match="chain:1"):
        again(archive)


# -------------------------------------------------------------------------------------------------------- how far to trim


@pytest.mark.parametrize(
    ("end", "begun", "keep", "snapshots", "to"),
    [
        (1000, 0, 100, [950, 990], 900),  # all but what is kept
        (1000, 0, 100, [950, 400], 400),  # not above a snapshot
        (1000, 0, 100, [950, 0], 0),  # somebody has none yet
        (1000, 895, 100, [950, 990], 0),  # too little to be worth a step
        (1000, 890, 100, [950, 990], 900),
        (1000, 0, 0, [950, 990], 0),  # everything is kept
        (STEP_MAX * 3, 5, 100, [STEP_MAX * 3], STEP_MAX + 5),  # in steps
    ],
)
def test_how_far(end: int, begun: int, keep: int, snapshots: list[int], to: int) -> None:
    assert reach(end, begun, keep, snapshots, step_min=10) == to


@pytest.mark.parametrize(
    ("keep", "messages", "used", "most", "stay"),
    [
        (1000, 800, 500, 1000, 1000),  # half full: as many as may be
        (1000, 800, 501, 1000, 638),  # more: so many that it is two fifths full
        (100, 800, 501, 1000, 100),  # … and never more than may be
        (1000, 3, 990, 1000, 1),
        (1000, 1, 990, 1000, 1),  # one stays, whatever its size
        (0, 800, 990, 1000, 0),  # everything is kept
        (1000, 800, 990, -1, 1000),  # no limit
        (1000, 800, 990, 0, 1000),
    ],
)
def test_a_journal_that_is_more_than_half_full_keeps_less(
    keep: int, messages: int, used: int, most: int, stay: int
) -> None:
    assert kept(keep, messages, used, most) == stay


@given(to=st.integers(1, 50), order=st.lists(st.sampled_from("abc"), min_size=1, max_size=60))
def test_a_purge_leaves_each_subjects_last_message_and_all_behind(to: int, order: list[str]) -> None:
    """S5, on the messages themselves."""
    stream = list(enumerate(order, 1))
    lasts = {subject: position for position, subject in stream}
    firsts = purges(to, lasts)
    left = [(position, subject) for position, subject in stream if position >= firsts[subject]]
    assert {subject: position for position, subject in left} == lasts
    assert [m for m in left if m[0] > to] == [m for m in stream if m[0] > to]
    assert all(position > to or lasts[subject] == position for position, subject in left)
