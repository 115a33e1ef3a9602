"""Plots of scores: by system, by category, against the base, against cost, and recall by k."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from jobs.report.drawing import Plot, draw, label, legend_below, style
from jobs.report.measures import MOST_SERIES, Measured, measures
from jobs.report.merged_runs import Cell, MergedRuns
from jobs.report.row_plots import LEGEND_IN, Point, row_plot, told

CUTOFFS = ("1", "3", "5", "12", "30")
NEIGHBOURS = "recall+neighbours"
SIGNIFICANT = 0.05
OVERALL = "overall"
BY_QUESTION = "95% bootstrap intervals over questions"


def score_plots(merged: MergedRuns) -> list[Plot]:
    """All plots of scores; where there is nothing to draw, why."""
    found = measures(merged)
    if not found:
        return [Plot(title="Scores, cost, recall and differences", absent="no cell has a score")]
    plots = []
    for one in found:
        plots += [_by_system(one), _by_category(one), _differences(one, merged), _cost(one)]
    by_place = {one.title: one for one in found}
    return [*plots, *map(_recall, by_place.values())]


def _by_system(one: Measured) -> Plot:
    title = f"By system: {one.name}"
    rows = {}
    for cell in one.cells:
        if found := one.scores(cell):
            scores, invalid = found
            rows[str(cell["title"])] = [_point(scores["overall"], invalid)]
    if all(points[0].value is None for points in rows.values()):
        return Plot(title=title, place=one.title, absent="no system has a valid score")
    return Plot(
        title=title,
        place=one.title,
        caption=f"Means over all questions with {BY_QUESTION}.",
        alt=f"{one.name} by system, {one.title}. {told(rows, [one.name])}.",
        svg=row_plot(f"system-{one.slug}", rows, [one.name], one.name),
    )


def _by_category(one: Measured) -> Plot:
    title = f"By category: {one.name}"
    valid = [cell for cell in one.cells if one.overall(cell)]
    if not valid:
        return Plot(title=title, place=one.title, absent="no system has a valid score")
    shown = valid[:MOST_SERIES]
    scores = [found[0]["category"] for cell in shown if (found := one.scores(cell))]
    rows = {
        name: [_point(by_category[name]) if name in by_category else None for by_category in scores]
        for name in dict.fromkeys(name for by_category in scores for name in by_category)
    }
    systems = [str(cell["title"]) for cell in shown]
    return Plot(
        title=title,
        place=one.title,
        caption=f"Means with {BY_QUESTION}.{_left_out(len(valid), MOST_SERIES)}",
        alt=f"{one.name} by category, {one.title}. {told(rows, systems)}.",
        svg=row_plot(f"category-{one.slug}", rows, systems, one.name),
    )


def _differences(one: Measured, merged: MergedRuns) -> Plot:
    base = one.base or "the base"
    title = f"Against {base}: {one.name}"
    found = {
        str(cell["title"]): compared
        for cell in one.cells
        if (compared := _compared(one, cell, merged))
    }
    if not found:
        return Plot(title=title, place=one.title, absent=_no_difference(one))
    systems = list(found)[:MOST_SERIES]
    names = dict.fromkeys(name for system in systems for name in found[system])
    rows = {
        name: [_difference(found[system].get(name)) for system in systems]
        for name in sorted(names, key=lambda name: (name != OVERALL, name))
    }
    return Plot(
        title=title,
        place=one.title,
        caption=f"Differences on the same questions, system less {base}, with {BY_QUESTION}. Filled"
        " where the sign-flip permutation test has p < 0.05, in categories after Holm."
        f"{_left_out(len(found), MOST_SERIES)}",
        alt=f"Difference of {one.name} from {base}, {one.title}. {told(rows, systems)}.",
        svg=row_plot(f"difference-{one.slug}", rows, systems, f"less {base}", span=None, zero=True),
    )


def _compared(one: Measured, cell: Cell, merged: MergedRuns) -> dict[str, Mapping[str, Any]]:
    """A system's valid comparisons with the base, overall and by category."""
    key = (one.benchmark, one.backbone, str(cell["system"]), str(one.base), one.key)
    found = merged.comparisons.get(key)
    if found is None or found["invalid"] or found["overall"] is None:
        return {}
    return {OVERALL: found["overall"], **found["category"]}


def _no_difference(one: Measured) -> str:
    if one.base is None:
        return "the base was not run, or no system is one"
    if len(one.cells) == 1:
        return f"only {one.base} was run"
    return "no other system was run with it in one run, or one side's score is invalid"


def _difference(found: Mapping[str, Any] | None) -> Point | None:
    if found is None:
        return None
    test = found["by_question"]
    p = test["p"] if test["p_holm"] is None else test["p_holm"]
    ends = (test["low"], test["high"])
    return Point(value=found["difference"], interval=ends, open=p >= SIGNIFICANT)


def _cost(one: Measured) -> Plot:
    title = f"Against cost: {one.name}"
    valid = [
        (cell, overall, float(tokens))
        for cell in one.cells
        if (overall := one.overall(cell))
        and (tokens := cell["cost"]["answer"]["per_question"]["tokens"])
    ]
    if not valid:
        return Plot(
            title=title, place=one.title, absent="no system with a valid score has spent tokens"
        )
    shown = valid[: 2 * MOST_SERIES]

    def fill(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (cell, overall, tokens) in enumerate(shown):
            how = style(number)
            if ends := overall["by_question"]:
                axes.plot([tokens] * 2, ends, color=how["color"], lw=1.4)
            axes.plot([tokens], [overall["mean"]], ls="", label=label(cell["title"]), **how)
        all_tokens = [tokens for _, _, tokens in shown]
        axes.set_xscale("log")
        axes.set(xlim=(min(all_tokens) / 2, max(all_tokens) * 2), ylim=(0, 1))
        axes.set(xlabel="tokens a question (log scale)", ylabel=one.short)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid()
        legend_below(figure, axes)

    said = (f"{c['title']}: {o['mean']:.3f} at {tokens:,.0f} tokens" for c, o, tokens in shown)
    return Plot(
        title=title,
        place=one.title,
        caption="Tokens of all calls while answering, prompts and replies, with"
        f" {BY_QUESTION}.{_left_out(len(valid), 2 * MOST_SERIES)}",
        alt=f"{one.name} against tokens a question, {one.title}. {'; '.join(said)}.",
        svg=draw(f"cost-{one.slug}", 2.8 + LEGEND_IN * len(shown), fill),
    )


def _recall(one: Measured) -> Plot:
    title = "Evidence recall by k"
    valid = [
        (str(cell["title"]), cell["evidence"]["scores"])
        for cell in one.cells
        if cell["evidence"] and not cell["evidence"]["invalid"]
    ]
    if not valid:
        return Plot(
            title=title,
            place=one.title,
            absent="no system ranks rounds for questions with evidence",
        )
    shown = valid[:MOST_SERIES]
    means = [
        [_mean(scores, f"recall@{k}") for k in CUTOFFS] + [_mean(scores, NEIGHBOURS)]
        for _, scores in shown
    ]

    def fill(figure: Figure) -> None:
        axes = figure.subplots()
        end = len(CUTOFFS)
        for number, ((name, _), values) in enumerate(zip(shown, means, strict=True)):
            how, beside = style(number), (number - (len(shown) - 1) / 2) * 0.09
            axes.plot(range(end), values[:end], lw=1.4, label=label(name), **how)
            axes.plot([end + beside], values[end:], ls="", mfc="none", **how)
        axes.set_xticks(range(end + 1), [*CUTOFFS, "context"])
        axes.set(ylim=(0, 1.02), xlabel="rounds ranked first (k)", ylabel="share of gold rounds")
        axes.grid(axis="y")
        legend_below(figure, axes)

    said = (
        f"{name}: " + ", ".join(f"{value:.3f}" for value in values)
        for (name, _), values in zip(shown, means, strict=True)
    )
    return Plot(
        title=title,
        place=one.title,
        caption="Means over questions with evidence. On the right, hollow: what the context held,"
        f" neighbours of the ranked rounds among it.{_left_out(len(valid), MOST_SERIES)}",
        alt=f"Recall at {', '.join(CUTOFFS)}, and in the context, {one.title}. {'; '.join(said)}.",
        svg=draw(f"recall-{one.slug}", 2.8 + LEGEND_IN * len(shown), fill),
    )


def _mean(scores: Mapping[str, Any], name: str) -> float:
    """A mean over all questions; not a number, and so not drawn, where there is none."""
    mean = scores[name]["overall"]["mean"] if name in scores else None
    return float("nan") if mean is None else float(mean)


def _point(mean: Mapping[str, Any], invalid: str = "") -> Point:
    if invalid or mean["mean"] is None:
        return Point(value=None, mark=invalid or "no such question")
    return Point(value=mean["mean"], interval=mean.get("by_question"))


def _left_out(count: int, shown: int) -> str:
    more = count - shown
    return f" The first {shown} of {count} systems are drawn; tables have all." if more > 0 else ""
