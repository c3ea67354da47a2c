"""The reference of the public interfaces as pages, below `/api/`: OpenAPI and AsyncAPI, drawn by Redoc in the browser.

    python -m services.monitor.http.api_pages docs/api       the same as files, for any web server

Rules
  1. The pages have the policy of the page (`page_files.HEADERS`), whole: `confine.js` keeps Redoc within it.
  2. They need no token, as the documents have none: nothing in them is of the cloud but the address of its HTTP interface,
     which the server writes into `openapi.json`.
  3. Redoc's bundle is in a wheel; in a checkout it is where `deploy/tools.sh redoc` puts it.  Where there is none, `plain.js`
     stands in for it and lists the operations.
  4. A request names one of the files exactly.  Nothing is kept in memory, and of a large file each connection holds one part,
     however slowly it is read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from services.monitor.http import page_files

DIRECTORY: Final = Path(__file__).parent / "api"
BUNDLE: Final = "redoc.standalone.js"
LICENCE: Final = "redoc.LICENSE.txt"
INDEX: Final = "index.html"
PLAIN: Final = "plain.js"
OPENAPI: Final = "openapi.json"
PARTS: Final = Path(__file__).parents[3]  # of the checkout or the installation
DOCUMENTS: Final = {
    OPENAPI: PARTS / "services" / "admission" / "http" / OPENAPI,  # a file of admission's, which imports nothing of it
    "asyncapi.json": PARTS / "schemas" / "asyncapi.json",
}
REDOC: Final = PARTS / ".tools" / "redoc" / "node_modules" / "redoc"
TYPES: Final = {**page_files.TYPES, ".json": "application/json", ".txt": "text/plain"}
HEADERS: Final = {**page_files.HEADERS, "Cache-Control": "no-cache"}
CHUNK_BYTES: Final = 64 << 10
CHUNK_S: Final = 60.0  # for the next part to be taken: as the server allows (`UNREAD_S`)


def files(redoc: Path = REDOC) -> dict[str, Path]:
    """Name -> file, of all that the pages load.  FileNotFoundError if the pages are not there: the installation lacks them.

    `redoc`: the package of npm, in a checkout.
    """
    if not (DIRECTORY / INDEX).is_file():
        raise FileNotFoundError(f"{DIRECTORY / INDEX} is not there: install the package with its data")
    found = {path.name: path for path in sorted(DIRECTORY.iterdir()) if path.suffix in TYPES and path.name != PLAIN}
    found |= {**DOCUMENTS, "icon.svg": page_files.DIRECTORY / "icon.svg"}
    if BUNDLE in found:
        return found
    if (redoc / "bundles" / BUNDLE).is_file():
        return {**found, BUNDLE: redoc / "bundles" / BUNDLE, LICENCE: redoc / "LICENSE"}
    return {**found, BUNDLE: DIRECTORY / PLAIN}


def routes(url: str, redoc: Path = REDOC) -> list[web.RouteDef]:
    """A route for each file, and `/api/` for the first page.  `url`: of the HTTP interface (`[http] url`)."""
    served = {name: _file(name, path) for name, path in files(redoc).items()}
    served[OPENAPI] = _document(DOCUMENTS[OPENAPI], url)
    named = [web.get(f"/api/{name}", handler) for name, handler in served.items()]
    return [web.get("/api", _moved), web.get("/api/", served[INDEX]), *named]


async def _moved(_request: web.Request) -> web.Response:
    """Addresses in the pages are relative."""
    return web.Response(status=308, headers={**HEADERS, "Location": "api/"})


def _at(path: Path, url: str) -> bytes:
    """The OpenAPI document with the server's address."""
    servers = [{"url": url, "description": "The HTTP interface of this cloud."}]
    return orjson.dumps({**orjson.loads(path.read_bytes()), "servers": servers})


def _tag(path: Path) -> tuple[str, int]:
    """What changes when the file does, and its size."""
    found = path.stat()
    return f'"{found.st_mtime_ns:x}-{found.st_size:x}"', found.st_size


def _document(path: Path, url: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def serve(_request: web.Request) -> web.Response:
        return web.Response(body=_at(path, url), content_type="application/json", headers=HEADERS)

    return serve


def _file(name: str, path: Path) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Rule 4."""
    kind = TYPES[Path(name).suffix]

    async def serve(request: web.Request) -> web.StreamResponse:
        tag, size = _tag(path)
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={**HEADERS, "ETag": tag})
        answer = web.StreamResponse(headers={**HEADERS, "ETag": tag})
        answer.content_type, answer.content_length = kind, size
        answer.charset = None if kind.startswith("image/") else "utf-8"
        await answer.prepare(request)
        if request.method != "HEAD":
            await _send(path, answer)
        await answer.write_eof()
        return answer

    return serve


async def _send(path: Path, answer: web.StreamResponse) -> None:
    with path.open("rb") as file:  # a part at a time, of a file that is in the system's cache
        while part := file.read(CHUNK_BYTES):
            async with asyncio.timeout(CHUNK_S):
                await answer.write(part)


def write(directory: Path, redoc: Path = REDOC) -> list[str]:
    """The files of the pages into `directory`; their names."""
    directory.mkdir(parents=True, exist_ok=True)
    found = files(redoc)
    for name, path in found.items():
        (directory / name).write_bytes(path.read_bytes())
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(write(Path(sys.argv[1]))))
