"""The look of all plots, and what makes them the same bytes each time.

Rules
  1. matplotlib is imported inside functions only: no command that draws nothing pays for it.  No pyplot, no global figure.
  2. A user's matplotlibrc changes nothing: every figure is made and saved under matplotlib's defaults and `_STYLE`.
  3. SVG ids come from a fixed salt, and no file carries a date, so equal figures are equal bytes (of one matplotlib).
  4. Colours are those of Okabe and Ito (2008), told apart by all common kinds of colour blindness; series differ in marker or
     line style too, for print without colours.
  5. Legends stand outside the axes; a caption under the figure says what the caller has to warn of.
"""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from phoenix.cli.errors import USAGE, CliError
from phoenix.simulate.metrics import stretches
from phoenix.simulate.report import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
GREEN: Final = "#009E73"
VERMILION: Final = "#D55E00"
SKY: Final = "#56B4E9"
PURPLE: Final = "#CC79A7"
YELLOW: Final = "#F0E442"
BLACK: Final = "#000000"
GREY: Final = "#5A5A5A"
PALE: Final = "#ECECEC"
SERIES: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: Final = ("-", "--", "-.", ":")

WIDTH_IN: Final = 10.0  # the text width of a landscape page
_DPI: Final = 150
_CAPTION_COLUMNS: Final = 150  # characters of caption in a line of WIDTH_IN inches
_KEY_PT: Final = 48.0  # of a legend's entry: line, and the space around it
_LETTER_PT: Final = 5.6  # mean width at the legend's size
STEPS_MAX: Final = 4000  # changes that an area shows one by one; more would only make the file large
BINS: Final = 1000  # otherwise, means over this many intervals: finer than a printed line
_STYLE: Final[dict[str, Any]] = {
    "svg.hashsalt": "phoenix-simulate",
    "svg.fonttype": "path",  # the same glyphs wherever it is looked at
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Rule 2, for as long as a figure is made or saved."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams  # newer stubs name every key, older ones none
        parameters.update(_STYLE)
        yield


def canvas(rows: int, columns: int, *, height_in: float, caption: str, **options: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure with its axes in reading order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    if caption:
        lines = "\n".join(textwrap.wrap(caption, _CAPTION_COLUMNS))
        figure.supxlabel(lines, x=0.01, ha="left", fontsize=8, color=GREY)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def finish(figure: Figure, axes: Sequence[Axes], *, title: str) -> None:
    """Title and one legend above the axes, an entry a label, in the order of drawing; then everything gets its place for
    good: the layout would otherwise move a little with each drawing, and no two files would be equal."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    entries: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper left",
        ncols=_columns(list(entries)),
        handlelength=2.4,
        columnspacing=1.6,
        title=title,  # here, not as the figure's: the layout keeps room for the legend, and would put it over a title
        title_fontproperties={"size": 12.5, "weight": "bold"},
        alignment="left",
    )
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _columns(labels: Sequence[str]) -> int:
    """The most legend columns (filled from above) that fit the figure's width."""
    for count in range(len(labels), 1, -1):
        height = -(-len(labels) // count)
        columns = [labels[at : at + height] for at in range(0, len(labels), height)]
        if sum(_KEY_PT + _LETTER_PT * max(map(len, column)) for column in columns) <= WIDTH_IN * 72:
            return count
    return 1


def save(figure: Figure, path: Path) -> None:
    """SVG or PNG, as the name ends.  CliError for another ending, or if it cannot be written."""
    path = Path(path)
    form = path.suffix.lower().lstrip(".")
    if form not in ("svg", "png"):
        raise CliError(USAGE, f"{path} is no plot that can be made.", "End its name in .svg or .png.")
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format=form, dpi=_DPI, metadata=metadata)
    write_bytes(path, buffer.getvalue())


def whole_numbers(axis: Axis) -> None:
    """Ticks of a count: there is no half job."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def thousands(value: float, _place: object = None) -> str:
    """A tick as `2,650` or `0.65`."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


# -------------------------------------------------------------------------------------------------------------------- time


def time_unit(window_s: float) -> tuple[float, str]:
    """(seconds of the unit, its name) that suit a time axis so long."""
    if window_s > 3 * 86400:
        return 86400.0, "days"
    if window_s > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if window_s > 300 else (1.0, "seconds")


def time_axis(axes: Axes, since_s: float, until_s: float) -> float:
    """Label and limits of the x axis; returns the seconds of its unit."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    unit_s, name = time_unit(until_s - since_s)
    length = (until_s - since_s) / unit_s
    axes.set_xlim(since_s / unit_s, until_s / unit_s)
    if name == "days" and length <= 21:
        axes.xaxis.set_major_locator(MultipleLocator(1))
    elif name == "hours":
        axes.xaxis.set_major_locator(MultipleLocator(1 if length <= 16 else 3 if length <= 36 else 6))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(14, integer=True))
    axes.set_xlabel(f"time since the beginning ({name})")
    return unit_s


def steps(rows: Sequence[tuple[float, float]], until_s: float) -> tuple[list[float], list[float]]:
    """Times and levels of a line with `drawstyle="steps-post"` that ends at `until_s`."""
    shown = list(stretches(rows, until_s))
    times = [since for since, _, _ in shown]
    levels = [float(level) for _, _, level in shown]
    return ([*times, until_s], [*levels, levels[-1]]) if shown else ([], [])


def means(rows: Sequence[tuple[float, float]], edges: Sequence[float]) -> list[float]:
    """The mean level in each interval of the rising `edges`, from the first on."""
    sums, at = [0.0] * (len(edges) - 1), 0
    for since, until, level in stretches(rows, edges[-1]):
        while at < len(sums) and edges[at + 1] <= since:
            at += 1
        place = at
        while place < len(sums) and edges[place] < until:
            sums[place] += max(0.0, min(until, edges[place + 1]) - max(since, edges[place])) * level
            place += 1
    return [total / (later - earlier) for total, earlier, later in zip(sums, edges, edges[1:], strict=False)]


def edges_of(series: Sequence[Sequence[tuple[float, float]]], until_s: float) -> list[float]:
    """Where a stacked area has its steps: at every change, or, if these are many, at `BINS` equal intervals."""
    changes = sorted({0.0, until_s, *(at for rows in series for at, _ in rows if 0.0 < at < until_s)})
    if len(changes) <= STEPS_MAX:
        return changes
    return [until_s * place / BINS for place in range(BINS + 1)]
