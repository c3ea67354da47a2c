"""Which point is tried next: the whole grid, points drawn at random, or what Optuna asks for.

Rules
  1. Scores are all to be small (a goal of the most is its negative); `over` has for each limit how far it is missed, at most
     0 where it is kept.  A point without scores could not be evaluated.
  2. Everything follows from the seed and from the known trials; to continue a file of trials, pass those first.
  3. Optuna (an optional package) models goals and limits together, by a tree-structured Parzen estimator; several workers get
     different points.  It is imported when it is asked for.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, Protocol

from phoenix.search.space import Axis, Point, Space, grid, key, sample, size

UNSCORED: Final = 1e18  # of what has no value: worse than anything that is measured
_NO_POINT: Final = 1000  # known points in a row, drawn at random: there are hardly others
_REPEATS: Final = 20  # points in a row that Optuna asks for again: after that one is drawn


class Chooser(Protocol):
    """`about` completes the sentence "N trials, …"."""

    about: str

    def ask(self, given: Point) -> Point | None:
        """The next point, perhaps one that was there before; None: there is no other.  `given`: values of some axes that it
        is to have, unless the whole grid is wanted."""
        ...

    def tell(self, point: Point, scores: Sequence[float] | None, over: Sequence[float]) -> None:
        """Rule 1."""
        ...


def chooser(space: Space, scores: int, limits: int, seed: int, most: int) -> Chooser:
    """The grid if it has no more than `most` points, else Optuna if it is installed, else random points."""
    count = size(space, most)
    if count is not None and count <= most:
        return Grid(space, count, seed)
    if importlib.util.find_spec("optuna") is None:
        return Drawn(space, seed)
    return Modelled(space, scores, limits, seed)


def new_points(
    chosen: Chooser, space: Space, seed: int, known: set[str], given: Callable[[], Point] = dict
) -> Iterator[Point]:
    """Points that are not `known` (by `key`), each of which is added to them.  `given`: what the next one is to have."""
    spare = Drawn(space, seed + 1)
    repeats = 0
    while repeats <= _NO_POINT:
        asked = (spare if repeats >= _REPEATS and isinstance(chosen, Modelled) else chosen).ask(given())
        if asked is None:
            return
        if key(asked) in known:
            repeats += not isinstance(chosen, Grid)
            chosen.tell(asked, None, ())
            continue
        repeats = 0
        known.add(key(asked))
        yield asked


class Grid:
    """Every point, in an order drawn from the seed: a search that is ended early has looked everywhere a little."""

    def __init__(self, space: Space, count: int, seed: int) -> None:
        self.about = f"all of the {count:,} points of the space"
        points = list(grid(space))
        Random(seed).shuffle(points)  # noqa: S311  no secret
        self._points = iter(points)

    def ask(self, given: Point) -> Point | None:
        del given  # it comes anyway
        return next(self._points, None)

    def tell(self, point: Point, scores: Sequence[float] | None, over: Sequence[float]) -> None:
        """Nothing follows from it."""


class Drawn:
    """Points drawn at random."""

    def __init__(self, space: Space, seed: int) -> None:
        self.about = (
            "drawn at random; with Optuna (pip install 'phoenix-cloud[tune]') they would follow from each other"
        )
        self._space, self._random = space, Random(seed)  # noqa: S311  no secret

    def ask(self, given: Point) -> Point | None:
        return sample(self._space, self._random, given)

    def tell(self, point: Point, scores: Sequence[float] | None, over: Sequence[float]) -> None:
        """Nothing follows from it."""


class Modelled:
    """Rule 3."""

    def __init__(self, space: Space, scores: int, limits: int, seed: int) -> None:
        import optuna

        self.about = f"chosen by Optuna {optuna.__version__}"
        self._optuna, self._space = optuna, space
        self._asked: dict[str, Any] = {}  # points under way -> Optuna's trial
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some of its options may change
            self._sampler = optuna.samplers.TPESampler(
                seed=seed,
                multivariate=True,
                group=True,
                constant_liar=True,
                constraints_func=_over if limits else None,
            )
            self._study = optuna.create_study(directions=["minimize"] * scores, sampler=self._sampler)

    def ask(self, given: Point) -> Point | None:
        named = {axis.name: _named(axis, given[axis.name]) for axis in self._space.axes if axis.name in given}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.sampler = (
                self._optuna.samplers.PartialFixedSampler(named, self._sampler) if named else self._sampler
            )
        trial = self._study.ask()
        point: Point = {}
        for axis in self._space.axes:
            if axis.counts_at(point):
                point[axis.name] = _suggested(trial, axis)
        if (before := self._asked.pop(key(point), None)) is not None:  # asked for twice at once
            self._study.tell(before, state=self._optuna.trial.TrialState.FAIL)
        self._asked[key(point)] = trial
        return point

    def tell(self, point: Point, scores: Sequence[float] | None, over: Sequence[float]) -> None:
        trial = self._asked.pop(key(point), None)
        if scores is None:
            if trial is not None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            return
        if trial is None:  # of an earlier search: it gets what it would have asked for
            self._study.enqueue_trial({axis.name: _named(axis, point[axis.name]) for axis in self._axes(point)})
            self.ask({})
            trial = self._asked.pop(key(point))
        trial.set_user_attr("over", list(over))
        self._study.tell(trial, [each if math.isfinite(each) else UNSCORED for each in scores])

    def _axes(self, point: Point) -> list[Axis]:
        return [axis for axis in self._space.axes if axis.name in point]


def _over(trial: Any) -> Sequence[float]:
    return trial.user_attrs.get("over", ())  # type: ignore[no-any-return]


def _suggested(trial: Any, axis: Axis) -> Any:
    if axis.choices:
        names = [key({"": value}) for value in axis.choices]
        return axis.choices[names.index(trial.suggest_categorical(axis.name, names))]
    if axis.whole:
        return trial.suggest_int(axis.name, axis.low, axis.high, step=int(axis.step or 1), log=axis.log)
    found = trial.suggest_float(axis.name, axis.low, axis.high, step=axis.step, log=axis.log)
    return round(found, 12) if axis.step else found


def _named(axis: Axis, value: Any) -> Any:
    """The value as Optuna has it."""
    return key({"": value}) if axis.choices else value
