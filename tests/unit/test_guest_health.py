"""What is quoted of a program that has ended: its last lines, and no secret of it."""

from __future__ import annotations

from services.admission.guests.health import last_lines, without

SECRET = "k9-very-secret-and-long"


def test_the_last_lines_are_told_without_secrets() -> None:
    data = f"one\ntwo {SECRET} and {SECRET}\n\nthree\tfour\n".encode()
    assert last_lines(without([SECRET], data, torn=False)) == "one | two *** and *** | three four"


def test_the_end_of_a_secret_whose_beginning_is_not_there_is_not_told() -> None:
    """However much of what follows is left out: a text that got shorter first would keep the torn beginning."""
    data = (SECRET[5:] + " " + f"{SECRET} " * 100).encode()
    said = without([SECRET, "other"], data, torn=True)
    assert SECRET[5:] not in said
    assert SECRET[-4:] not in said
    assert said.count("***") >= 99


def test_a_text_that_is_whole_keeps_its_beginning_and_an_empty_secret_leaves_nothing_out() -> None:
    assert without(["", " ", SECRET], b"begins here", torn=False) == "begins here"
    assert without([], b"begins here", torn=True) == "begins here"
    assert without(["ab", "abc"], b"abc ab", torn=False) == "*** ***"
