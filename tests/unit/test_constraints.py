"""Constraints as texts: what one is, and what is said of one that is none (`domain.constraints`)."""

from __future__ import annotations

import pytest

from services.domain.constraints import CHARS_MAX, TERMS_MAX, Term, parse, problem, satisfies


def test_alternatives_of_terms_that_hold_together() -> None:
    assert parse("gpu=yes & cluster=batch | host=big01") == (
        (Term("GPU", "=", "yes"), Term("CLUSTER", "=", "batch")),
        (Term("HOST", "=", "big01"),),
    )
    assert parse("a,b") == parse("a&b")
    assert parse("") == parse("  ") == ()
    assert parse("gpu") == ((Term("GPU", "", ""),),)
    assert parse("gpu!=no") == ((Term("GPU", "!=", "no"),),)


@pytest.mark.parametrize(
    "text", ["=x", "a==b", "a=", "a|", "|a", "a&&b", "(a)", "a=b c", "a=$(id)", "1a", "a=" + "x" * 65, "a<b", "a\nb"]
)
def test_what_is_no_constraint_is_refused_with_what_would_be_right(text: str) -> None:
    assert "NAME=VALUE" in problem(text)


def test_a_list_of_hosts_is_no_constraint() -> None:
    assert "label" in problem("|".join(["a"] * (TERMS_MAX + 1)))
    assert str(CHARS_MAX) in problem("a" * (CHARS_MAX + 1))
    assert problem("|".join(["a"] * TERMS_MAX)) == ""
    assert problem("a" * CHARS_MAX) == ""


def test_a_label_never_hides_the_names_of_host_and_cluster() -> None:
    labels = {"CLUSTER": "x", "HOST": "y"}
    assert satisfies("h", "c", labels, "cluster=c&host=h")
    assert not satisfies("h", "c", labels, "cluster=x|host=y")
