"""Ports of an embedded cloud: chosen once, kept across restarts where they are still free.

Rules
  1. A port is claimed (`port_claims`) until `release` or the end of the process.
  2. A kept port that another process has meanwhile is chosen again; the new one is kept.
  3. A listening socket of ours is the supervisor's, which gives it to the process (`supervisor_child`); but nats-server takes
     none.  As root it has a port that only root may take, so that no job receives its requests while it restarts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import orjson

from phoenix.local.network.namespace import JobsNetwork
from phoenix.local.port_claims import KEPT, RESERVED, Claim, NoPortError, choose, claimed, is_free, is_roots
from phoenix.local.stack_layout import write_private

ROOTS: Final = ("nats",)  # rule 3


class Ports:
    """Ports by name."""

    def __init__(self, path: Path, host: str = "127.0.0.1") -> None:
        self._path = path
        self._host = host
        self._kept = _read(path)
        self._given: dict[str, int] = {}
        self._claims: list[Claim] = []
        self.network: JobsNetwork | None = None  # of jobs: one of them may listen there, too

    def of(self, name: str) -> int:
        """The port of `name`: the kept one if it is free, else another.  Raises `NoPortError`."""
        if name not in self._given:
            kept, roots = self._kept.get(name), name in ROOTS and is_roots(RESERVED[-1]) and os.geteuid() == 0
            fits = kept is not None and kept not in self._given.values() and (not roots or is_roots(kept))
            self._given[name] = kept if fits and kept is not None and self._claim(kept) else self._choose(roots)
        return self._given[name]

    def is_ours(self, port: int | None) -> bool:
        """True if this cloud has once chosen that port itself."""
        return port in self._kept.values() or port in self._given.values()

    def save(self) -> None:
        self._kept |= self._given
        write_private(self._path, orjson.dumps(self._kept, option=orjson.OPT_INDENT_2))

    def _choose(self, roots: bool) -> int:
        """Where all of `RESERVED` are taken, by other clouds, it is another port; the supervisor tells of it."""
        ranges: list[Sequence[int]] = [RESERVED, KEPT] if roots else [KEPT]
        while True:
            try:
                taken = {*self._kept.values(), *self._given.values()}
                port, claim = choose(ranges.pop(0), self._host, taken, self._is_free)
            except NoPortError:
                if not ranges:
                    raise
                continue
            self._claims.append(claim)
            return port

    def _claim(self, port: int) -> bool:
        """True if the port is ours now."""
        claim = claimed(port, self._host, self._is_free)
        if claim is not None:
            self._claims.append(claim)
        return claim is not None

    def _is_free(self, port: int, host: str) -> bool:
        if not is_free(port, host):
            return False
        if self.network is None:
            return True
        with self.network.inside():
            return is_free(port, host)

    def release(self) -> None:
        """Give up every claim: the listeners have gone."""
        while self._claims:
            self._claims.pop().close()


def _read(path: Path) -> dict[str, int]:
    """A damaged file counts as none: ports are chosen again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Annotated[int, msgspec.Meta(ge=1, le=65535)]])
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
