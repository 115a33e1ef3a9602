"""Plots of named rows: each with its name above its points, so that they fit a narrow page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jobs.report.drawing import SOFT, draw, label, legend_below, style

NAME_IN, SERIES_IN, GAP_IN, AXIS_IN, LEGEND_IN = 0.2, 0.16, 0.15, 0.75, 0.21
"""Inches of a row's name, of a point, between rows, of the axis, and of a line of the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A figure in a row.

    Attributes:
        value: The figure; None draws `mark` in its place.
        interval: Its ends, or None.
        mark: Why there is no figure.
        open: Whether its marker is hollow.
    """

    value: float | None
    interval: Sequence[float] | None = None
    mark: str = ""
    open: bool = False

    @property
    def text(self) -> str:
        """For who does not see it."""
        if self.value is None:
            return self.mark or "nothing"
        ends = self.interval and f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"
        return f"{self.value:.3f}{ends or ''}"


Rows = Mapping[str, Sequence[Point | None]]
"""By the row's name a point for each series; None draws nothing."""


def row_plot(
    name: str,
    rows: Rows,
    series: Sequence[str],
    xlabel: str,
    *,
    span: tuple[float, float] | None = (0, 1),
    zero: bool = False,
) -> Markup:
    """Points with intervals, one row a name.

    Args:
        name: The drawing's, for ids.
        rows: The rows from above.
        series: Names of the points of each row; a legend tells them where there are several.
        xlabel: What the figures are.
        span: Ends of the axis; None takes those of the figures.
        zero: Whether a line marks nought.
    """
    height = NAME_IN + SERIES_IN * len(series) + GAP_IN
    named = len(series) > 1

    def fill(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (row, points) in enumerate(rows.items()):
            top = -number * height
            place = axes.get_yaxis_transform()
            axes.text(0, top - NAME_IN / 2, label(row), va="center", transform=place)
            for index, point in enumerate(points):
                if point is not None:
                    at = top - NAME_IN - SERIES_IN * (index + 0.5)
                    _draw(axes, at, point, style(index))
        if named:
            for index, title in enumerate(series):
                axes.plot([], [], ls="", label=label(title), **style(index))
            legend_below(figure, axes)
        axes.set(ylim=(-height * len(rows), 0.02), yticks=[], xlabel=label(xlabel))
        if span:
            axes.set_xlim(*span)
        if zero:
            axes.axvline(0, color=SOFT, lw=0.8)
        axes.grid(axis="x")

    legend = LEGEND_IN * len(series) if named else 0.0
    return draw(name, height * len(rows) + AXIS_IN + legend, fill)


def told(rows: Rows, series: Sequence[str]) -> str:
    """All figures of a plot, in words."""
    said = []
    for row, points in rows.items():
        pairs = [
            f"{title} {point.text}" if len(series) > 1 else point.text
            for title, point in zip(series, points, strict=True)
            if point is not None
        ]
        said.append(f"{row}: {', '.join(pairs) or 'nothing'}")
    return "; ".join(said)


def _draw(axes: Axes, at: float, point: Point, how: Mapping[str, Any]) -> None:
    if point.value is None:
        place = axes.get_yaxis_transform()
        axes.text(0.03, at, label(point.mark), color=SOFT, va="center", transform=place)
        return
    if point.interval is not None:
        axes.plot(point.interval, [at, at], color=how["color"], lw=1.4, solid_capstyle="butt")
    face: dict[str, Any] = {"mfc": "none"} if point.open else {}
    axes.plot([point.value], [at], ls="", clip_on=False, zorder=3, **how, **face)
