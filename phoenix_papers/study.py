"""What a sweep of an experiment is judged by (`Study`), and what it has found (`Region`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from phoenix.plugin.simulation import Point, Space, Verdict, verdict

Measures = Mapping[str, Sequence[float]]  # of a point: each measure's value for each seed


class Claim(NamedTuple):
    """`kept`: of one seed's measures, at least 0 if the claim holds."""

    head: str
    text: str
    kept: Callable[[Mapping[str, float]], float]


class Told(NamedTuple):
    """A figure that the source tells beside its claim, and the band that counts as agreeing."""

    text: str
    measure: str
    least: float
    most: float


class Column(NamedTuple):
    head: str
    measure: str
    digits: int = 0


class Study(NamedTuple):
    """`stated`: parameters that the source states, and how; `measure`: what a point and a seed give."""

    name: str
    parameters: type[msgspec.Struct]
    stated: Mapping[str, str]
    measure: Callable[[Mapping[str, Any], int], dict[str, float]]
    columns: Sequence[Column]
    claims: Sequence[Claim]
    told: Sequence[Told]
    level: Callable[[Row], float]  # what the map's colours show
    level_label: str
    inputs: str = ""  # a digest of what it reads beside the space


class Row(NamedTuple):
    """A point that has been run."""

    point: Point
    measures: Measures
    differences: tuple[list[float], ...]  # of each claim, by seed
    agrees: tuple[bool, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(verdict(each) for each in self.differences)


class Region(NamedTuple):
    study: Study
    space: Space
    rows: Sequence[Row]
    total: int
    seeds: int
