"""Sizes: the arithmetic counts every dimension of the table, one by one, and what is flat becomes a size and is flat again."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.dimensions import (
    DIMENSIONS,
    NEWEST,
    asking,
    is_fixed,
    is_named,
    scarcity,
    under,
    variables,
    vm_attributes,
    words,
)
from schemas.size import FIELDS, NOTHING, TAKEN, Size, size_in, size_of, total
from services.domain.custody.rules import RULES, RULES_KNOWN
from services.domain.shape import Shape
from services.scheduler.core.state.room import Free, Room

PLACES = range(len(FIELDS))
TEN = Size(*(10 for _ in FIELDS))


def one(place: int, amount: int = 1) -> Size:
    """So much of one dimension, nothing of the others."""
    return Size(*(amount if number == place else 0 for number in PLACES))


@pytest.mark.parametrize("place", PLACES, ids=FIELDS)
def test_each_dimension_counts_in_each_operation(place: int) -> None:
    more = one(place)
    assert TEN.fits_in(TEN)
    assert not TEN.plus(more).fits_in(TEN)
    assert more.fits_beside(TEN.minus(more), TEN)
    assert not more.fits_beside(TEN, TEN)
    assert TEN.plus(more)[place] == 11
    assert TEN.minus(more)[place] == 9
    assert one(place, 3).times(4) == one(place, 12)
    assert TEN.most(one(place, 12))[place] == 12
    assert one(place, 12).most(TEN)[place] == 12
    assert (one(place, 3).copies_in(TEN), one(place, 11).copies_in(TEN)) == (3, 0)
    assert TEN.plus(more).lacking_in(TEN) == more
    assert TEN.lacking_in(TEN) == NOTHING
    assert total([more, more, TEN])[place] == 12


@pytest.mark.parametrize("place", PLACES, ids=FIELDS)
def test_a_host_offers_a_rank_room_in_each_dimension(place: int) -> None:
    offers = Free.of(True, TEN)
    assert offers.fits(Shape(1, TEN))
    assert not offers.fits(Shape(1, TEN.plus(one(place))))
    room = Room(())
    room.offer("a", offers)
    assert room.fits(Shape(1, TEN))
    assert not room.fits(Shape(1, TEN.plus(one(place))))
    assert offers.beside(Shape(1, one(place, 4))).size[place] == 6
    assert offers.after(Shape(1, one(place, 4))).size[place] == 14


def test_nothing_has_no_end_of_copies_and_does_not_fit_where_a_host_is_taken() -> None:
    assert NOTHING.copies_in(TEN) is None
    assert NOTHING.fits_in(NOTHING)
    assert not NOTHING.fits_in(TAKEN)
    assert Shape(3, TEN).all == TEN.times(3)


def test_a_flat_message_is_a_size_and_a_size_is_flat() -> None:
    size = Size(*(number + 2 for number in PLACES))
    described = f.HostDescribed(host="h1", one_id=1, **size.fields())
    assert size_of(described) == size
    assert size.fields() == dict(zip(FIELDS, size, strict=True))


def test_a_size_in_words_leaves_out_what_is_optional_and_0() -> None:
    assert words(Size(1, 512)) == "1 core and 512 MiB"
    assert words(Size(4, 512, 1)) == "4 cores, 512 MiB and 1 GPU"
    assert words(Size(4, 512, 2), joined="together with") == "4 cores, 512 MiB together with 2 GPUs"


def test_gpus_are_scarce_and_named_and_stay_where_they_are_and_cores_and_memory_are_none_of_it() -> None:
    assert (scarcity(Size(9, 9)), scarcity(Size(9, 9, 2))) == (0, 2)
    assert (is_named(Size(9, 9)), is_named(Size(0, 0, 1))) == (False, True)
    assert (is_fixed(Size(9, 9)), is_fixed(Size(0, 0, 1))) == (False, True)


def test_amounts_of_different_scarce_dimensions_are_compared_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("schemas.dimensions.SCARCE", (0, 1))
    sizes = [Size(2, 1), Size(1, 500_000), Size(0, 7), Size(1, 3), Size()]
    assert sorted(sizes, key=scarcity) == sorted(sizes)
    assert scarcity(Size()) == 0


def test_each_of_the_four_properties_is_a_column_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dimension that is optional and neither scarce nor named is left out at 0, and nothing else."""
    gpus = DIMENSIONS[2]._replace(scarce=False, named=False, fixed=False)
    monkeypatch.setattr("schemas.dimensions.DIMENSIONS", (*DIMENSIONS[:2], gpus, *DIMENSIONS[3:]))
    assert words(Size(1, 512)) == "1 core and 512 MiB"
    gpus = DIMENSIONS[2]._replace(optional=False)
    monkeypatch.setattr("schemas.dimensions.DIMENSIONS", (*DIMENSIONS[:2], gpus, *DIMENSIONS[3:]))
    assert words(Size(1, 512)) == "1 core, 512 MiB and 0 GPUs"
    assert variables(Size(1, 512))["PHOENIX_GPUS"] == "0"


def test_a_request_for_a_size_leaves_out_what_is_optional_and_0() -> None:
    assert {"cpus_per_task": 2, "memory_mb": 512, "gpus_per_node": None}.items() <= asking(Size(2, 512)).items()
    assert asking(Size(2, 512, 3))["gpus_per_node"] == 3
    assert size_in({"cores": 2, "gpus": None, "other": 9}) == Size(2)


def test_a_dimension_counts_from_its_rules_on() -> None:
    size = Size(*(number + 1 for number in PLACES))
    assert under(size, NEWEST) == size
    for rules in RULES_KNOWN:
        expected = [n if d.rules <= rules else 0 for d, n in zip(DIMENSIONS, size, strict=True)]
        assert list(under(size, rules)) == expected
    assert NEWEST <= RULES


def test_a_vm_has_the_attributes_of_each_dimension() -> None:
    assert list(vm_attributes(Size(2, 512, 2))) == [
        ("CPU", 2),
        ("VCPU", 2),
        ("MEMORY", 512),
        ("PCI", {"CLASS": "0302"}),
        ("PCI", {"CLASS": "0302"}),
    ]
