"""A wheel has all that the pages of the interfaces load, Redoc's bundle and licence too; installed, it serves them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.sync_api import sync_playwright

from phoenix.local.programs import CHECKOUT
from services.monitor.http import api_pages
from tests.integration.up_cloud import until
from tests.support.ports import free_port
from tests.support.reference import Reference
from tests.support.tools import packages, tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "deploy")
PACKAGES = ("services", "schemas", "phoenix", "phoenix_papers")
PAGES = "services/monitor/http/api/"
SERVER = """import sys
from aiohttp import web
from services.monitor.http import api_pages
app = web.Application()
app.add_routes(api_pages.routes("http://door.test:7480"))
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


def copied(place: Path, redoc: bool = True) -> Path:
    """The sources, in which a build may leave what it likes."""
    for name in (*SOURCES, *PACKAGES):
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(exist_ok=True)
            shutil.copy(source, place / name)
    if redoc:
        (place / ".tools").symlink_to(packages("redoc").parents[1])
    return place


def built(sources: Path, into: Path, **environment: str) -> tuple[Path, str]:
    """The wheel, and what building it printed."""
    words = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", into, sources]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=300, check=False, env={"PATH": "/usr/bin:/bin", **environment}
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = into.glob("*.whl")
    return wheel, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    return built(copied(place / "sources"), place / "made")[0]


def test_it_has_the_bundle_as_npm_has_it_with_its_licence_and_every_file_of_the_pages(wheel: Path) -> None:
    redoc = packages("redoc") / "redoc"
    with ZipFile(wheel) as made:
        assert made.read(PAGES + api_pages.BUNDLE) == (redoc / "bundles" / api_pages.BUNDLE).read_bytes()
        assert made.read(PAGES + api_pages.LICENCE) == (redoc / "LICENSE").read_bytes()
        names = set(made.namelist())
    assert {PAGES + path.name for path in api_pages.DIRECTORY.iterdir()} <= names
    assert {"services/admission/http/openapi.json", "schemas/asyncapi.json"} <= names


def test_where_npm_has_nothing_it_is_built_without_the_bundle_and_says_so(tmp_path: Path) -> None:
    nowhere = {"npm_config_registry": f"http://127.0.0.1:{free_port()}", "npm_config_fetch_retries": "0"}
    wheel, said = built(copied(tmp_path / "sources", redoc=False), tmp_path / "made", **nowhere)
    assert "this wheel lacks Redoc" in said
    with ZipFile(wheel) as made:
        assert PAGES + api_pages.PLAIN in made.namelist()
        assert PAGES + api_pages.BUNDLE not in made.namelist()


@pytest.fixture
def address(wheel: Path, tmp_path: Path) -> Iterator[str]:
    """Of a server of a fresh environment: the wheel, and the libraries that this one has."""
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    words = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, wheel]
    subprocess.run(words, check=True, capture_output=True, timeout=200)
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    port = free_port()
    server = subprocess.Popen([tmp_path / "venv" / "bin" / "python", "-c", SERVER, str(port)], cwd=tmp_path)
    try:
        yield f"http://127.0.0.1:{port}/api/"
    finally:
        server.kill()
        server.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def test_the_pages_work_where_it_is_installed(address: str) -> None:
    until(lambda: answers(address), "the server does not answer")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
        for name in ("index.html", "messages.html"):
            reference = Reference(browser, address + name, 1280)
            assert len(reference.groups()) > 5
            assert reference.complaints == []
        browser.close()
