"""OpenNebula's words as they are told (`services.executor.opennebula.messages`)."""

from __future__ import annotations

import pytest
from lxml import etree

from services.executor.core.calls import Phase
from services.executor.opennebula.client import sights
from services.executor.opennebula.messages import WHY_CHARS_MAX, in_words

ACTIVE, RUNNING, BOOT_FAILURE = 3, 3, 36


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Sun Nov 22 18:40:56 2026: DEPLOY: no such kernel", "DEPLOY: no such kernel"),
        ("Tue Nov  3 08:00:01 2026 : Error executing image transfer script", "Error executing image transfer script"),
        ("one line\n\tand another", "one line and another"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("turned \u202e around\x9b", "turned \\u202e around\\x9b"),
        ("token 0123456789abcdef0123456789ABCDEF in it", "token … in it"),
        ("grün, 東京", "grün, 東京"),
        ("", ""),
    ],
)
def test_one_harmless_line_without_what_could_be_a_secret(said: str, told: str) -> None:
    assert in_words(said) == told


def test_it_is_bounded_also_when_every_character_is_escaped() -> None:
    assert len(in_words("x" * 10_000)) == WHY_CHARS_MAX
    assert len(in_words("\x1b" * 10_000)) == WHY_CHARS_MAX
    assert in_words("x" * WHY_CHARS_MAX) == "x" * WHY_CHARS_MAX


def test_the_error_of_a_vm_is_read_where_it_has_failed_and_nowhere_else() -> None:
    one = "<VM><ID>{}</ID><STATE>3</STATE><LCM_STATE>{}</LCM_STATE><USER_TEMPLATE>{}</USER_TEMPLATE></VM>"
    error = "<ERROR>Sun Nov 22 18:40:56 2026: DEPLOY: no such kernel</ERROR>"
    pool = one.format(1, BOOT_FAILURE, error) + one.format(2, RUNNING, error) + one.format(3, BOOT_FAILURE, "")
    seen = sights(etree.fromstring(f"<VM_POOL>{pool}</VM_POOL>"))
    assert [(sight.phase, sight.why) for sight in seen] == [
        (Phase.FAILED, "DEPLOY: no such kernel"),
        (Phase.RUNNING, ""),
        (Phase.FAILED, ""),
    ]
