"""The reference of the interfaces as pages: which files they are, what they may load, and what is there without Redoc."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import AsyncIterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from schemas import generate
from services.admission.http import openapi
from services.monitor.http import api_pages, page_files
from tests.support.page import House

URL = "http://door.test:7480"


@pytest.fixture
def redoc(tmp_path: Path) -> Path:
    """A package of npm that is longer than what is sent at once."""
    place = tmp_path / "redoc"
    (place / "bundles").mkdir(parents=True)
    (place / "bundles" / api_pages.BUNDLE).write_bytes(b"export const init = 1;" * 10_000)
    (place / "LICENSE").write_text("The licence of Redoc")
    return place


@pytest.fixture
async def house(tmp_path: Path, redoc: Path) -> AsyncIterator[House]:
    house = House(tmp_path, more=lambda _access: api_pages.routes(URL, redoc))
    await house.start()
    yield house
    await house.close()


@pytest.mark.parametrize("name", ["", *api_pages.files(Path("/nowhere"))])
async def test_every_file_has_the_policy_of_the_page_and_needs_no_token(house: House, name: str) -> None:
    answer = await house.answer(f"/api/{name}")
    assert answer.status == 200
    given = {key: answer.headers[key] for key in page_files.HEADERS}
    assert given == {**page_files.HEADERS, "Cache-Control": "no-cache"}
    assert answer.content_type == api_pages.TYPES[Path(name or "index.html").suffix]
    assert await answer.read()


async def test_the_bundle_is_sent_whole_and_again_only_when_it_has_changed(house: House, redoc: Path) -> None:
    bundle = redoc / "bundles" / api_pages.BUNDLE
    answer = await house.answer(f"/api/{api_pages.BUNDLE}")
    assert await answer.read() == bundle.read_bytes()
    again = await house.answer(f"/api/{api_pages.BUNDLE}", If_None_Match=answer.headers["ETag"])
    assert (again.status, await again.read()) == (304, b"")
    assert again.headers["Content-Security-Policy"] == page_files.POLICY
    bundle.write_text("another")
    assert (
        await (await house.answer(f"/api/{api_pages.BUNDLE}", If_None_Match=answer.headers["ETag"])).read()
        == b"another"
    )
    head = await house.client.head(f"/api/{api_pages.BUNDLE}")
    assert (head.status, head.headers["Content-Length"], await head.read()) == (200, "7", b"")
    licence = await house.answer(f"/api/{api_pages.LICENCE}")
    assert await licence.text() == "The licence of Redoc"


async def test_the_documents_are_the_kept_ones_with_the_address_of_the_interface(house: House) -> None:
    told = await (await house.answer("/api/openapi.json")).json()
    assert told.pop("servers")[0]["url"] == URL
    expected = json.loads(openapi.document())
    del expected["servers"]
    assert told == expected
    assert await (await house.answer("/api/asyncapi.json")).text() == generate.render(
        generate.documents()["asyncapi.json"]
    )


async def test_the_address_without_a_slash_leads_to_the_pages(house: House) -> None:
    answer = await house.client.get("/api", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (308, "api/")


@pytest.mark.parametrize("path", ["/api/plain.js", "/api/../edge.py", "/api/%2e%2e/edge.py", "/api/index.html/x"])
async def test_no_path_leads_to_another_file(house: House, path: str) -> None:
    assert await house.get(path) == 404


async def test_a_site_whose_name_leads_here_reads_nothing(house: House) -> None:
    assert await house.get("/api/", Host="evil.test:7481") == 421


def test_where_redoc_is_missing_the_plain_list_stands_in_for_it(tmp_path: Path, redoc: Path) -> None:
    without, with_it = api_pages.files(tmp_path), api_pages.files(redoc)
    assert without[api_pages.BUNDLE].name == api_pages.PLAIN
    assert api_pages.LICENCE not in without
    assert with_it[api_pages.BUNDLE] == redoc / "bundles" / api_pages.BUNDLE
    assert with_it[api_pages.LICENCE] == redoc / "LICENSE"
    assert {*with_it} - {*without} == {api_pages.LICENCE}


def test_written_as_files_the_pages_have_all_that_they_load(tmp_path: Path, redoc: Path) -> None:
    written = api_pages.write(tmp_path / "site", redoc)
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == written
    loaded = {
        name
        for page in ("index.html", "messages.html")
        for name in re.findall(r'(?:src|href|data-document)="([^"]+)"', (tmp_path / "site" / page).read_text())
    }
    assert loaded <= {*written}
    assert {"openapi.json", "asyncapi.json", "start.js", "confine.js", api_pages.LICENCE} <= loaded
    assert json.loads((tmp_path / "site" / "openapi.json").read_text()) == json.loads(openapi.document())


def test_every_file_of_the_pages_is_installed() -> None:
    project = tomllib.loads((api_pages.PARTS / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    ours = [path.name for path in api_pages.DIRECTORY.iterdir() if not path.name.startswith("redoc.")]
    assert [name for name in ours if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_an_installation_without_the_pages_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_pages, "DIRECTORY", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"index\.html is not there"):
        api_pages.routes(URL)
