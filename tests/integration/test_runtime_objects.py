"""The object store on a real server."""

from __future__ import annotations

import asyncio
import os

import pytest

from schemas.subjects import OBJECTS
from services.runtime.broker.objects import CHUNK_BYTES, CUT_OFF_S, NAME_MAX_BYTES, Objects
from tests.support.shells import World


async def test_a_name_may_be_longer_than_a_line_of_the_protocol(here: World) -> None:
    """A kept file's path of 3,251 bytes ended admission's connection, and that of each successor."""
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


async def cut_off(objects: Objects, name: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process dies between the last chunk and the description."""
    stored = asyncio.Event()

    async def never(_info: object) -> None:
        stored.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(objects, "_describe", never)
        task = asyncio.create_task(objects.put(name, data))
        await stored.wait()
        task.cancel()
        await asyncio.wait([task])


async def test_chunks_of_a_put_that_was_cut_off_are_removed_and_no_others(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects(here.js, OBJECTS)
    content = os.urandom(2 * CHUNK_BYTES + 1)
    for name in ("empty", "kept", "written again"):
        await objects.put(name, b"" if name == "empty" else content)
    await cut_off(objects, "written again", os.urandom(3), monkeypatch)
    await cut_off(objects, "new", content, monkeypatch)
    before = (await here.js.stream_info(f"OBJ_{OBJECTS}")).state.messages
    assert await objects.sweep(CUT_OFF_S) == 0, "it may still be on its way"
    assert await objects.sweep(0.0) == 2
    assert (await here.js.stream_info(f"OBJ_{OBJECTS}")).state.messages == before - 1 - 3
    assert await objects.sweep(0.0) == 0
    assert [await objects.get(name) for name in ("empty", "kept", "written again")] == [b"", content, content]
    assert not await objects.exists("new")


async def test_what_is_described_while_others_are_swept_stays(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    objects, other = Objects(here.js, OBJECTS), Objects(here.js, OBJECTS)
    listed = objects._chunk_ids

    async def then_put() -> dict[str, None]:
        found = await listed()
        await other.put("late", b"late")
        return {**found, **await listed()}

    monkeypatch.setattr(objects, "_chunk_ids", then_put)
    assert await objects.sweep(0.0) == 0
    assert await objects.get("late") == b"late"
