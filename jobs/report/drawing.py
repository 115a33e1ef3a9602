"""How plots are drawn: SVG, the same each time, in colours and type of the page around it."""

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN = 5.0
"""Inches, 360 points: on a telephone a point of type is about a pixel."""
INK, SOFT, FAINT = "#010101", "#020202", "#030303"
SERIES = ("#040404", "#050505", "#060606", "#070707", "#080808", "#090909")
"""Stand for colours of the page, which has one set for light and one for dark."""
MARKERS = ("o", "s", "D", "^", "v", "P")

_COLOURS = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    FAINT: "var(--line)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
}
_RC: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and selected
    "text.parse_math": False,  # a dollar in a name is a dollar
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.left": False,
    "text.color": INK,
    "grid.color": FAINT,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "legend.borderpad": 0,
    "lines.markersize": 6,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot, or why there is none.

    Attributes:
        title: What it shows.
        place: Of which benchmark and backbone, or judge.
        caption: How to read it.
        alt: What one who does not see it should know.
        svg: The drawing; None where there is nothing to draw.
        absent: Why there is none.
    """

    title: str
    place: str = ""
    caption: str = ""
    alt: str = ""
    svg: Markup | None = None
    absent: str = ""


def draw(name: str, height_in: float, fill: Callable[[Figure], None]) -> Markup:
    """A drawing as an `svg` element; the same name and content give the same bytes.

    Args:
        name: Told to no reader: parts the ids of one drawing from another's on one page.
        height_in: Height in inches; the width is the same for all.
        fill: Puts everything into the figure.
    """
    file = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_RC, "svg.hashsalt": name})
        # A letter that the measuring font lacks: the browser, which sets the text, has it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        fill(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return _inline(file.getvalue(), name)


def style(number: int) -> dict[str, Any]:
    """Colour and marker of a series: twelve that differ, by shape where not by colour."""
    colour = SERIES[number % len(SERIES)]
    marker = MARKERS[(number + number // len(SERIES)) % len(MARKERS)]
    return {"color": colour, "marker": marker}


def label(text: str, limit: int = 48) -> str:
    """A name short enough to be read at a telephone's width."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def legend_below(figure: Figure, axes: Axes) -> None:
    """Names of the series below the plot, one a line."""
    handles, names = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="outside lower left", labelcolor=INK)


def _inline(svg: str, name: str) -> Markup:
    """The element without what only a file of its own needs, in the colours of the page."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for child in list(element):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                element.remove(child)
        element.attrib = {
            key.rpartition("}")[2]: _attribute(key.rpartition("}")[2], value, name)
            for key, value in element.attrib.items()
        }
    root.attrib = {"viewBox": root.attrib["viewBox"], "aria-hidden": "true"}
    # ElementTree escapes every text and attribute.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _attribute(key: str, value: str, name: str) -> str:
    """An attribute with ids of its own drawing, and styles in the colours and type of the page."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return value.replace("#", f"#{name}-", 1)
    if key == "clip-path":
        return value.replace("url(#", f"url(#{name}-", 1)
    if key == "style":
        value = re.sub(r" font-family: [^;]*;?|(?<=px) [^;]*(?=;|$)", "", value)
        value = value.replace("font: ", "font-size: ")
        for stand_in, colour in _COLOURS.items():
            value = value.replace(stand_in, colour)
    return value
