"""HAProxy's configuration for a department, from one template: for a site (`deploy/haproxy/haproxy.cfg` is that text) and for
an embedded cloud.

    .venv/bin/python -m phoenix.haproxy.configuration > deploy/haproxy/haproxy.cfg

The template's own comments explain each line.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from phoenix.haproxy.settings import HEALTH_MAP
from schemas.releases import CONNECTIONS_COMMAND

SLOTS_PREFIX: Final = "phoenix"
SLOTS_DEFAULT: Final = 64
SLOTS_MAX: Final = 4096  # HAProxy does not mind (6 KiB each), but a look at 1000 takes the agent 16 ms
STATE_EMPTY: Final = "1\n"  # a state file without servers: the version of its format
_LISTEN: Final = re.compile(r'[A-Za-z0-9_.:*\[\]-]*:[0-9]{1,5}|"\$\{[A-Z_]+\}"')
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._~-]+\Z")  # goes into HAProxy's configuration as one word
_SITE: Final = "For your site: change any path and number here that does not fit."
_EMBEDDED: Final = "Written by a program at each start: changes here do not last."


class ConfigurationError(ValueError):
    """A value that HAProxy's configuration cannot hold; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """One HAProxy for one department.  `health_map`: the file of the map from servers to health paths.  `owner`: the user and
    group that HAProxy becomes and that owns the socket; None: the user that starts it.  `server_maxconn`: requests that an
    instance works on at once, until the agent says otherwise.  `queue_s`, `waiting_each`: how long a request waits
    for a server with room, and how many for each that is worked on.  `wait_s`: how long while there is no server at all."""

    department: str
    listen: str  # HOST:PORT; or "${NAME}", quoted: that variable has listening sockets, as fd@5,fd@9
    socket: Path
    state_file: Path
    lua_file: Path
    health_map: Path
    backend: str = "web"
    slots: int = SLOTS_DEFAULT
    server_maxconn: int = CONNECTIONS_COMMAND
    queue_s: int = 8
    waiting_each: int = 15
    wait_s: int = 10
    old_process_s: int = 30
    owner: tuple[str, str] | None = None


def site() -> Front:
    """What `deploy/haproxy` has: Debian's user and directories."""
    return Front(
        department="web",
        listen=":80",
        socket=Path("/run/haproxy/phoenix.sock"),
        state_file=Path("/run/haproxy/phoenix.state"),
        lua_file=Path("/etc/haproxy/phoenix-wait.lua"),
        health_map=Path(HEALTH_MAP),
        owner=("haproxy", "haproxy"),
    )


def render(front: Front) -> str:
    """The text of haproxy.cfg.  Raises `ConfigurationError`."""
    _check(front)
    owned = front.owner is not None
    user, group = front.owner or ("", "")
    return Template(_text("haproxy.cfg.template")).substitute(
        department=front.department,
        origin=_SITE if owned else _EMBEDDED,
        # In the foreground HAProxy writes what happens to its servers to standard error anyway.
        log="    log /dev/log local0\n" if owned else "",
        identity=f"    chroot /var/lib/haproxy\n    user {user}\n    group {group}\n" if owned else "",
        # A line a request is what an operator wants; an embedded cloud would drown in it.
        logging="    log global\n    option httplog\n    option dontlognull\n" if owned else "",
        socket=front.socket,
        socket_owner=f" user {user} group {group}" if owned else "",
        state_file=front.state_file,
        lua_file=front.lua_file,
        listen=front.listen,
        backend=front.backend,
        health_map=front.health_map,
        slots_prefix=SLOTS_PREFIX,
        slots=front.slots,
        server_maxconn=front.server_maxconn,
        queue_s=front.queue_s,
        waiting_each=front.waiting_each,
        wait_s=front.wait_s,
        old_process_s=front.old_process_s,
    )


def wait_lua() -> str:
    """The text of the Lua file that `lua_file` names."""
    return _text("wait.lua")


def write(front: Front, config: Path) -> None:
    """The configuration, the Lua file, empty state and map, for a start.  Raises `ConfigurationError`, OSError."""
    config.write_text(render(front), encoding="utf-8")
    front.lua_file.write_text(wait_lua(), encoding="utf-8")
    front.state_file.write_text(STATE_EMPTY, encoding="utf-8")
    front.health_map.write_text("", encoding="utf-8")


def _text(name: str) -> str:
    return (files("phoenix.haproxy") / name).read_text(encoding="utf-8")


def _check(front: Front) -> None:
    """What would become more than one word, or another directive."""
    for name in ("department", "backend", "socket", "state_file", "lua_file", "health_map"):
        value = str(getattr(front, name))
        if not _PLAIN.match(value):
            raise ConfigurationError(
                f"{name} is {value!r}: HAProxy's configuration takes letters, digits and / . _ ~ - only"
            )
    if not _LISTEN.fullmatch(front.listen):
        raise ConfigurationError(f"listen is {front.listen!r}: it must be HOST:PORT")
    if not 1 <= front.slots <= SLOTS_MAX:
        raise ConfigurationError(f"slots is {front.slots}: it must be from 1 to {SLOTS_MAX}")


if __name__ == "__main__":
    sys.stdout.write(render(site()))
