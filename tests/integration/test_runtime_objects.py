"""The object store on a real server."""

from __future__ import annotations

from schemas.subjects import OBJECTS
from services.runtime.broker.objects import NAME_MAX_BYTES, Objects
from tests.support.shells import World


async def test_a_name_may_be_longer_than_a_line_of_the_protocol(here: World) -> None:
    """A kept file's path of 3,251 bytes ended admission's connection, and that of whoever came after it."""
    objects = Objects(here.js, OBJECTS)
    names = [f"files/1/1/f/{'x' * size}" for size in (NAME_MAX_BYTES - 13, NAME_MAX_BYTES - 12, 3251, 4095)]
    names.append("files/1/1/f/" + "\N{GRINNING FACE}" * 1000)
    for number, name in enumerate(names):
        await objects.put(name, b"%d" % number)
    assert [await objects.get(name) for name in names] == [b"%d" % number for number in range(len(names))]
    assert await objects.get(names[2] + "x") is None
    assert await objects.delete(names[2])
    assert not await objects.exists(names[2])
    assert await objects.exists(names[3])
