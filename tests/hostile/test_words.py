"""Other people's words on a terminal: they command nothing, turn nothing around, and make no lines of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phoenix.cli import departments, history, hosts, instances, queue, show, story, tables, usage
from schemas.releases import image_fits
from schemas.requests import Malformed, decode
from services.domain import text as sentences
from services.domain.text import facts

EVIL = (
    *(
        "\x1b[2J",
        "\x1b]0;owned\x07",
        "\x9b31m",
        "\u202eevil",
        "\u2066x\u2069",
        "\x00",
        "\x08\x08",
        "\r hidden",
        "\u200b",
        "\ufeff",
    ),
    *("a\nstate:  completed", "\x85next", "\u2028next", "\U000e0041"),
)
RAW = "".join(EVIL).replace("a\nstate:  completed", "")


def is_safe(text: str) -> bool:
    return not any(character in text for character in RAW if not character.isascii() or not character.isprintable())


@pytest.mark.parametrize("evil", EVIL)
def test_what_a_guest_has_noted_is_one_line_of_show_and_of_story(evil: str) -> None:
    attempt = {"attempt": 1, "note": evil, "hosts": ["h1"], "state": "failed"}
    job: dict[str, Any] = {"job": "3", "name": evil, "user": "ann", "state": "failed", "attempts": [attempt]}
    plain, told = (
        show.render(show.normal({**job, "name": "x", "attempts": [{**attempt, "note": note}]}, "3"))
        for note in ("x", evil)
    )
    assert len(told.split("\n")) == len(plain.split("\n"))
    assert is_safe(told)
    assert sum(line.startswith("state:") for line in told.split("\n")) == 1
    assert is_safe(show.render(show.normal(job, "3")))
    fact = {"unit": "3", "attempt": 1, "exit": 1, "note": evil}
    sentence = facts.told("attempt.reported", fact)
    assert is_safe(sentence)
    assert "\n" not in sentence
    step = {
        "at": "2026-01-01T00:00:00.000Z",
        "sentence": evil,
        "because": [{"at": "2026-01-01T00:00:00.000Z", "sentence": evil}],
    }
    life = story.render({"kind": "job", "entity": "3", "department": "hpc", "steps": [step], "more": False})
    assert len(life.split("\n")) == 3
    assert is_safe(life)


@pytest.mark.parametrize("evil", EVIL)
def test_names_and_reasons_are_one_line_of_the_queue(evil: str) -> None:
    reason = {"code": "dependency", "params": {"job": evil, "why": evil}}
    line = ["3", evil, "hpc", evil, "pending", 1, 1, None, reason]
    text = queue.render([line], 1)
    assert is_safe(text)
    assert len(text.split("\n")) == 2
    for code in ("dependency", "vm_ended", "held", "nothing_known_of_this", "user_limit", "starting"):
        told = {"code": code, "params": {"job": evil, "why": evil, "quality": evil, "unit": evil, "answer": evil}}
        assert is_safe(sentences.sentence(told))
        assert "\n" not in sentences.sentence(told)


def test_every_command_that_tells_other_peoples_words_goes_through_what_shows_them() -> None:
    """No renderer is printed as it is."""
    for module in (departments, history, hosts, instances, queue, usage):
        assert "print(render(" not in Path(str(module.__file__)).read_text(), module.__name__


def test_a_table_and_lines_show_what_nobody_sees() -> None:
    for evil in EVIL:
        assert is_safe(tables.render(("A",), [(evil,)]))
        assert len(tables.render(("A",), [(evil,)]).split("\n")) == 2
        assert is_safe(tables.lines_shown(evil).replace("\n", ""))


@pytest.mark.parametrize("image", ["$USER[PASSWORD]", "a$b", "${NAME}", "$"])
def test_an_image_names_no_variable_of_opennebula(image: str) -> None:
    assert not image_fits(image)
    with pytest.raises(Malformed, match=r"backslashes or \$"):
        decode("release.deploy", b'{"image": "%b"}' % image.encode())
