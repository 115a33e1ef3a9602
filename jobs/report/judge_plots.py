"""Plots of how far judges can be trusted: planted answers, levels, repetitions, agreement."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.report.drawing import Plot
from jobs.report.merged_runs import MergedRuns
from jobs.report.questions import SeenQuestion
from jobs.report.row_plots import Point, Rows, row_plot, told
from jobs.statistics.error_analysis import evidence_shown
from jobs.statistics.means import Resampling
from vmem.datasets import EXCLUDED
from vmem.metrics.lexical import token_f1
from vmem.metrics.significance import bootstrap_mean

PLANTED = "Planted wrong answers that judges accept"
SPREAD = "Judges asked again: spread of one answer's score"
AGREEMENT = "Agreement of two judges"
LEVELS = "What judges' levels go with"
SIDES = ("token F1 with the gold answer", "all evidence in the context")
DRAWS = 2_000


class Levels:
    """Gathers, for each level that a judge gives, what can be known of the answers without it."""

    def __init__(self) -> None:
        self._f1: dict[tuple[str, str, str], dict[float, list[float]]] = {}
        self._shown: dict[tuple[str, str, str], dict[float, list[float]]] = {}

    def add(self, seen: SeenQuestion) -> None:
        """Count a question's first judgements by the benchmark's own gold."""
        record, benchmark = seen.record, seen.cell.benchmark
        if record.category in EXCLUDED:
            return
        shown = evidence_shown(record)
        for verdict in seen.verdicts:
            line = verdict.line
            if line.repetition or verdict.gold != "original" or line.level is None:
                continue
            key, level = (benchmark, verdict.judge, verdict.kind), round(line.level * 4) / 4
            f1 = token_f1(record.answer, record.reference, benchmark, record.category)
            self._f1.setdefault(key, {}).setdefault(level, []).append(f1)
            if shown != "no_evidence":
                by_level = self._shown.setdefault(key, {})
                by_level.setdefault(level, []).append(float(shown == "all"))

    def plots(self, draw: Resampling) -> list[Plot]:
        """One for each benchmark, judge and kind."""
        found = []
        for key, by_level in self._f1.items():
            benchmark, judge, kind = key
            rows: dict[str, Sequence[Point | None]] = {}
            for level in sorted(by_level):
                shown = self._shown.get(key, {}).get(level)
                name = f"level {level:g} ({len(by_level[level]):,} answers)"
                seed = f"{'|'.join(key)}|{level}"
                rows[name] = (
                    _mean(by_level[level], f"{seed}|f1", draw),
                    _mean(shown, f"{seed}|evidence", draw) if shown else None,
                )
            found.append(
                _plot(
                    LEVELS,
                    rows,
                    SIDES,
                    "Means over the answers that got a level, rounded to quarters, with 95%"
                    " bootstrap intervals. A judge to be trusted gives answers that overlap more"
                    " with the gold a higher level.",
                    place=f"{judge} ({kind}), {benchmark}",
                )
            )
        return found or [Plot(title=LEVELS, absent="no judge gave any answer a level")]


def judge_plots(merged: MergedRuns) -> list[Plot]:
    """All plots of judges that the statistics hold; where there is nothing to draw, why."""
    honesty = merged.honesty
    planted = {
        f"{one['judge']} ({one['kind']}), {one['benchmark']}": tuple(
            _rate(one[kind]) for kind in ("vague", "specific")
        )
        for one in _all(honesty, "planted")
    }
    spread = {
        f"{one['judge']} ({one['kind']}), {one['benchmark']}, {one['system']}": (
            Point(value=one["spread"]["within"]),
        )
        for one in _all(honesty, "spread")
        if one["spread"]
    }
    agreement = {
        f"{one['first']} and {one['second']} ({one['kind']}), {one['benchmark']}": (_kappa(one),)
        for one in _all(honesty, "agreement")
    }
    return [
        _plot(
            PLANTED,
            planted,
            ("vague answers", "specific answers"),
            "Share of answers, wrong by construction, that got half the credit or more, with"
            " Wilson intervals. Nought is best.",
            absent="no judge was given planted answers (`planted` of a plan's judge)",
        ),
        _plot(
            SPREAD,
            spread,
            ("standard deviation",),
            "Nought is best.",
            absent="no judge judged answers more than once (`repetitions` of a plan's judge)",
        ),
        _plot(
            AGREEMENT,
            agreement,
            ("Cohen's κ",),
            "1 for the same judgements, 0 for what chance gives; bootstrap intervals.",
            span=(-1, 1),
            absent="no two judges judged the same answers",
        ),
    ]


def _plot(
    title: str,
    rows: Rows,
    series: Sequence[str],
    caption: str,
    span: tuple[float, float] = (0, 1),
    absent: str = "",
    place: str = "",
) -> Plot:
    if not rows:
        return Plot(title=title, absent=absent)
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{title} {place}")
    return Plot(
        title=title,
        place=place,
        caption=caption,
        alt=f"{title} {place}. {told(rows, series)}.",
        svg=row_plot(name, rows, series, series[0] if len(series) == 1 else "share", span=span),
    )


def _all(honesty: Iterable[Mapping[str, Any]], what: str) -> list[Mapping[str, Any]]:
    return [one for run in honesty for one in run[what]]


def _mean(values: Sequence[float], key: str, draw: Resampling) -> Point:
    interval = bootstrap_mean(values, draw.rng(key), DRAWS)
    return Point(value=interval.mean, interval=(interval.low, interval.high))


def _rate(found: Mapping[str, Any] | None) -> Point:
    if found is None:
        return Point(value=None, mark="none judged")
    return Point(value=found["rate"], interval=(found["low"], found["high"]))


def _kappa(found: Mapping[str, Any]) -> Point:
    if found["kappa"] is None:
        return Point(value=None, mark="undefined: one level throughout")
    return Point(value=found["kappa"], interval=(found["low"], found["high"]))
