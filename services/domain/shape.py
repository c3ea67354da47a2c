"""What a unit needs of hosts: how many of them, and how much of each."""

from __future__ import annotations

from typing import NamedTuple

from schemas.size import Size


class Shape(NamedTuple):
    """`nodes` different hosts, `size` on each of them; `exclusive`: hosts that are otherwise empty; `constraint`: hosts with
    these labels (`domain.constraints`); empty: any."""

    nodes: int
    size: Size
    exclusive: bool = False
    constraint: str = ""

    @property
    def all(self) -> Size:
        """On all its nodes together."""
        return self.size.times(self.nodes)
