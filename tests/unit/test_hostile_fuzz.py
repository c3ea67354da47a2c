"""What the campaign sends: as odd as it says, again the same for a seed, and some of it right."""

from __future__ import annotations

import msgspec

from schemas import requests as r
from schemas.signals import SIGNALS
from tests.hostile.fuzz import Fuzz


def test_a_seed_says_the_same_again() -> None:
    made = [[Fuzz(seed).kind(SIGNALS) for _ in range(3)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_of_every_kind_some_is_right_and_some_is_wrong() -> None:
    fuzz = Fuzz(0)
    kinds = {name: pair[0] for name, pair in r.REQUESTS.items()} | SIGNALS
    for name, kind in kinds.items():
        right = [_is_right(fuzz.message(kind), kind) for _ in range(400)]
        assert {True, False} == set(right), name


def _is_right(data: bytes, kind: type) -> bool:
    for decode in (msgspec.json.decode, msgspec.msgpack.decode):
        try:
            decode(data, type=kind)
            return True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return False
