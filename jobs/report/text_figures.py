"""Our table of the figures that stand in the paper's text: published, ours, and the difference."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobs.report.captions import made_by
from jobs.report.merged_runs import MAIN_BACKBONE, PRIMARY_KIND, MergedRuns, Source
from jobs.report.published import Places, PublishedFigure
from jobs.report.score_entries import NOT_RUN, Group, difference, invalid_mark, score_entry
from jobs.report.score_tables import judged_scores
from jobs.report.table_formats import Entry, Grid, Line

OVERALL: Group = ("overall", "")
MEM_GALLERY, LOCOMO = "mem-gallery", "locomo"


@dataclass(frozen=True, slots=True)
class _From:
    """Where one figure comes from in our statistics.

    Attributes:
        group: The questions that it is over.
        system: Whose score; empty is the system that stands for the figure.
        base: The system whose score is subtracted, or empty.
        benchmark: The benchmark.
        count: What is counted instead of scores, or empty.
    """

    group: Group = OVERALL
    system: str = ""
    base: str = ""
    benchmark: str = MEM_GALLERY
    count: Literal["", "improved", "worsened", "questions"] = ""


def _gains(system: str, base: str, *categories: str) -> dict[str, _From]:
    return {name: _From(("category", name), system, base) for name in categories}


def _deltas(system: str, base: str, *categories: str) -> dict[str, _From]:
    return {f"{n}_delta": each for n, each in _gains(system, base, *categories).items()}


TTL: Group = ("category", "TTL")
VR: Group = ("category", "VR")
FOUND: Mapping[str, Mapping[str, _From]] = {
    "step-routing-by-category": {
        **_gains("routing", "vanilla", "KR", "MR", "FR"),
        "ttl_lost": _From(TTL, "routing", "vanilla", count="worsened"),
        "ttl_gained": _From(TTL, "routing", "vanilla", count="improved"),
    },
    "step-rounds-by-category": _gains("rounds", "routing", "TTL", "VR", "VS"),
    "step-anchor-by-category": _gains("v-mem", "rounds", "TTL", "VR", "VS"),
    # As in Table 11, whose value the window of 1 repeats, over visual search alone.
    "filter-window": {n: _From(("case_and_category", "text->image|VS")) for n in ("0", "1", "2")},
    "tripled-units-behind-rounds": {
        "overall": _From(OVERALL, "rounds", "routing-threefold"),
        **_gains("rounds", "routing-threefold", "TTL"),
    },
    "merging": {
        "overall_delta": _From(OVERALL, "v-mem", "no-merging"),
        **{f"VR_{side}": _From(VR) for side in ("without", "with")},
        **{f"TTL_{side}": _From(TTL) for side in ("without", "with")},
        "locomo_delta": _From(OVERALL, "v-mem", "no-merging", LOCOMO),
    },
    "folding": {
        "without": _From(),
        "with": _From(),
        "questions": _From(OVERALL, "no-folding", count="questions"),
        **_deltas("v-mem", "no-folding", "VR", "KR", "TR"),
    },
    "overall-intervals": {MEM_GALLERY: _From(), LOCOMO: _From(benchmark=LOCOMO)},
    "distrust-of-the-description": {
        "questions": _From(("case", "image+text->text"), "v-mem", count="questions"),
    },
}
"""By a figure's id and the names of its values; those that are not here are not run."""


def figures_grid(
    figures: Mapping[str, PublishedFigure], merged: MergedRuns, places: Places
) -> Grid:
    """Every figure of the text.

    Args:
        figures: The figures as published.
        merged: Our runs.
        places: Which system stands where.
    """
    lines: list[Line] = []
    placed = set()
    for figure in figures.values():
        for name, published in figure.entries().items():
            keys = figure.where, figure.id, name
            lines.append(Line(keys=keys, figure="published", entries=(published,)))
            found = FOUND.get(figure.id, {}).get(name)
            system = places.of_figure(figure.id, name)
            placed |= {system} if system else set()
            ours = _lines(keys, published, found, system, merged) if found else []
            lines += ours or [Line(keys=keys, figure="ours", entries=(NOT_RUN,))]
    return Grid(
        name="figures-of-the-text",
        title="Figures of the paper's text",
        keys=("where", "figure of", "value of"),
        columns=("value",),
        lines=tuple(lines),
        caption=(
            "Scores are means over all questions asked, also where the paper took a subset that"
            " it does not name (folding).",
            *(f"{figure.id}: {' '.join(figure.about.split())}." for figure in figures.values()),
            *made_by(merged, placed, places),
        ),
    )


def _lines(
    keys: tuple[str, ...],
    published: Entry,
    found: _From,
    standing: str | None,
    merged: MergedRuns,
) -> list[Line]:
    lines = []
    primary = PRIMARY_KIND.get(found.benchmark, "gallery")
    for source in merged.judged_by(found.benchmark):
        if (source.kind, source.gold) != (primary, "original"):
            continue
        if not merged.belongs(source.backbone, MAIN_BACKBONE):
            continue
        entry = _entry(found, found.system or standing, source, merged)
        if entry == NOT_RUN:
            continue
        said = f"{source.backbone}, {source.judge} ({source.kind})"
        lines.append(Line(keys=keys, figure=f"ours: {said}", entries=(entry,)))
        if not found.count:
            less = difference(entry, published.value)
            lines.append(Line(keys=keys, figure=f"difference: {said}", entries=(less,)))
    return lines


def _entry(found: _From, system: str | None, source: Source, merged: MergedRuns) -> Entry:
    if found.base:
        return _compared(found, source, merged)
    cell = merged.cell(found.benchmark, system, source.backbone)
    judged = judged_scores(cell, source) if cell else None
    if judged is None:
        return NOT_RUN
    if found.count:
        kind, name = found.group
        group: Mapping[str, Any] = judged["score"][kind]
        counted = (group if kind == "overall" else group.get(name, {})).get("questions", 0)
        return Entry(value=counted)
    return score_entry(judged["score"], judged["invalid"], found.group)


def _compared(found: _From, source: Source, merged: MergedRuns) -> Entry:
    """A paired difference, or how many questions went up or down."""
    score = f"judge:{source.judge}:{source.kind}"
    place = found.benchmark, source.backbone
    pair = merged.comparisons.get((*place, found.system, found.base, score))
    turned = pair is None
    pair = pair or merged.comparisons.get((*place, found.base, found.system, score))
    if pair is None or pair["overall"] is None:
        return NOT_RUN
    if pair["invalid"]:
        return Entry(mark=invalid_mark(pair["invalid"]))
    kind, name = found.group
    part = pair["overall"] if kind == "overall" else pair["category"].get(name)
    if part is None:
        return Entry(mark="no such question")
    if found.count:
        other = {"improved": "worsened", "worsened": "improved"}
        return Entry(value=part[other[found.count] if turned else found.count])
    sign = -1 if turned else 1
    ends = sorted(sign * part["by_question"][end] for end in ("low", "high"))
    return Entry(value=sign * part["difference"], interval=(ends[0], ends[1]), signed=True)
