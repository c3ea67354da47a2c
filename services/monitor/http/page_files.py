"""The page's files: HTML, style and scripts, served from memory.

Rules
  1. The files are read once, at the start; a request names one of them exactly, so no path leads anywhere else.
  2. The page loads nothing from elsewhere and runs nothing that is not a file here (`POLICY`); no site may frame it.
  3. They need no token: they contain nothing of the cloud.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

DIRECTORY: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
POLICY: Final = "default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; form-action 'self'"
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def routes(directory: Path = DIRECTORY) -> list[web.RouteDef]:
    """A route for each file, and `/` for the page itself.  FileNotFoundError if it is not there: the installation lacks it."""
    files = {path.name: path for path in sorted(directory.iterdir()) if path.suffix in TYPES}
    if INDEX not in files:
        raise FileNotFoundError(f"{directory / INDEX} is not there: install the package with its data")
    served = [web.get(f"/{name}", _handler(path)) for name, path in files.items()]
    return [web.get("/", _handler(files[INDEX])), *served]


def _handler(path: Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    body, kind = path.read_bytes(), TYPES[path.suffix]
    charset = None if kind.startswith("image/") else "utf-8"

    async def serve(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset=charset, headers=HEADERS)

    return serve
